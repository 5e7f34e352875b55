"""Compiled kernels of one pass of belief propagation over a laid-out junction tree (see `plan`).

Cells are in linear space. Every table enters with maximum 1 and every message is scaled to maximum 1; a message
whose maximum falls below `TINY` before scaling means that a product of few such tables ran out of range, and the
caller repeats the pass in log space. Above it, cells down to TINY relative to the largest keep full precision.

Several threads may sweep a clique, each some of its rows. The message is then the sum of what they found, and each
marginal the mixture of theirs, so that none waits for another before all are done.

Example: a clique of a (2 codes) and b (3 codes) holds the tables (1, 0.5) over a and (1, 1, 0.2) over b. With a as
the outer and b as the inner axis it has two rows of one line of three cells; the first table weights the lines, the
second is a narrow group of one row. The rows sum to 2.2 and 1.1, so the mass is 3.3, the marginal of a is (2/3, 1/3),
and the message over a, scaled to maximum 1, is (1, 0.5).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from synth_core.arrays import Floats, Index
from synth_core.compiled import compiled, part_of_kernel
from synth_core.models.calibration import TINY
from synth_core.models.plan import Layout, Offsets

SMALLEST = np.finfo(np.float64).tiny
"""Rows of less mass than this, whose inverse is out of range, count for nothing beside a pass's mass above TINY."""


class Work(NamedTuple):
    """The memory of a pass, allocated once, and the part of the rows that one thread sweeps.

    Threads share the tables and the lines, in which they write to their own stretches; the rest each has to itself.
    """

    cells: Floats  # all tables: measured ones filled by the caller, separators by the pass
    line_start: Index  # for each clique where its lines begin in `weights` and `totals`
    weights: Floats  # a weight for each line
    totals: Floats  # a sum for each line
    messages: Floats  # the tables again, where sums towards parents go: the first thread's are `cells`
    marginals: Floats  # the tables' marginals
    factors: Floats  # the groups' products
    sums: Floats  # the groups' sums
    row: Floats
    row_begin: Index  # for each clique
    row_end: Index
    group_begin: Index  # for each group the rows of it that the cliques' rows meet
    group_end: Index


@part_of_kernel
def _fill(layout: Layout, group: int, begin: int, end: int, cells: Floats, value: float) -> None:
    """Set rows begin … end of a group to a value."""
    base, width = layout.group_start[group], layout.group_width[group]
    cells[base + begin * width : base + end * width] = value


@part_of_kernel
def _stretch(layout: Layout, link: int, begin: int, end: int) -> tuple[int, int, int, Offsets]:
    """Of rows begin … end of a link's group: their first cell, a row's cells; and its table's start and row map."""
    group, rows = layout.link_group[link], layout.link_rows[link]
    width = layout.group_width[group]
    start = layout.table_start[layout.link_table[link]]
    return layout.group_start[group] + begin * width, width, start, layout.row_map[rows + begin : rows + end]


@part_of_kernel
def _expand(layout: Layout, link: int, begin: int, end: int, cells: Floats, factors: Floats) -> None:
    """Multiply a table into rows begin … end of its group."""
    base, width, start, row_map = _stretch(layout, link, begin, end)
    rows = end - begin
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


@part_of_kernel
def _reduce(layout: Layout, link: int, begin: int, end: int, sums: Floats, cells: Floats, scale: float) -> None:
    """Sum rows begin … end of a group onto one of its tables."""
    base, width, start, row_map = _stretch(layout, link, begin, end)
    rows = end - begin
    cells[start : layout.table_start[layout.link_table[link] + 1]] = 0.0
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


@part_of_kernel
def _weigh(layout: Layout, link: int, begin: int, end: int, cells: Floats, weights: Floats) -> None:
    """Multiply a table without inner axes into the weights of lines begin … end."""
    start = layout.table_start[layout.link_table[link]]
    row_map = layout.row_map[layout.link_rows[link] + begin : layout.link_rows[link] + end]
    weights = weights[begin:end]
    for k in range(weights.size):
        weights[k] *= cells[start + row_map[k]]


