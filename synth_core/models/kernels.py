"""Compiled kernels of one pass of belief propagation over a laid-out junction tree (see `plan`).

Cells are in linear space. Every table enters with maximum 1 and every message is scaled to maximum 1; a message
whose maximum falls below `TINY` before scaling means that a product of few such tables ran out of range, and the
caller repeats the pass in log space. Above it, cells down to TINY relative to the largest keep full precision.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synth_core.models.compiled import compiled
from synth_core.models.plan import Layout

TINY = 1e-200

Cells = NDArray[np.float64]


@compiled
def _expand(layout: Layout, link: int, block: int, cells: Cells, table: Cells) -> None:
    """Multiply a table into the rows of its group."""
    group = layout.link_group[link]
    rows = layout.group_rows[group]
    base = layout.group_start[group]
    start = layout.table_start[layout.link_table[link]]
    row_map = layout.row_map[layout.link_rows[link] : layout.link_rows[link] + rows]
    if layout.link_inner[link] < 0:
        for r in range(rows):
            row = table[base + r * block : base + (r + 1) * block]
            source = cells[start + row_map[r] : start + row_map[r] + block]
            for j in range(block):
                row[j] *= source[j]
    else:
        inner = layout.inner_map[layout.link_inner[link] : layout.link_inner[link] + block]
        for r in range(rows):
            row = table[base + r * block : base + (r + 1) * block]
            source = cells[start + row_map[r] :]
            for j in range(block):
                row[j] *= source[inner[j]]


@compiled
def _reduce(layout: Layout, link: int, block: int, table: Cells, cells: Cells, scale: float) -> None:
    """Sum the rows of a group onto one of its tables."""
    group = layout.link_group[link]
    rows = layout.group_rows[group]
    base = layout.group_start[group]
    start = layout.table_start[layout.link_table[link]]
    cells[start : layout.table_start[layout.link_table[link] + 1]] = 0.0
    row_map = layout.row_map[layout.link_rows[link] : layout.link_rows[link] + rows]
    if layout.link_inner[link] < 0:
        for r in range(rows):
            row = table[base + r * block : base + (r + 1) * block]
            target = cells[start + row_map[r] : start + row_map[r] + block]
            for j in range(block):
                target[j] += row[j] * scale
    else:
        inner = layout.inner_map[layout.link_inner[link] : layout.link_inner[link] + block]
        for r in range(rows):
            row = table[base + r * block : base + (r + 1) * block]
            target = cells[start + row_map[r] :]
            for j in range(block):
                target[inner[j]] += row[j] * scale


@compiled
def _reduce_rows(layout: Layout, link: int, sums: Cells, cells: Cells, rows: int, scale: float) -> None:
    """Sum one number for each row onto a table without inner axes."""
    start = layout.table_start[layout.link_table[link]]
    cells[start : layout.table_start[layout.link_table[link] + 1]] = 0.0
    row_map = layout.row_map[layout.link_rows[link] : layout.link_rows[link] + rows]
    for a in range(rows):
        cells[start + row_map[a]] += sums[a] * scale


@compiled
def _multiply_rows(layout: Layout, link: int, cells: Cells, weights: Cells, rows: int) -> None:
    """Multiply a table without inner axes into the weight of each row."""
    start = layout.table_start[layout.link_table[link]]
    row_map = layout.row_map[layout.link_rows[link] : layout.link_rows[link] + rows]
    for a in range(rows):
        weights[a] *= cells[start + row_map[a]]


@compiled
def _product(
    layout: Layout, first: int, last: int, a: int, weight: float, factors: Cells, row: Cells
) -> None:
    """One row of the clique: the product of its groups' rows."""
    block = row.size
    at = layout.group_start[first] + layout.offsets[layout.group_offset[first] + a]
    source = factors[at : at + block]
    for j in range(block):
        row[j] = weight * source[j]
    for g in range(first + 1, last):
        at = layout.group_start[g] + layout.offsets[layout.group_offset[g] + a]
        source = factors[at : at + block]
        for j in range(block):
            row[j] *= source[j]


@compiled
def prepare(layout: Layout, i: int, cells: Cells, factors: Cells, weights: Cells) -> None:
    """Multiply a clique's tables into its groups and row weights, all but the message from its parent."""
    block, rows = layout.block[i], layout.rows[i]
    weights[:rows] = 1.0
    for g in range(layout.clique_groups[i], layout.clique_groups[i + 1]):
        base = layout.group_start[g]
        factors[base : base + layout.group_rows[g] * block] = 1.0
    for link in range(layout.clique_links[i], layout.clique_links[i + 1]):
        if link == layout.parent_link[i]:
            continue
        if layout.link_group[link] < 0:
            _multiply_rows(layout, link, cells, weights, rows)
        else:
            _expand(layout, link, block, cells, factors)


