"""Step 1: encode the confidential source by the public schema into Parquet partitions, inside the wall.

Where a schema leaves bins open, a noisy histogram over a public grid says where their edges lie: the rows are encoded
on the grid, the grid's one-way tables are measured by the curator like any others, the edges follow from the noisy
answers, and the rows get the codes of the bins. All but the measuring is post-processing or happens inside the
confidential zone. Each stage leaves something behind, the answer in the ledger, so a retry draws nothing anew.
"""

from __future__ import annotations

import math
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synth_core.errors import SpecError
from synth_core.files import atomic_write, write_once
from synth_core.names import SNAPSHOT_KEY
from synth_core.privacy.curator import Curator
from synth_core.release.paths import ReleasePaths
from synth_core.schema import DeclaredSchema, Schema
from synth_core.schema.columns.numbers import NumberBase
from synth_core.schema.linked import AnySchema, LinkedSchema
from synth_core.steps.context import StepRun
from synth_core.storage.contribution import bound_for
from synth_core.storage.counting import PartitionCounts
from synth_core.storage.household_partitions import ingest_households
from synth_core.storage.ingest import MIN_KEY_BYTES, Snapshot, coarsen_partitions, fingerprint_files, ingest_partitions
from synth_core.storage.locations import source_files

PURPOSE = "histograms that decide bins"
"""What the ledger says such histograms are for."""


def ingest(run: StepRun) -> Path:
    """Encode the source once; a release that was ingested keeps its snapshot whatever happens to the source."""
    if not run.paths.snapshot.exists():
        declared = run.declared
        if isinstance(declared, DeclaredSchema) and declared.private_bin_columns:
            snapshot = _with_bought_bins(run, declared.declaration)
        else:
            snapshot = _encoded(run, declared, run.paths.encoded)
        snapshot.save(run.paths.snapshot)
    shutil.rmtree(run.paths.grid, ignore_errors=True)
    run.note("ingest")
    return run.paths.snapshot


def _encoded(run: StepRun, schema: AnySchema, target: Path) -> Snapshot:
    """The source as partitions in `target`; its files are the account's from then on, also if they are refused."""
    key = snapshot_key(run.paths)

    def read() -> Snapshot:
        files = {table: source_files(own) for table, own in run.spec.sources.items()}
        every = [address for own in files.values() for address in own]
        fingerprints = fingerprint_files(every, key=key, cluster=run.cluster)
        run.ledger.bind(run.spec.dataset, run.spec.release, files=fingerprints, runner=run.runner)
        more: dict[str, Any] = {"key": key, "cluster": run.cluster, "progress": run.progress}
        if isinstance(schema, LinkedSchema):
            return ingest_households(files, schema, target, **more)
        whole = schema.resolve()
        return ingest_partitions(every, whole, target, bound=bound_for(whole, run.account, key), **more)

    return run.read("ingest", read)


def snapshot_key(paths: ReleasePaths) -> bytes:
    """The secret under which snapshots are digested, made on first use and kept in the confidential zone."""
    path = paths.key(SNAPSHOT_KEY)
    key = path.read_bytes() if path.exists() else write_once(path, secrets.token_bytes(32))
    if len(key) < MIN_KEY_BYTES:  # a full disk cut short what earlier versions wrote
        raise SpecError(f"{path} is no whole key; restore it or, if nothing was ever ingested here, remove it")
    return key


def _with_bought_bins(run: StepRun, declared: DeclaredSchema) -> Snapshot:
    """Encode the source on the grid, buy the bins, and leave rows and schema with these.

    The snapshot keeps the digest of the rows on the grid, which does not depend on noise.
    """
    paths, schema = run.paths, declared.on_grid
    if not paths.grid_snapshot.exists():
        _encoded(run, schema, paths.grid).save(paths.grid_snapshot)
    snapshot = Snapshot.load(paths.grid_snapshot)
    partitions = [paths.grid / name for name in snapshot.partitions]
    run.progress(f"buying the bins of {', '.join(schema.private_bin_columns)}")
    counts = PartitionCounts(partitions, schema.domain, run.cluster)
    curator = Curator(counts=counts, ledger=run.ledger, spending=run.spending("ingest", snapshot))
    final = declared.resolve(_bought_edges(curator, run, schema))
    columns = list(zip(schema.private_columns, final.private_columns, strict=True))
    groups = {fine.name: _groups(fine, coarse) for fine, coarse in columns}
    coarsen_partitions(partitions, paths.encoded, groups=groups, columns=columns, cluster=run.cluster)
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


def _bought_edges(curator: Curator, run: StepRun, schema: Schema) -> dict[str, tuple[Any, ...]]:
    """Buy one histogram for each column; its edges are what the noisy answer says."""
    budget = run.budget.bins
    answers = curator.measure([(name,) for name in schema.private_bin_columns], budget, purpose=PURPOSE)
    return {
        column.name: quantile_edges(
            column.grid_edges,
            answer.noisy[: column.declared],
            sigma=answer.sigma,
            bins=column.quantiles.private_quantiles,
            tails=column.quantiles.tails,
        )
        for column, answer in zip(schema.private_columns, answers, strict=True)
    }


def _groups(fine: NumberBase, coarse: NumberBase) -> NDArray[Any]:
    """The coarse code of each fine one; codes beyond the bins keep their order."""
    inside = np.searchsorted(coarse.edges, fine.edges[:-1], side="right") - 1
    inside = inside.clip(0, coarse.declared - 1)
    beyond = np.arange(coarse.declared, coarse.size)
    return np.concatenate([inside, beyond]).astype(coarse.dtype)
