"""Step 1: encode the confidential source by the public schema into Parquet partitions, inside the wall."""

from __future__ import annotations

import os
import secrets
import shutil
from functools import partial
from pathlib import Path

from synth_core.release.paths import ReleasePaths
from synth_core.schema import Schema
from synth_core.steps.bought_bins import with_bought_bins
from synth_core.steps.context import StepRun
from synth_core.storage.contribution import bound_for
from synth_core.storage.fingerprints import fingerprint_files
from synth_core.storage.ingest import ingest_partitions
from synth_core.storage.locations import source_files
from synth_core.storage.partitions import Snapshot


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
    """The source as partitions in `target`; its files are the account's from then on, also if they are refused."""

    def read() -> Snapshot:
        files, key = source_files(run.spec.source), snapshot_key(run.paths)
        fingerprints = fingerprint_files(files, key=key, cluster=run.cluster)
        run.ledger.bind(run.spec.dataset, run.spec.release, files=fingerprints, runner=run.runner)
        return ingest_partitions(
            files,
            schema,
            target,
            key=key,
            bound=bound_for(schema, run.account, key),
            cluster=run.cluster,
            progress=run.progress,
        )

    return run.read("ingest", read)


def snapshot_key(paths: ReleasePaths) -> bytes:
    """The secret under which snapshots are digested, made on first use and kept in the confidential zone."""
    try:
        handle = os.open(paths.snapshot_key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return paths.snapshot_key.read_bytes()
    with os.fdopen(handle, "wb") as file:
        file.write(secrets.token_bytes(32))
    return paths.snapshot_key.read_bytes()
