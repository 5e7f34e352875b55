"""A model from noisy tables that need not agree: each attribute is drawn given what an earlier table has drawn.

This is how PrivBayes turns noisy marginals into rows (Zhang et al. 2017): negative counts become 0 and tables become
conditional distributions. Nothing weighs the noise of one table against another; a graphical model does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain
from synth_core.models.junction_tree import junction_tree
from synth_core.models.markov_random_field import MarkovRandomField

Table = NDArray[np.float64]
LEAST = 1e-12
"""Probability of a cell whose noisy count is not positive, so that its logarithm exists."""


def in_turn(domain: Domain, tables: Iterable[tuple[Clique, Table]], *, total: float) -> MarkovRandomField:
    """The product of p(new attributes | attributes shared with one earlier table) over the tables, in their order.

    A table shares attributes with several earlier ones at times; then only those of the largest overlap are given,
    which keeps running intersection: no table of the model is larger than those handed in. Attributes without a table
    are uniform.
    """
    used: list[Clique] = []
    logs: list[Table] = []
    for clique, table in tables:
        given, fresh = _split(clique, used)
        if not fresh:
            continue
        kept = tuple(a for a in clique if a in given or a in fresh)
        conditional = _conditional(_summed(clique, table, kept), kept, fresh)
        used.append(kept)
        logs.append(np.log(np.maximum(conditional, LEAST)))
    potentials = np.concatenate([np.zeros(0), *(log.ravel() for log in logs)])
    return MarkovRandomField(junction_tree(domain, used), used, potentials, total=total)


def by_dependence(tables: Sequence[tuple[Clique, Table]]) -> list[tuple[Clique, Table]]:
    """The tables in the order in which each adds most: new attributes that depend most on what is already there."""
    left, ordered = list(tables), list[tuple[Clique, Table]]()
    while left:
        used = [clique for clique, _ in ordered]
        best = max(range(len(left)), key=lambda k: _gain(*left[k], used))
        ordered.append(left.pop(best))
    return ordered


def _split(clique: Clique, used: Sequence[Clique]) -> tuple[Clique, Clique]:
    known = {attribute for earlier in used for attribute in earlier}
    given = max((tuple(a for a in clique if a in earlier) for earlier in used), key=len, default=())
    return given, tuple(a for a in clique if a not in known)


def _gain(clique: Clique, table: Table, used: Sequence[Clique]) -> float:
    """Mutual information in nats between new and given attributes; of the first attribute and the rest at the start."""
    given, fresh = _split(clique, used) if used else (clique[:1], clique[1:])
    if not fresh:
        return -np.inf
    kept = tuple(a for a in clique if a in given or a in fresh)
    joint = np.maximum(_summed(clique, table, kept), 0.0) + LEAST
    joint /= joint.sum()
    new, old = (tuple(k for k, a in enumerate(kept) if (a in fresh) is side) for side in (True, False))
    product = joint.sum(axis=new, keepdims=True) * joint.sum(axis=old, keepdims=True)
    return float((joint * np.log(joint / product)).sum())


def _summed(clique: Clique, table: Table, kept: Clique) -> Table:
    return np.asarray(table.sum(axis=tuple(k for k, a in enumerate(clique) if a not in kept)))


def _conditional(table: Table, clique: Clique, fresh: Clique) -> Table:
    positive = np.maximum(table, 0.0)
    axes = tuple(k for k, a in enumerate(clique) if a in fresh)
    mass = positive.sum(axis=axes, keepdims=True)
    even = 1.0 / np.prod([table.shape[k] for k in axes])
    return np.where(mass > 0, positive / np.where(mass > 0, mass, 1.0), even)
