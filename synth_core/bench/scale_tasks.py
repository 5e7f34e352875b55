"""What one part of a release costs at one size, on a made-up census table that is the same for the same numbers.

Each task runs in a process of its own, so its memory is its own.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from synth_core.bench.scale import Task
from synth_core.cluster import Cluster
from synth_core.domain import Clique, Codes, Domain
from synth_core.ledger.sql import open_ledger
from synth_core.models.junction_tree import junction_tree
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.privacy.accounts import Account
from synth_core.schema import Schema
from synth_core.schema.codec import decode_table
from synth_core.steps import STEPS, conversation, prepare, run_step
from synth_core.steps.replicates import write_replicates
from synth_core.steps.sample import CSV, Recipe, write_shard
from synth_core.storage.counting import PartitionCounts, count_codes, count_partitions
from synth_core.storage.ingest import ingest_partitions

SAMPLE_ROWS = 1_000_000
"""Rows on which other ways to count are timed; their cost for a row does not depend on the number of rows."""

SHARD_ROWS = 1_000_000
"""Rows of one shard."""
PASSES = 12
"""Passes over the data by each number of workers, in turn: the first one warms up."""

BLOCK_ROWS = 250_000
"""Rows generated at once."""
COLUMNS: tuple[dict[str, Any], ...] = (
    {"name": "age", "kind": "integer", "bounds": [0, 99], "bins": 20},
    {"name": "class_of_worker", "values": 9},
    {"name": "education", "values": 16},
    {"name": "marital", "values": 7},
    {"name": "occupation", "values": 15},
    {"name": "relation", "values": 6},
    {"name": "ancestry", "values": 5},
    {"name": "sex", "values": 2},
    {"name": "birthplace", "values": 42},
    {"name": "hours", "kind": "integer", "bounds": [0, 79], "bins": 16},
    {"name": "income", "kind": "integer", "bounds": [0, 49_999], "bins": 20},
    {"name": "rent", "kind": "integer", "bounds": [0, 1999], "bins": 10},
    {"name": "tenure", "values": 5},
    {"name": "veteran", "values": 2},
    {"name": "vehicles", "values": 4},
)
"""The first fifteen columns, of sizes like those of the Adult table; wider tables repeat them."""


Values = dict[str, float]


def counting(task: Task, _: Path) -> Values:
    """All pairs in memory, one thread; np.bincount and np.histogramdd on some of the pairs and rows."""
    codes, domain = _table(task)
    pairs = list(combinations(domain, 2))
    count_codes({name: column[:1000] for name, column in codes.items()}, domain, pairs)
    seconds = min(_cpu(lambda: count_codes(codes, domain, pairs)) for _ in range(3))
    some = {name: column[:SAMPLE_ROWS] for name, column in codes.items()}
    rows = len(next(iter(some.values())))
    few = pairs[:: max(1, len(pairs) // 40)]
    by_bincount = min(_cpu(lambda: [_bincount(some, domain, pair) for pair in few]) for _ in range(3))
    fewer = few[:: max(1, len(few) // 4)]
    by_histogram = _cpu(lambda: [_histogram(some, domain, pair) for pair in fewer])
    mine = task.rows * len(pairs) / seconds
    others = rows * len(few) / by_bincount, rows * len(fewer) / by_histogram
    return {
        "cpu_s": seconds,
        "row_pairs_per_s": mine,
        "times_bincount": mine / others[0],
        "times_histogramdd": mine / others[1],
    }


def counting_on_workers(task: Task, folder: Path) -> Values:
    """All pairs of Parquet partitions on Dask workers of one thread each, and on one alone in turn; the best passes."""
    schema, source = census_schema(task.columns), _source(task, folder)
    pairs = list(combinations(schema.domain, 2))
    with TemporaryDirectory(dir=folder) as site, _workers(1) as one, _workers(task.workers) as many:
        snapshot = ingest_partitions([source], schema, Path(site) / "encoded", key=bytes(32))
        paths = [Path(site) / "encoded" / name for name in snapshot.partitions]
        walls: dict[Cluster, list[float]] = {one: [], many: []}
        busiest: dict[Cluster, list[float]] = {one: [], many: []}
        apart: dict[Cluster, list[float]] = {one: [], many: []}
        for place in (one, many) * PASSES:
            apart[place].append(_apart(place, [str(path) for path in paths], schema.domain, pairs))
            counts = PartitionCounts(paths, schema.domain, place)
            before = place.on_each_worker(time.process_time)
            walls[place].append(_wall(lambda counts=counts: counts.tables(pairs)))  # type: ignore[misc]
            after = place.on_each_worker(time.process_time)
            busiest[place].append(max(after[worker] - cpu for worker, cpu in before.items()))
    seconds = min(walls[many])
    return {
        "wall_s": seconds,
        "row_pairs_per_s": task.rows * len(pairs) / seconds,
        "times_one_worker": min(walls[one]) / seconds,
        "times_one_worker_cpu": min(busiest[one]) / min(busiest[many]),
        "times_one_worker_apart": min(apart[one]) / min(apart[many]),
    }


def _apart(place: Cluster, paths: Sequence[str], domain: Domain, pairs: Sequence[Clique]) -> float:
    """Seconds of the slowest worker if each counts its share in one go and sends nothing: what the machine allows."""
    workers = len(place.on_each_worker(os.getpid))
    shares = [paths[at::workers] for at in range(workers)]
    return max(place.map(_count_alone, shares, domain=domain, pairs=pairs))


def _count_alone(paths: Sequence[str], *, domain: Domain, pairs: Sequence[Clique]) -> float:
    return _wall(lambda: count_partitions(paths, domain=domain, cliques=tuple(pairs)))


@contextmanager
def _workers(count: int) -> Iterator[Cluster]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None) as local,
        Client(local, set_as_default=False) as client,
    ):
        yield Cluster(client)


def ingest(task: Task, folder: Path) -> Values:
    """A CSV file to encoded partitions, by the threads of one process."""
    source, schema = _source(task, folder), census_schema(task.columns)
    with TemporaryDirectory(dir=folder) as site:
        few = _source(Task(part="ingest", rows=1000, columns=task.columns), folder)
        ingest_partitions([few], schema, Path(site) / "first", key=bytes(32))
        with _clock() as values:
            ingest_partitions([source], schema, Path(site) / "encoded", key=bytes(32))
    return values | {"rows_per_s": task.rows / values["wall_s"]}


def reading(task: Task, folder: Path) -> Values:
    """The same file, only read: by Arrow, into memory, by as many threads."""
    source = _source(task, folder)
    with _clock() as values:
        pa_csv.read_csv(source)
    return values | {"rows_per_s": task.rows / values["wall_s"]}


def sampling(task: Task, folder: Path) -> Values:
    """Shards drawn from a chain of triples, decoded and written as Parquet, one after the other on one thread."""
    pa.set_cpu_count(1)
    schema = census_schema(task.columns)
    with TemporaryDirectory(dir=folder) as site:
        model, declared = Path(site) / "model.npz", Path(site) / "schema.yaml"
        _chain(task.columns).save(model)
        schema.save(declared)
        shards = max(1, task.rows // SHARD_ROWS)
        recipe = Recipe(model, declared, "bench", task.rows, shards, 0)
        write_shard((0, Path(site) / "first.parquet"), recipe=recipe)
        size = 0
        with _clock() as values:
            for number in range(shards):
                path = write_shard((number, Path(site) / f"{number}.parquet"), recipe=recipe)
                size += path.stat().st_size
    return values | {"rows_per_s": task.rows / values["cpu_s"], "bytes_per_row": size / task.rows}


def release(task: Task, folder: Path) -> Values:
    """A whole release as it is by default: CPU seconds of each step, and the peak of memory meanwhile.

    Those of the replicates of the model, a part of the fit, are told apart: these are spread over workers.
    """
    source = _source(task, folder)
    with TemporaryDirectory(dir=folder) as site:
        workspace, declared = Path(site) / "workspace", Path(site) / "schema.yaml"
        workspace.mkdir()
        census_schema(task.columns).save(declared)
        account = Account(dataset="bench", delta=1e-9, cap_epsilon=1.0, largest_n=100_000_000)
        open_ledger(workspace, create=True).declare(account, actor="bench")
        spec = {
            "release": "bench",
            "dataset": "bench",
            "source": str(source),
            "schema": str(declared),
            "method": "absyn",
            "epsilon": 1.0,
            "delta": 1e-9,
            "shards": max(1, task.rows // SHARD_ROWS),
        }
        address = prepare(spec, workspace=workspace)
        values, peaks = {}, {}
        with _replicates_timed() as replicates:
            for step in STEPS:
                _forget_peak()
                values[f"{step}_cpu_s"] = _cpu(lambda step=step: run_step(step, address))  # type: ignore[misc]
                peaks[f"{step}_peak_mb"] = _peak_mb()
                if step == "fit":
                    values["fit_cpu_s"] -= replicates["replicates_cpu_s"]
                    values |= replicates
    return values | {"cpu_s": sum(values.values())} | peaks


PARTS: dict[str, Callable[[Task, Path], Values]] = {
    part.__name__: part for part in (counting, counting_on_workers, ingest, reading, sampling, release)
}


def _table(task: Task) -> tuple[dict[str, Codes], Domain]:
    domain = census_schema(task.columns).domain
    codes = np.empty((task.columns, task.rows), dtype=np.uint8)
    at = 0
    for block in census_blocks(task.rows, task.columns):
        codes[:, at : at + len(block)] = block.T
        at += len(block)
    return dict(zip(domain, codes, strict=True)), domain


def _source(task: Task, folder: Path) -> Path:
    """The generated file, made once."""
    path = folder / f"{task.rows}x{task.columns}.csv"
    if not path.exists():
        write_source(path, task.rows, task.columns)
    return path


def _chain(columns: int) -> MarkovRandomField:
    """A model with the triples of neighbouring columns, as a table of the generator has them."""
    task = Task(part="sampling", rows=200_000, columns=columns)
    codes, domain = _table(task)
    cliques = [domain.attributes[k : k + 3] for k in range(max(1, columns - 2))]
    tables = count_codes(codes, domain, cliques)
    potentials = np.concatenate([np.log(table.ravel() + 0.5) for table in tables]) / 3
    return MarkovRandomField(junction_tree(domain, cliques), cliques, potentials, total=task.rows)


def _bincount(codes: dict[str, Codes], domain: Domain, pair: Clique) -> object:
    width = domain.size(pair[1])
    return np.bincount(codes[pair[0]].astype(np.int32) * width + codes[pair[1]], minlength=domain.cells(pair))


def _histogram(codes: dict[str, Codes], domain: Domain, pair: Clique) -> object:
    edges = [np.arange(domain.size(name) + 1) for name in pair]
    return np.histogramdd(np.column_stack([codes[name] for name in pair]), bins=edges)


@contextmanager
def _replicates_timed() -> Iterator[Values]:
    """CPU seconds that a fit spends on replicates of its model."""
    values = {"replicates_cpu_s": 0.0}

    def timed(*given: Any) -> None:
        values["replicates_cpu_s"] += _cpu(lambda: write_replicates(*given))

    with patch.object(conversation, "write_replicates", timed):
        yield values


def _forget_peak() -> None:
    """Let the peak begin anew at what is held now; where the system does not allow it, it stays that of the process."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak_mb() -> float:
    with suppress(OSError):
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _cpu(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _wall(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@contextmanager
def _clock() -> Iterator[Values]:
    values: Values = {}
    cpu, wall = time.process_time(), time.perf_counter()
    yield values
    values |= {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}


def census_schema(columns: int) -> Schema:
    """A schema of that many columns."""
    return Schema.model_validate({"columns": [_column(k) for k in range(columns)]})


def census_blocks(rows: int, columns: int) -> Iterator[NDArray[np.uint8]]:
    """Codes, one row for each record; each column leans on the one before it and on something all share."""
    sizes = np.array(census_schema(columns).domain.sizes)
    for number, start in enumerate(range(0, rows, BLOCK_ROWS)):
        rng = np.random.default_rng([0, number])
        count = min(BLOCK_ROWS, rows - start)
        shared = rng.random(count, dtype=np.float32)
        before = shared
        codes = np.empty((columns, count), dtype=np.uint8)
        for k, size in enumerate(sizes):
            own = rng.random(count, dtype=np.float32)
            before = 0.3 * shared + 0.4 * before + 0.3 * own * own
            codes[k] = np.minimum(before * before * np.float32(size * 1.2), np.float32(size - 1))
        yield codes.T


def write_source(path: Path, rows: int, columns: int) -> None:
    """Write the table as a CSV file of text and numbers."""
    schema = census_schema(columns)
    coded = enumerate(census_blocks(rows, columns))
    blocks = (decode_table(codes, schema, np.random.default_rng([0, number, 1])) for number, codes in coded)
    first = next(blocks)
    with pa_csv.CSVWriter(path, first.schema, write_options=CSV) as writer:
        for block in chain([first], blocks):
            writer.write_table(block)


def _column(number: int) -> dict[str, Any]:
    turn, kind = divmod(number, len(COLUMNS))
    column = dict(COLUMNS[kind])
    if isinstance(column.get("values"), int):
        column |= {
            "kind": "categorical",
            "values": [f"{column['name'][:4]}-{k}" for k in range(column["values"])],
        }
    return column | ({"name": f"{column['name']}_{turn + 1}"} if turn else {})


def main(order: Path) -> None:
    """Do the task written in the order, and write what it took beside it."""
    given = json.loads(order.read_text(encoding="utf-8"))
    task = Task(**given["task"])
    values = PARTS[task.part](task, Path(given["folder"]))
    peaks = [value for name, value in values.items() if name.endswith("peak_mb")]
    values["peak_mb"] = max([_peak_mb(), *peaks])
    order.with_suffix(".done").write_text(json.dumps(task._asdict() | {"values": values}), encoding="utf-8")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(Path(sys.argv[1]))
