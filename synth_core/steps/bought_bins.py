"""Bins that a release buys: a noisy histogram over a public grid says where their edges lie.

The rows are encoded on the grid, the grid's one-way tables are measured by the curator like any others, the edges
follow from the noisy answers, and the rows get the codes of the bins. All but the measuring is post-processing or
happens inside the confidential zone. Each stage leaves something behind, the answer in the ledger, so a retry draws
nothing anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synth_core.files import atomic_write
from synth_core.privacy.curator import Curator, LedgerCurator, Spending
from synth_core.schema import Schema
from synth_core.schema.columns import Integer, Real
from synth_core.steps.context import StepRun
from synth_core.storage.counting import PartitionCounts
from synth_core.storage.ingest import coarsen_partitions
from synth_core.storage.partitions import Snapshot

PURPOSE = "histograms that decide bins"


def with_bought_bins(run: StepRun, encoded: Callable[[Schema, Path], Snapshot]) -> Snapshot:
    """Encode the source on the grid, buy the bins, and leave rows and schema with these.

    The snapshot keeps the digest of the rows on the grid, which does not depend on noise.
    """
    schema, paths = run.schema.on_grid, run.paths
    if not paths.grid_snapshot.exists():
        encoded(schema, paths.grid).save(paths.grid_snapshot)
    snapshot = Snapshot.load(paths.grid_snapshot)
    partitions = [paths.grid / name for name in snapshot.partitions]
    run.progress(f"buying the bins of {', '.join(schema.buying)}")
    final = schema.with_bought(_bought_edges(_curator(run, schema, snapshot, partitions), run, schema))
    groups = {
        fine.name: _groups(fine, coarse) for fine, coarse in zip(schema.buyers, final.buyers, strict=True)
    }
    coarsen_partitions(partitions, paths.encoded, groups=groups, cluster=run.cluster)
    with atomic_write(paths.schema) as temporary:
        final.save(temporary)
    return snapshot


def quantile_edges(
    edges: Sequence[Any], noisy: NDArray[np.float64], *, sigma: float, bins: int, tails: float
) -> tuple[Any, ...]:
    """Those of the edges that cut a noisy histogram into about equal parts, without a share of `tails` at each end.

    The sums of noisy counts from the left are a random walk around the true ones, which never fall: the nearest
    sequence that never falls is taken instead (isotonic regression). Each quantile becomes the nearest edge, so a cell
    that holds several of them is a bin by itself, and there are fewer bins. Tails are at least what noise may feign:
    two standard deviations of the sum of half of the cells. Where that is nearly all there is, bins are of equal width.
    """
    from scipy.optimize import isotonic_regression  # takes longer to import than most steps take

    sums = isotonic_regression(np.concatenate([[0.0], np.cumsum(noisy)])).x
    total, cells = sums[-1] - sums[0], len(noisy)
    feigned = 2 * sigma * math.sqrt(cells / 2)
    if total <= 4 * feigned:
        return tuple(edges[i * cells // bins] for i in range(bins + 1))
    parts, cut = (sums - sums[0]) / total, max(tails, feigned / total)
    first, last = np.searchsorted(parts, cut, side="right") - 1, np.searchsorted(parts, 1 - cut)
    wanted = np.arange(1, bins) / bins
    after = np.searchsorted(parts, wanted)
    nearest = np.where(wanted - parts[after - 1] < parts[after] - wanted, after - 1, after)
    return tuple(edges[place] for place in sorted({first, *np.clip(nearest, first, last), last}))


def _curator(run: StepRun, schema: Schema, snapshot: Snapshot, partitions: list[Path]) -> LedgerCurator:
    spending = Spending(
        dataset=run.spec.dataset,
        snapshot=snapshot.digest,
        release=run.spec.release,
        step="ingest",
        runner=run.runner,
    )
    counts = PartitionCounts(partitions, schema.domain, run.cluster)
    return LedgerCurator(counts=counts, ledger=run.ledger, spending=spending)


def _bought_edges(curator: Curator, run: StepRun, schema: Schema) -> dict[str, tuple[Any, ...]]:
    """Buy one histogram for each column; its edges are what the noisy answer says."""
    budget = run.budget.bins
    answers = curator.measure([(name,) for name in schema.buying], budget, purpose=PURPOSE)
    return {
        column.name: quantile_edges(
            column.grid_edges,
            answer.noisy[: column.declared],
            sigma=answer.sigma,
            bins=column.quantiles.private_quantiles,
            tails=column.quantiles.tails,
        )
        for column, answer in zip(schema.buyers, answers, strict=True)
    }


def _groups(fine: Integer | Real, coarse: Integer | Real) -> NDArray[Any]:
    """The coarse code of each fine one; codes beyond the bins keep their order."""
    inside = np.searchsorted(coarse.edges, fine.edges[:-1], side="right") - 1
    inside = inside.clip(0, coarse.declared - 1)
    beyond = np.arange(coarse.declared, coarse.size)
    return np.concatenate([inside, beyond]).astype(coarse.dtype)
