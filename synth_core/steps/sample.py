"""Step 5: draw the synthetic table from the model, shard by shard.

Drawing rows is post-processing: it is seeded by the spec's seed and the shard's number, so a shard is the same
whoever draws it, whenever, beside however many others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow.parquet as pq

from synth_core.codec import decode_table
from synth_core.models.mixture import Mixture
from synth_core.schema import Schema
from synth_core.steps.context import StepRun
from synth_core.storage.files import atomic_write
from synth_core.synthesizers.saved import load_model


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that a worker needs to write any shard: public addresses and numbers."""

    model: Path
    schema: Path
    release: str
    rows: Literal["noisy"] | int
    shards: int
    seed: int


def sample(run: StepRun) -> Path:
    """Write all shards, in parallel where the cluster has workers."""
    jobs = [(number, run.paths.shard(number)) for number in range(run.spec.shards)]
    run.cluster.map(write_shard, jobs, recipe=_recipe(run))
    for number, _ in jobs:
        run.note("sample", f"shard {number} written")
    return run.paths.extract


def sample_one(run: StepRun, number: int) -> Path:
    """Write one shard."""
    address = write_shard((number, run.paths.shard(number)), recipe=_recipe(run))
    run.note("sample", f"shard {number} written")
    return address


def write_shard(job: tuple[int, Path], *, recipe: Recipe) -> Path:
    """Draw, decode and write one shard; runs on a worker."""
    number, address = job
    model = load_model(recipe.model)
    total = max(1, round(model.total)) if recipe.rows == "noisy" else recipe.rows
    rng = np.random.default_rng([recipe.seed, number])
    if isinstance(model, Mixture):
        codes = model.sample_shard(total, rng, shards=recipe.shards, number=number)
    else:
        codes = model.sample(rows_of_shard(total, shards=recipe.shards, number=number), rng)
    table = decode_table(codes, Schema.load(recipe.schema), rng)
    # Without Arrow's own schema, dictionary-encoded text reads back as plain text everywhere.
    with (
        atomic_write(address) as temporary,
        pq.ParquetWriter(temporary, table.schema, compression="zstd", store_schema=False) as writer,
    ):
        writer.write_table(table)
        writer.add_key_value_metadata({"synthetic.release": recipe.release})
    return address


def rows_of_shard(total: int, *, shards: int, number: int) -> int:
    """Rows of one shard: equal parts, the first ones take the remainder."""
    return total // shards + (number < total % shards)


def _recipe(run: StepRun) -> Recipe:
    spec = run.spec
    return Recipe(run.paths.model, run.paths.schema, spec.release, spec.rows, spec.shards, spec.seed)
