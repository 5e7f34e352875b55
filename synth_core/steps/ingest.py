"""Step 1: encode the confidential source by the public schema into Parquet partitions, inside the wall."""

from __future__ import annotations

import os
import secrets
import shutil
from functools import partial
from pathlib import Path

from synth_core.privacy.wall import wall
from synth_core.release.paths import ReleasePaths
from synth_core.schema import Schema
from synth_core.steps.bought_bins import with_bought_bins
from synth_core.steps.context import StepRun
from synth_core.storage.contribution import ContributionBound
from synth_core.storage.locations import source_files
from synth_core.storage.parquet import Snapshot, ingest_partitions


def ingest(run: StepRun) -> Path:
    """Encode the source once; a release that was ingested keeps its snapshot whatever happens to the source."""
    encoded = partial(_encoded, run)
    if not run.paths.snapshot.exists():
        schema = run.schema
        snapshot = with_bought_bins(run, encoded) if schema.buying else encoded(schema, run.paths.encoded)
        snapshot.save(run.paths.snapshot)
    shutil.rmtree(run.paths.grid, ignore_errors=True)
    run.note("ingest")
    return run.paths.snapshot


def _encoded(run: StepRun, schema: Schema, target: Path) -> Snapshot:
    with wall():
        return ingest_partitions(
            source_files(run.spec.source),
            schema,
            target,
            key=snapshot_key(run.paths),
            bound=contribution_bound(run),
            cluster=run.cluster,
            progress=run.progress,
        )


def contribution_bound(run: StepRun) -> ContributionBound | None:
    """How many rows a unit may have, where the schema says which column names it."""
    if run.schema.unit_column is None:
        return None
    most = run.ledger.balance(run.spec.dataset).account.rows_per_unit
    return ContributionBound(run.schema.unit_column, most, snapshot_key(run.paths))


def snapshot_key(paths: ReleasePaths) -> bytes:
    """The secret under which snapshots are digested, made on first use and kept in the confidential zone."""
    try:
        handle = os.open(paths.snapshot_key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return paths.snapshot_key.read_bytes()
    with os.fdopen(handle, "wb") as file:
        file.write(secrets.token_bytes(32))
    return paths.snapshot_key.read_bytes()