@part_of_kernel
def _reduce_lines(layout: Layout, link: int, begin: int, end: int, totals: Floats, cells: Floats, scale: float) -> None:
    """Sum one number for each of lines begin … end onto a table without inner axes."""
    start = layout.table_start[layout.link_table[link]]
    cells[start : layout.table_start[layout.link_table[link] + 1]] = 0.0
    row_map = layout.row_map[layout.link_rows[link] + begin : layout.link_rows[link] + end]
    totals = totals[begin:end]
    held = 0.0  # a run of lines of one cell is added up in a register
    for k in range(totals.size):
        held += totals[k]
        if k == totals.size - 1 or row_map[k] != row_map[k + 1]:
            cells[start + row_map[k]] += held * scale
            held = 0.0


@part_of_kernel
def _row(layout: Layout, i: int, a: int, weights: Floats, factors: Floats, row: Floats) -> None:
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


@part_of_kernel
def _add_row(layout: Layout, i: int, a: int, group: int, row: Floats, sums: Floats) -> None:
    """Add row a of the clique to a group's table of sums."""
    at = layout.group_start[group] + layout.offsets[layout.group_offset[group] + a]
    width = layout.group_width[group]
    target = sums[at : at + width]
    for u in range(layout.lines[i] * layout.block[i] // width):
        line = row[u * width : (u + 1) * width]
        for j in range(width):
            target[j] += line[j]


@part_of_kernel
def _total_lines(layout: Layout, i: int, a: int, row: Floats, totals: Floats) -> None:
    """One sum for each line of row a."""
    lines, block = layout.lines[i], layout.block[i]
    for u in range(lines):
        line = row[u * block : (u + 1) * block]
        total = 0.0
        for j in range(block):
            total += line[j]
        totals[a * lines + u] = total


@part_of_kernel
def _prepare(layout: Layout, i: int, begin: int, end: int, weights: Floats, work: Work) -> None:
    """Multiply a clique's tables into its groups and lines begin … end, all but the message from its parent."""
    weights[begin:end] = 1.0
    for g in range(layout.clique_groups[i], layout.clique_groups[i + 1]):
        _fill(layout, g, work.group_begin[g], work.group_end[g], work.factors, 1.0)
    for link in range(layout.clique_links[i], layout.clique_links[i + 1]):
        g = layout.link_group[link]
        if link == layout.parent_link[i]:
            continue
        if g < 0:
            _weigh(layout, link, begin, end, work.cells, weights)
        else:
            _expand(layout, link, work.group_begin[g], work.group_end[g], work.cells, work.factors)


@part_of_kernel
def sum_up(layout: Layout, i: int, work: Work) -> None:
    """Sum a clique's rows onto the separator to its parent, among the messages."""
    weights = work.weights[work.line_start[i] : work.line_start[i + 1]]
    totals = work.totals[work.line_start[i] : work.line_start[i + 1]]
    begin, end = work.row_begin[i] * layout.lines[i], work.row_end[i] * layout.lines[i]
    _prepare(layout, i, begin, end, weights, work)
    upward = layout.parent_link[i]
    g = layout.link_group[upward]
    if g < 0:
        for a in range(work.row_begin[i], work.row_end[i]):
            _row(layout, i, a, weights, work.factors, work.row)
            _total_lines(layout, i, a, work.row, totals)
        _reduce_lines(layout, upward, begin, end, totals, work.messages, 1.0)
    else:
        _fill(layout, g, work.group_begin[g], work.group_end[g], work.sums, 0.0)
        for a in range(work.row_begin[i], work.row_end[i]):
            _row(layout, i, a, weights, work.factors, work.row)
            _add_row(layout, i, a, g, work.row, work.sums)
        _reduce(layout, upward, work.group_begin[g], work.group_end[g], work.sums, work.messages, 1.0)


@part_of_kernel
def send(layout: Layout, i: int, cells: Floats) -> float:
    """Scale the sums on a separator to maximum 1: the message to the parent; the maximum before is returned."""
    table = layout.link_table[layout.parent_link[i]]
    message = cells[layout.table_start[table] : layout.table_start[table + 1]]
    largest = 0.0
    for c in range(message.size):
        if message[c] > largest or np.isnan(message[c]):
            largest = message[c]
    for c in range(message.size):
        message[c] /= largest
    return largest


@part_of_kernel
def receive(layout: Layout, i: int, cells: Floats, marginals: Floats) -> None:
    """Replace a clique's message by what its parent knows beyond it: the marginal divided by the message."""
    table = layout.link_table[layout.parent_link[i]]
    for c in range(layout.table_start[table], layout.table_start[table + 1]):
        cells[c] = marginals[c] / cells[c] if cells[c] > 0.0 else 0.0


@part_of_kernel
def sum_all(layout: Layout, i: int, work: Work) -> float:
    """Sum a clique's rows onto its tables, all but the separator to its parent; return the mass before scaling."""
    weights = work.weights[work.line_start[i] : work.line_start[i + 1]]
    totals = work.totals[work.line_start[i] : work.line_start[i + 1]]
    begin, end = work.row_begin[i] * layout.lines[i], work.row_end[i] * layout.lines[i]
    upward = layout.parent_link[i]
    if upward < 0:
        _prepare(layout, i, begin, end, weights, work)
    elif layout.link_group[upward] < 0:
        _weigh(layout, upward, begin, end, work.cells, weights)
    else:
        g = layout.link_group[upward]
        _expand(layout, upward, work.group_begin[g], work.group_end[g], work.cells, work.factors)
    for g in range(layout.clique_groups[i], layout.clique_groups[i + 1]):
        _fill(layout, g, work.group_begin[g], work.group_end[g], work.sums, 0.0)
    for a in range(work.row_begin[i], work.row_end[i]):
        _row(layout, i, a, weights, work.factors, work.row)
        _total_lines(layout, i, a, work.row, totals)
        for g in range(layout.clique_groups[i], layout.clique_groups[i + 1]):
            if layout.group_wanted[g]:
                _add_row(layout, i, a, g, work.row, work.sums)
    mass: float = totals[begin:end].sum()
    scale = 1.0 / mass if mass >= SMALLEST else 0.0
    for link in range(layout.clique_links[i], layout.clique_links[i + 1]):
        g = layout.link_group[link]
        if link == upward:
            continue
        if g < 0:
            _reduce_lines(layout, link, begin, end, totals, work.marginals, scale)
        else:
            _reduce(layout, link, work.group_begin[g], work.group_end[g], work.sums, work.marginals, scale)
    return mass


@compiled
def mix(layout: Layout, i: int, mass: float, other_mass: float, marginals: Floats, other: Floats) -> float:
    """Mix another thread's marginals of a clique's tables into the first one's, by their masses; their sum."""
    both = mass + other_mass
    if both == 0.0:  # so far no thread had any rows
        return both
    for link in range(layout.clique_links[i], layout.clique_links[i + 1]):
        if link != layout.parent_link[i]:
            table = layout.link_table[link]
            for c in range(layout.table_start[table], layout.table_start[table + 1]):
                marginals[c] = marginals[c] * (mass / both) + other[c] * (other_mass / both)
    return both


@part_of_kernel
def scale_of(largest: float) -> float:
    """The logarithm of a scale, or nan where the product of tables left the range of floating point."""
    return np.log(largest) if TINY < largest < 1.0 / TINY else np.nan


@compiled
def collect(layout: Layout, begin: int, end: int, work: Work) -> float:
    """Messages from cliques end-1 … begin to their parents; the logarithm of their scales, nan out of range."""
    log_mass = 0.0
    for i in range(end - 1, begin - 1, -1):
        if layout.parent_link[i] >= 0:
            sum_up(layout, i, work)
            log_mass += scale_of(send(layout, i, work.cells))
    return log_mass


@compiled
def distribute(layout: Layout, begin: int, end: int, work: Work) -> float:
    """Marginals of cliques begin … end-1, parents first; the logarithm of the mass of roots, nan out of range."""
    log_mass = 0.0
    for i in range(begin, end):
        if layout.parent_link[i] >= 0:
            receive(layout, i, work.cells, work.marginals)
        mass = sum_all(layout, i, work)
        if layout.parent_link[i] < 0:
            log_mass += scale_of(mass)
    return log_mass


def propagate(layout: Layout, work: Work) -> float:
    """Both directions over the whole forest; the logarithm of the mass, or nan if it left the range."""
    log_mass = collect(layout, 0, layout.block.size, work)
    return log_mass if math.isnan(log_mass) else log_mass + distribute(layout, 0, layout.block.size, work)


# As kernels of their own, for passes that several threads share.
shared_sum_up = compiled(sum_up)
shared_sum_all = compiled(sum_all)
shared_send = compiled(send)
shared_receive = compiled(receive)
