"""Variable elimination: sum a product of tables over all attributes but a few."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from synth_core.domain import Clique
from synth_core.errors import FeasibilityError
from synth_core.models.calibration import Table
from synth_core.models.junction_tree import JunctionTree

LARGEST_TABLE = 2**28
"""Cells of the largest intermediate table (2 GiB); einsum letters are not the limit before this is."""


def eliminate_variables(tables: Sequence[Table], keep: Iterable[str], sizes: Mapping[str, int]) -> Table:
    """The product of the tables summed over every attribute that is not kept, smallest intermediate first.

    Values may be negative.
    """
    kept = tuple(keep)
    pool = list(tables)
    pending = {a for table in pool for a in table.clique} - set(kept)
    while pending:
        attribute = min(pending, key=lambda a: (math.prod(sizes[b] for b in _around(pool, a)), a))
        scope = _around(pool, attribute) - {attribute}
        _check(scope, sizes)
        bucket = [table for table in pool if attribute in table.clique]
        pool = [table for table in pool if attribute not in table.clique]
        pool.append(contract(bucket, tuple(sorted(scope))))
        pending.discard(attribute)
    _check(kept, sizes)
    return contract(pool, kept)


def _around(tables: Sequence[Table], attribute: str) -> set[str]:
    return {a for table in tables if attribute in table.clique for a in table.clique}


def _check(scope: Iterable[str], sizes: Mapping[str, int]) -> None:
    cells = math.prod(sizes[a] for a in scope)
    if cells > LARGEST_TABLE:
        raise FeasibilityError(
            f"a table over {', '.join(sorted(scope))} would need {cells:,} cells; ask for fewer attributes at once"
        )


def contract(operands: Sequence[Table], output: Clique) -> Table:
    """Multiply numpy tables and sum out every attribute the output lacks."""
    letters = {a: k for k, a in enumerate(dict.fromkeys(a for t in operands for a in t.clique))}
    if not operands:
        return Table(output, np.ones(()))
    terms: list[Any] = []
    for table in operands:
        terms += [table.values, [letters[a] for a in table.clique]]
    return Table(output, np.einsum(*terms, [letters[a] for a in output], optimize=True))


def conditionals(tree: JunctionTree, beliefs: Sequence[Table], *, keep: set[str]) -> list[Table]:
    """Tables whose product, summed over the attributes not kept, is the kept attributes' distribution.

    Below the smallest subtree that holds the kept attributes everything sums to 1 and is left out; its top enters
    as a marginal and every other clique as a conditional given its separator.
    """
    needed: set[int] = set()
    for i in reversed(range(len(tree.cliques))):
        own = set(tree.cliques[i]) - set(tree.separator(i))
        if own & keep:
            needed.add(i)
        if i in needed and tree.parents[i] >= 0:
            needed.add(tree.parents[i])
    tops = [i for i in sorted(needed) if tree.parents[i] not in needed]
    for top in tops:
        _descend(tree, top, needed, keep)
    tables = []
    for i in sorted(needed):
        belief = beliefs[i]
        if tree.parents[i] in needed:
            axes = tuple(k for k, a in enumerate(belief.clique) if a not in tree.separator(i))
            given = belief.values.sum(axis=axes, keepdims=True)
            belief = Table(
                belief.clique,
                np.divide(belief.values, given, out=np.zeros_like(belief.values), where=given > 0),
            )
        tables.append(belief)
    return tables


def _descend(tree: JunctionTree, top: int, needed: set[int], keep: set[str]) -> None:
    """Drop the top while all it contributes to the kept attributes is also in its only needed child."""
    while True:
        children = [i for i in needed if tree.parents[i] == top]
        if len(children) != 1 or not (keep & set(tree.cliques[top])) <= set(tree.cliques[children[0]]):
            return
        needed.discard(top)
        top = children[0]
