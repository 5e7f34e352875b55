"""Compiled kernels of one pass of belief propagation over a laid-out junction tree (see `plan`).

Cells are in linear space. Every table enters with maximum 1 and every message is scaled to maximum 1; a message
whose maximum falls below `TINY` before scaling means that a product of few such tables ran out of range, and the
caller repeats the pass in log space. Above it, cells down to TINY relative to the largest keep full precision.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from synth_core.models.compiled import compiled
from synth_core.models.plan import Layout

TINY = 1e-200

Cells = NDArray[np.float64]


class Work(NamedTuple):
    """The memory of a pass, allocated once."""

    line_start: NDArray[np.int64]  # for each clique where its lines begin in `weights` and `totals`
    cells: Cells  # all tables: measured ones filled by the caller, separators by the pass
    marginals: Cells  # the same tables' marginals
    factors: Cells  # the groups' products
    sums: Cells  # the groups' sums
    weights: Cells  # a weight for each line
    totals: Cells  # a sum for each line
    row: Cells


@compiled
def _expand(layout: Layout, link: int, cells: Cells, factors: Cells) -> None:
    """Multiply a table into the rows of its group."""
    group = layout.link_group[link]
    rows, width, base = layout.group_rows[group], layout.group_width[group], layout.group_start[group]
    start = layout.table_start[layout.link_table[link]]
    row_map = layout.row_map[layout.link_rows[link] : layout.link_rows[link] + rows]
    if layout.link_inner[link] < 0:
        for r in range(rows):
            row = factors[base + r * width : base + (r + 1) * width]
            source = cells[start + row_map[r] : start + row_map[r] + width]
            for j in range(width):
                row[j] *= source[j]
    else:
        # Neighbouring rows often need the same cells: they are gathered once.
        inner = layout.inner_map[layout.link_inner[link] : layout.link_inner[link] + width]
        gathered = np.empty(width)
        for r in range(rows):
            if r == 0 or row_map[r] != row_map[r - 1]:
                source = cells[start + row_map[r] :]
                for j in range(width):
                    gathered[j] = source[inner[j]]
            row = factors[base + r * width : base + (r + 1) * width]
            for j in range(width):
                row[j] *= gathered[j]


@compiled
def _reduce(layout: Layout, link: int, sums: Cells, cells: Cells, scale: float) -> None:
    """Sum the rows of a group onto one of its tables."""
    group = layout.link_group[link]
    rows, width, base = layout.group_rows[group], layout.group_width[group], layout.group_start[group]
    start = layout.table_start[layout.link_table[link]]
    cells[start : layout.table_start[layout.link_table[link] + 1]] = 0.0
    row_map = layout.row_map[layout.link_rows[link] : layout.link_rows[link] + rows]
    if layout.link_inner[link] < 0:
        for r in range(rows):
            row = sums[base + r * width : base + (r + 1) * width]
            target = cells[start + row_map[r] : start + row_map[r] + width]
            for j in range(width):
                target[j] += row[j] * scale
    else:
        # Neighbouring rows often go to the same cells: they are added up first and scattered once.
        inner = layout.inner_map[layout.link_inner[link] : layout.link_inner[link] + width]
        gathered = np.zeros(width)
        for r in range(rows):
            row = sums[base + r * width : base + (r + 1) * width]
            for j in range(width):
                gathered[j] += row[j]
            if r == rows - 1 or row_map[r] != row_map[r + 1]:
                target = cells[start + row_map[r] :]
                for j in range(width):
                    target[inner[j]] += gathered[j] * scale
                    gathered[j] = 0.0


@compiled
def _weigh(layout: Layout, link: int, begin: int, end: int, cells: Cells, weights: Cells) -> None:
    """Multiply a table without inner axes into the weights of lines begin … end."""
    start = layout.table_start[layout.link_table[link]]
    row_map = layout.row_map[layout.link_rows[link] : layout.link_rows[link] + weights.size]
    for k in range(begin, end):
        weights[k] *= cells[start + row_map[k]]


@compiled
def _reduce_lines(layout: Layout, link: int, totals: Cells, cells: Cells, scale: float) -> None:
    """Sum one number for each line onto a table without inner axes."""
    start = layout.table_start[layout.link_table[link]]
    cells[start : layout.table_start[layout.link_table[link] + 1]] = 0.0
    row_map = layout.row_map[layout.link_rows[link] : layout.link_rows[link] + totals.size]
    held = 0.0  # a run of lines of one cell is added up in a register
    for k in range(totals.size):
        held += totals[k]
        if k == totals.size - 1 or row_map[k] != row_map[k + 1]:
            cells[start + row_map[k]] += held * scale
            held = 0.0


@compiled
def _row(layout: Layout, i: int, a: int, weights: Cells, factors: Cells, row: Cells) -> None:
    """Row a of the clique: the weights of its lines times the row of every group."""
    lines, block = layout.lines[i], layout.block[i]
    for u in range(lines):
        weight = weights[a * lines + u]
        line = row[u * block : (u + 1) * block]
        for j in range(block):
            line[j] = weight
    for g in range(layout.clique_groups[i], layout.clique_groups[i + 1]):
        at = layout.group_start[g] + layout.offsets[layout.group_offset[g] + a]
        width = layout.group_width[g]
        source = factors[at : at + width]
        for u in range(lines * block // width):
            line = row[u * width : (u + 1) * width]
            for j in range(width):
                line[j] *= source[j]


@compiled
def _add_row(layout: Layout, i: int, a: int, group: int, row: Cells, sums: Cells) -> None:
    """Add row a of the clique to a group's table of sums."""
    at = layout.group_start[group] + layout.offsets[layout.group_offset[group] + a]
    width = layout.group_width[group]
    target = sums[at : at + width]
    for u in range(layout.lines[i] * layout.block[i] // width):
        line = row[u * width : (u + 1) * width]
        for j in range(width):
            target[j] += line[j]


@compiled
def _total_lines(layout: Layout, i: int, a: int, row: Cells, totals: Cells) -> None:
    """One sum for each line of row a."""
    lines, block = layout.lines[i], layout.block[i]
    for u in range(lines):
        line = row[u * block : (u + 1) * block]
        total = 0.0
        for j in range(block):
            total += line[j]
        totals[a * lines + u] = total


@compiled
def prepare(
    layout: Layout, i: int, part: int, parts: int, cells: Cells, factors: Cells, weights: Cells
) -> None:
    """Multiply a clique's tables into its groups and weights, all but the message from its parent.

    Of several parts, each takes a range of the weights and every parts-th group.
    """
    begin, end = weights.size * part // parts, weights.size * (part + 1) // parts
    weights[begin:end] = 1.0
    for g in range(layout.clique_groups[i] + part, layout.clique_groups[i + 1], parts):
        base = layout.group_start[g]
        factors[base : base + layout.group_rows[g] * layout.group_width[g]] = 1.0
    for link in range(layout.clique_links[i], layout.clique_links[i + 1]):
        group = layout.link_group[link]
        if link == layout.parent_link[i]:
            continue
        if group < 0:
            _weigh(layout, link, begin, end, cells, weights)
        elif (group - layout.clique_groups[i]) % parts == part:
            _expand(layout, link, cells, factors)


@compiled
def clear(layout: Layout, i: int, sums: Cells) -> None:
    """Zero the sums of a clique's groups."""
    for g in range(layout.clique_groups[i], layout.clique_groups[i + 1]):
        base = layout.group_start[g]
        sums[base : base + layout.group_rows[g] * layout.group_width[g]] = 0.0


@compiled
def add_sums(layout: Layout, i: int, part: Cells, sums: Cells) -> None:
    """Add another thread's sums of a clique's groups."""
    for g in range(layout.clique_groups[i], layout.clique_groups[i + 1]):
        base = layout.group_start[g]
        for c in range(base, base + layout.group_rows[g] * layout.group_width[g]):
            sums[c] += part[c]


@compiled
def sum_up(
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
    """Sum rows begin … end of a clique towards its parent's separator."""
    group = layout.link_group[layout.parent_link[i]]
    for a in range(begin, end):
        _row(layout, i, a, weights, factors, row)
        if group < 0:
            _total_lines(layout, i, a, row, totals)
        else:
            _add_row(layout, i, a, group, row, sums)


@compiled
def sum_all(
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
    """Sum rows begin … end of a calibrated clique towards every table that is wanted."""
    for a in range(begin, end):
        _row(layout, i, a, weights, factors, row)
        _total_lines(layout, i, a, row, totals)
        for g in range(layout.clique_groups[i], layout.clique_groups[i + 1]):
            if layout.group_wanted[g]:
                _add_row(layout, i, a, g, row, sums)


@compiled
def send(layout: Layout, i: int, cells: Cells, sums: Cells, totals: Cells) -> float:
    """Turn sums into the message to the parent, scaled to maximum 1; the maximum before is returned."""
    link = layout.parent_link[i]
    if layout.link_group[link] < 0:
        _reduce_lines(layout, link, totals, cells, 1.0)
    else:
        _reduce(layout, link, sums, cells, 1.0)
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
        _weigh(layout, link, 0, weights.size, cells, weights)
    else:
        _expand(layout, link, cells, factors)


@compiled
def read(
    layout: Layout, i: int, part: int, parts: int, sums: Cells, totals: Cells, marginals: Cells
) -> float:
    """Write the marginals of a clique's tables, all but the separator to its parent; return the mass before.

    Of several parts, each writes every parts-th table.
    """
    mass: float = totals.sum()
    for link in range(layout.clique_links[i] + part, layout.clique_links[i + 1], parts):
        if link == layout.parent_link[i]:
            continue
        if layout.link_group[link] < 0:
            _reduce_lines(layout, link, totals, marginals, 1.0 / mass)
        else:
            _reduce(layout, link, sums, marginals, 1.0 / mass)
    return mass


@compiled
def scale_of(largest: float) -> float:
    """The logarithm of a scale, or nan where the product of tables left the range of floating point."""
    return np.log(largest) if TINY < largest < 1.0 / TINY else np.nan


@compiled
def collect(layout: Layout, begin: int, end: int, work: Work) -> float:
    """Messages from cliques end-1 … begin to their parents; the logarithm of their scales, nan out of range."""
    log_mass = 0.0
    for i in range(end - 1, begin - 1, -1):
        weights = work.weights[work.line_start[i] : work.line_start[i + 1]]
        totals = work.totals[work.line_start[i] : work.line_start[i + 1]]
        prepare(layout, i, 0, 1, work.cells, work.factors, weights)
        if layout.parent_link[i] >= 0:
            clear(layout, i, work.sums)
            sum_up(layout, i, 0, layout.rows[i], weights, work.factors, work.sums, totals, work.row)
            log_mass += scale_of(send(layout, i, work.cells, work.sums, totals))
    return log_mass


@compiled
def distribute(layout: Layout, begin: int, end: int, work: Work) -> float:
    """Marginals of cliques begin … end-1, parents first; the logarithm of the mass of roots, nan out of range."""
    log_mass = 0.0
    for i in range(begin, end):
        weights = work.weights[work.line_start[i] : work.line_start[i + 1]]
        totals = work.totals[work.line_start[i] : work.line_start[i + 1]]
        if layout.parent_link[i] >= 0:
            receive(layout, i, work.cells, work.marginals, work.factors, weights)
        clear(layout, i, work.sums)
        sum_all(layout, i, 0, layout.rows[i], weights, work.factors, work.sums, totals, work.row)
        mass = read(layout, i, 0, 1, work.sums, totals, work.marginals)
        if layout.parent_link[i] < 0:
            log_mass += scale_of(mass)
    return log_mass


@compiled
def propagate(layout: Layout, work: Work) -> float:
    """Both directions over the whole forest; the logarithm of the mass, or nan if it left the range."""
    log_mass = collect(layout, 0, layout.block.size, work)
    return log_mass if np.isnan(log_mass) else log_mass + distribute(layout, 0, layout.block.size, work)
