"""Many tables of a release at once: each model is asked for all of them, and forgotten before the next.

A calibrated model holds as many cells as its junction tree, so that a dozen of them would fill a machine. Tables
inside one clique of the tree share partial sums. The others are summed out one by one, each over the whole tree: the
first of them as long as that is little work, and for the rest the rows of a sample of the model are counted, as
`expected.sampled_counts` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Floats
from synth_core.domain import Clique
from synth_core.inference.expected import SAMPLE_SEED, expected_counts, table_codes
from synth_core.inference.replicates import Replicates
from synth_core.inference.uncertain import Uncertain, UncertainTable
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.mixture import Mixture, Model
from synth_core.models.refined import Refined
from synth_core.storage.counting import count_codes

SUMMED_CELLS = 10_000_000
"""Cells that a model goes through for tables outside its cliques: each such table costs the cells of the whole tree."""
LEAST_CELLS = 100_000
"""Cells of a tree below which the work of a table is no less."""
ROWS = 200_000
"""Rows of the sample that is counted where the tree is larger; more than those that are chosen to be representative."""

Counted: TypeAlias = NDArray[Any]
"""Counts of one table in single precision: a replicate's are known to three digits at best."""


class ExpectedTables(NamedTuple):
    """Expected counts of some tables by one model, and whether each was counted in a sample."""

    counts: list[Floats]
    sampled: list[bool]


Each: TypeAlias = Callable[..., Iterable[list[Counted]]]
"""Calls a function for each of some jobs, with further arguments by name, perhaps at once on several workers."""


def in_turn(function: Callable[..., list[Counted]], jobs: Sequence[Any], /, **known: Any) -> Iterator[list[Counted]]:
    """Call the function here, for one job after the other."""
    return (function(job, **known) for job in jobs)


def uncertain_tables(uncertain: Uncertain, cliques: Sequence[Clique], *, each: Each = in_turn) -> list[UncertainTable]:
    """Expected counts of many tables, with their errors.

    Args:
        uncertain: a model with its replicates.
        cliques: columns of each table, in the order of its axes.
        each: how the replicates are gone through.

    Returns:
        One table for each; those that span cliques of a large model are counted in a sample, with that error, and those
        inside a measured table are read off what is stored of it.
    """
    stored = [uncertain.stored(clique) for clique in cliques]
    rest = [clique for clique, known in zip(cliques, stored, strict=True) if known is None]
    others = iter(_summed_out(uncertain, rest, each) if rest else ())
    return [known if known is not None else next(others) for known in stored]


def _summed_out(uncertain: Uncertain, cliques: Sequence[Clique], each: Each) -> list[UncertainTable]:
    """Tables that each model has to be asked for."""
    own = expected_tables(uncertain.model, cliques)
    draws: list[list[Counted]] = [[] for _ in cliques]
    replicates = uncertain.replicates
    singles = [replicates.single(number) for number in range(uncertain.affordable)] if replicates else []
    for found in each(replicate_tables, singles, model=uncertain.model, cliques=tuple(cliques)):
        for kept, counts in zip(draws, found, strict=True):
            kept.append(counts)
    tables = []
    for clique, counts, sampled, own_draws in zip(cliques, own.counts, own.sampled, draws, strict=True):
        measured = uncertain.measured(clique)
        variance = uncertain.modelled_variance(measured=measured) + (uncertain.model.total / ROWS) * sampled
        extra = np.maximum(counts, 0.0) * variance
        tables.append(UncertainTable(clique, counts, _stacked(own_draws, counts.shape), extra, measured, sampled))
    return tables


def replicate_tables(single: Replicates, *, model: Model, cliques: Sequence[Clique]) -> list[Counted]:
    """Tables of one replicate, which is made here and forgotten; runs on a worker."""
    (one,) = single.models(model)
    return [counts.astype(np.float32) for counts in expected_tables(one, cliques).counts]


def _stacked(kept: Sequence[Counted], shape: tuple[int, ...]) -> Counted:
    return np.array(kept, dtype=np.float32).reshape(len(kept), *shape)


def expected_tables(model: Model, cliques: Sequence[Clique]) -> ExpectedTables:
    """Expected counts of many tables by one model.

    Args:
        model: any stored model.
        cliques: columns of each table, in the order of its axes.

    Returns:
        The counts in the order of the cliques.
    """
    if isinstance(model, Mixture):
        return _of_mixture(model, cliques)
    if not isinstance(model, MarkovRandomField | Refined):
        return ExpectedTables([expected_counts(model, clique, {}) for clique in cliques], [False] * len(cliques))
    tree = (model.field if isinstance(model, Refined) else model).tree
    hosted = [tree.host(model.domain.clique(clique)) is not None for clique in cliques]
    left = SUMMED_CELLS // max(LEAST_CELLS, sum(map(tree.domain.cells, tree.cliques)))
    outside = np.cumsum([not inside for inside in hosted])
    direct = [inside or number <= left for inside, number in zip(hosted, outside, strict=True)]
    exact = iter(model.marginals([clique for clique, near in zip(cliques, direct, strict=True) if near]))
    far = [clique for clique, near in zip(cliques, direct, strict=True) if not near]
    sampled = iter(_sampled(model, far) if far else ())
    return ExpectedTables([next(exact if near else sampled) for near in direct], [not near for near in direct])


def _sampled(model: MarkovRandomField | Refined, cliques: Sequence[Clique]) -> Iterator[Floats]:
    """Counts of the rows of a sample, scaled to the model's total."""
    rows = model.sample(ROWS, np.random.default_rng(SAMPLE_SEED))
    codes = {name: np.ascontiguousarray(rows[:, place]) for place, name in enumerate(model.domain)}
    counted = count_codes(codes, model.domain, cliques)
    return (np.asarray(counts * (model.total / ROWS), dtype=np.float64) for counts in counted)


def _of_mixture(model: Mixture, cliques: Sequence[Clique]) -> ExpectedTables:
    """The sums over the parts."""
    counts, sampled = [np.zeros(model.domain.shape(clique)) for clique in cliques], [False] * len(cliques)
    for part in model.components:
        inside = [tuple(name for name in clique if name not in part.constants) for clique in cliques]
        found = expected_tables(part.model, inside)
        for number, clique in enumerate(cliques):
            share = found.counts[number] * (part.rows / part.model.total)
            places = [table_codes(model, part, name) for name in clique]
            counts[number][np.ix_(*places)] += share.reshape([len(place) for place in places])
            sampled[number] |= found.sampled[number]
    return ExpectedTables(counts, sampled)