@compiled
def sum_rows(
    layout: Layout,
    i: int,
    begin: int,
    end: int,
    target: int,
    weights: Cells,
    factors: Cells,
    sums: Cells,
    row: Cells,
) -> None:
    """Sum rows begin … end of a clique: into the target group's table, or (target -1) each to one number."""
    block = layout.block[i]
    first, last = layout.clique_groups[i], layout.clique_groups[i + 1]
    out = row[:block]
    for a in range(begin, end):
        _product(layout, first, last, a, weights[a], factors, out)
        if target < 0:
            total = 0.0
            for j in range(block):
                total += out[j]
            sums[a] = total
        else:
            at = layout.group_start[target] + layout.offsets[layout.group_offset[target] + a]
            into = sums[at : at + block]
            for j in range(block):
                into[j] += out[j]


@compiled
def spread_rows(
    layout: Layout,
    i: int,
    begin: int,
    end: int,
    weights: Cells,
    factors: Cells,
    sums: Cells,
    totals: Cells,
    row: Cells,
) -> None:
    """Sum rows begin … end of a calibrated clique into every wanted group's table and to one number each."""
    block = layout.block[i]
    first, last = layout.clique_groups[i], layout.clique_groups[i + 1]
    out = row[:block]
    for a in range(begin, end):
        _product(layout, first, last, a, weights[a], factors, out)
        total = 0.0
        for j in range(block):
            total += out[j]
        totals[a] = total
        for g in range(first, last):
            if layout.group_wanted[g]:
                at = layout.group_start[g] + layout.offsets[layout.group_offset[g] + a]
                into = sums[at : at + block]
                for j in range(block):
                    into[j] += out[j]


@compiled
def send_up(layout: Layout, i: int, cells: Cells, sums: Cells, totals: Cells) -> float:
    """Turn summed rows into the message to the parent, scaled to maximum 1; the maximum before is returned."""
    link = layout.parent_link[i]
    if layout.link_group[link] < 0:
        _reduce_rows(layout, link, totals, cells, layout.rows[i], 1.0)
    else:
        _reduce(layout, link, layout.block[i], sums, cells, 1.0)
    table = layout.link_table[link]
    message = cells[layout.table_start[table] : layout.table_start[table + 1]]
    largest: float = message.max()
    message /= largest
    return largest


@compiled
def receive(layout: Layout, i: int, cells: Cells, marginals: Cells, factors: Cells, weights: Cells) -> None:
    """Multiply in what the parent knows beyond this clique's own message: its marginal divided by the message."""
    link = layout.parent_link[i]
    table = layout.link_table[link]
    for c in range(layout.table_start[table], layout.table_start[table + 1]):
        cells[c] = marginals[c] / cells[c] if cells[c] > 0.0 else 0.0
    if layout.link_group[link] < 0:
        _multiply_rows(layout, link, cells, weights, layout.rows[i])
    else:
        _expand(layout, link, layout.block[i], cells, factors)


@compiled
def read_marginals(layout: Layout, i: int, sums: Cells, totals: Cells, marginals: Cells) -> float:
    """Write the marginals of all tables of a clique but the separator to its parent; return the mass before."""
    rows, block = layout.rows[i], layout.block[i]
    mass: float = totals[:rows].sum()
    scale = 1.0 / mass
    for link in range(layout.clique_links[i], layout.clique_links[i + 1]):
        if link == layout.parent_link[i]:
            continue
        if layout.link_group[link] < 0:
            _reduce_rows(layout, link, totals, marginals, rows, scale)
        else:
            _reduce(layout, link, block, sums, marginals, scale)
    return mass


@compiled
def clear_groups(layout: Layout, i: int, sums: Cells) -> None:
    """Zero the group tables of a clique."""
    for g in range(layout.clique_groups[i], layout.clique_groups[i + 1]):
        base = layout.group_start[g]
        sums[base : base + layout.group_rows[g] * layout.block[i]] = 0.0


@compiled
def propagate(
    layout: Layout,
    row_start: NDArray[np.int64],
    cells: Cells,
    marginals: Cells,
    factors: Cells,
    sums: Cells,
    weights: Cells,
    totals: Cells,
    row: Cells,
) -> float:
    """Both directions over the whole forest: tables in `cells`, marginals out; log of the mass, nan if out of range."""
    log_mass = 0.0
    cliques = layout.block.size
    for i in range(cliques - 1, -1, -1):
        own = weights[row_start[i] : row_start[i + 1]]
        prepare(layout, i, cells, factors, own)
        link = layout.parent_link[i]
        if link < 0:
            continue
        clear_groups(layout, i, sums)
        sum_rows(
            layout,
            i,
            0,
            layout.rows[i],
            layout.link_group[link],
            own,
            factors,
            sums if layout.link_group[link] >= 0 else totals,
            row,
        )
        largest = send_up(layout, i, cells, sums, totals)
        if not largest > TINY:
            return np.nan
        log_mass += np.log(largest)
    for i in range(cliques):
        own = weights[row_start[i] : row_start[i + 1]]
        if layout.parent_link[i] >= 0:
            receive(layout, i, cells, marginals, factors, own)
        clear_groups(layout, i, sums)
        spread_rows(layout, i, 0, layout.rows[i], own, factors, sums, totals, row)
        mass = read_marginals(layout, i, sums, totals, marginals)
        if layout.parent_link[i] < 0:
            if not mass > TINY:
                return np.nan
            log_mass += np.log(mass)
    return log_mass
