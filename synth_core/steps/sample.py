"""Step 5: draw the synthetic table from the model, shard by shard.

Drawing rows is post-processing: it is seeded by the spec's seed and the shard's number, so a shard is the same
whichever worker draws it, whenever, beside however many others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from synth_core.domain import Codes
from synth_core.errors import SpecError
from synth_core.files import atomic_write, escape_formula
from synth_core.inference.replicates import Replicates
from synth_core.models.households import HouseholdModel
from synth_core.models.mixture import Mixture, Model, load_model
from synth_core.release.spec import ReleaseSpec
from synth_core.schema import Schema
from synth_core.schema.codec import decode_table
from synth_core.steps.context import StepRun
from synth_core.synthesizers.household_rows import draw_tables
from synth_core.synthesizers.moments import read_moments
from synth_core.synthesizers.pooled_numbers import pool_numbers

BLOCK_ROWS = 1_000_000
"""Rows drawn, decoded and written at once: bounds the memory of a worker whatever the size of its shard."""

CSV = pa_csv.WriteOptions(quoting_style="needed")
PARQUET: dict[str, Any] = {"compression": "zstd", "store_schema": False, "write_statistics": False}
"""Without Arrow's own schema, dictionary-encoded text reads back as plain text everywhere; statistics of made-up rows
are worth nothing and take a third of the time."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that a worker needs to write any shard: public addresses and numbers."""

    model: Path
    schema: Path
    release: str
    rows: Literal["noisy"] | int
    shards: int
    seed: int
    csv_folder: Path | None = None
    escape_formulas: bool = False
    moments: Path | None = None
    replicates: Path = Path("replicates.npz")
    linked: bool = False


def sample(run: StepRun) -> Path:
    """Write all shards, in parallel where the cluster has workers."""
    numbers = range(run.spec.table_files)
    run.cluster.map(write_shard, [_job(run, number) for number in numbers], recipe=_recipe(run))
    for number in numbers:
        run.note("sample", f"shard {number} written")
    return run.paths.extract


def sample_one(run: StepRun, task: int) -> Path:
    """Write the shards of one task, of the extract or of replicate tables."""
    recipe = _recipe(run)
    for number in files_of_task(run.spec, task):
        write_shard(_job(run, number), recipe=recipe)
        run.note("sample", f"shard {number} written")
    return run.paths.table_file(task, run.spec.shards)


def files_of_task(spec: ReleaseSpec, task: int) -> range:
    """Returns the numbers of the files that a task writes: its own, and as many tasks further on."""
    return range(task, spec.table_files, spec.sampling_tasks)


def _job(run: StepRun, number: int) -> tuple[int, Path]:
    return number, run.paths.table_file(number, run.spec.shards)


def write_shard(job: tuple[int, Path], *, recipe: Recipe) -> Path:
    """Draw, decode and write one shard, a block of rows at a time; runs on a worker.

    The shards of the extract come first; the others are those of replicate tables, each drawn from its own model and as
    long as that says. A shard of two linked tables has whole households and their people, each table in a folder of its
    own beside the address.
    """
    table, number = divmod(job[0], recipe.shards)
    address = job[1]
    blocks = _household_blocks(recipe, number) if recipe.linked else _row_blocks(recipe, table, number)
    first = next(blocks)
    with ExitStack() as files:
        writers = {}
        for name, rows in first.items():
            own = address.parent / name / address.name
            writers[name] = _writers(files, own, rows.schema, recipe, name, csv=not table)
        for block in chain([first], blocks):
            for name, rows in block.items():
                for write in writers[name]:
                    write(rows)
    return address


def _writers(
    files: ExitStack, address: Path, fields: pa.Schema, recipe: Recipe, name: str, *, csv: bool
) -> list[Callable[[pa.Table], None]]:
    """What writes blocks of rows to one shard of a table, as Parquet and, where the spec asks for it, as CSV."""
    address.parent.mkdir(parents=True, exist_ok=True)
    parquet = files.enter_context(pq.ParquetWriter(files.enter_context(atomic_write(address)), fields, **PARQUET))
    parquet.add_key_value_metadata({"synthetic.release": recipe.release})

    def write_group(rows: pa.Table) -> None:
        parquet.write_table(rows, row_group_size=max(1, len(rows)))  # of linked tables: whole households in each

    if not recipe.csv_folder or not csv:
        return [write_group]
    folder = recipe.csv_folder / name
    folder.mkdir(parents=True, exist_ok=True)
    text = files.enter_context(atomic_write(folder / f"{address.stem}.csv"))
    also = files.enter_context(pa_csv.CSVWriter(text, fields, write_options=CSV))
    return [write_group, lambda rows: also.write_table(_escaped(rows) if recipe.escape_formulas else rows)]


def _household_blocks(recipe: Recipe, number: int) -> Iterator[dict[str, pa.Table]]:
    """The households of one shard, some at a time; their names follow those of the shards before."""
    model = HouseholdModel.load(recipe.model)
    total = max(1, round(model.total)) if recipe.rows == "noisy" else recipe.rows
    before, rest = divmod(total, recipe.shards)
    rng = np.random.default_rng([recipe.seed, number])
    own = rows_of_shard(total, shards=recipe.shards, number=number)
    return draw_tables(model, own, rng, first=1 + number * before + min(number, rest))


def _row_blocks(recipe: Recipe, table: int, number: int) -> Iterator[dict[str, pa.Table]]:
    """The rows of one shard of a table, a block at a time."""
    model = _table_model(recipe, table)
    total = max(1, round(model.total)) if recipe.rows == "noisy" else recipe.rows
    rng = np.random.default_rng([recipe.seed, number, *([table] if table else [])])
    schema = Schema.load(recipe.schema)
    numbers = pool_numbers(schema, model.marginal, read_moments(recipe.moments) if recipe.moments else {})
    drawn = _drawn(model, total, rng, recipe=recipe, number=number)
    rows = (numbers.exchange_rows(codes, schema.domain, rng) for codes in drawn)
    return ({"": decode_table(codes, schema, rng, numbers.densities)} for codes in rows)


def _table_model(recipe: Recipe, table: int) -> Model:
    """The model of one table: the release's own, or for a replicate table that replicate's."""
    model = load_model(recipe.model)
    if not table:
        return model
    replicates = Replicates.load(recipe.replicates) if recipe.replicates.exists() else None
    if replicates is None or len(replicates) < table:
        raise SpecError(
            f"release {recipe.release!r} has {len(replicates or ())} replicates of its model, too few for a replicate "
            f"table {table}; lower replicates"
        )
    (one,) = replicates.single(table - 1).models(model)
    return one


def _escaped(table: pa.Table) -> pa.Table:
    """The table with every text that is a formula escaped; text comes as dictionaries of the declared values."""
    columns = []
    for column in table.columns:
        if pa.types.is_dictionary(column.type):
            chunks = [
                pa.DictionaryArray.from_arrays(
                    chunk.indices, pa.array(map(escape_formula, chunk.dictionary.to_pylist()), pa.string())
                )
                for chunk in column.chunks
            ]
            column = pa.chunked_array(chunks, column.type)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=table.schema)


def _drawn(model: Model, total: int, rng: np.random.Generator, *, recipe: Recipe, number: int) -> Iterator[Codes]:
    """The shard's rows in blocks, each with little variance; one after the other from the shard's own generator."""
    rows = rows_of_shard(total, shards=recipe.shards, number=number)
    if isinstance(model, Mixture):
        blocks = max(1, -(-rows // BLOCK_ROWS))
        for block in range(blocks):  # a smaller shard: one of every `blocks` rows of this one
            own = number + recipe.shards * block
            yield model.sample_shard(total, rng, shards=recipe.shards * blocks, number=own)
        return
    for start in range(0, max(rows, 1), BLOCK_ROWS):
        yield model.sample(min(BLOCK_ROWS, rows - start), rng)


def rows_of_shard(total: int, *, shards: int, number: int) -> int:
    """Rows of one shard: equal parts, the first ones take the remainder."""
    return total // shards + (number < total % shards)


def _recipe(run: StepRun) -> Recipe:
    spec, paths = run.spec, run.paths
    folder = paths.csv_extract if spec.csv else None
    numbers = (spec.rows, spec.shards, spec.seed)
    return Recipe(
        paths.model,
        paths.schema,
        spec.release,
        *numbers,
        csv_folder=folder,
        escape_formulas=spec.escape_formulas,
        moments=paths.moments,
        replicates=paths.replicates,
        linked=spec.linked,
    )
