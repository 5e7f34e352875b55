"""What households and their people cost beside one table of as many rows: CPU seconds and memory of each step.

    python tests/benchmarks/household_scale.py 1000000 10000000

Both releases are of the fictional population, by the same method and from CSV files: two linked tables, and one in
which each person's row has the household's columns. Steps run in threads of one process each, without a cluster; what
Dask adds is the same for both. Writes household_scale.jsonl and household_scale.md here.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).resolve().parent
PEOPLE_EACH = 2.36
"""Mean people of a household of the fictional population."""

STEPS = ("ingest", "score", "select", "fit", "sample", "evaluate", "publish")
METHOD = "independent"
"""It asks one question of each column, so what differs is what linked tables add."""


def write_sources(folder: Path, people: int) -> None:
    """Both forms of the same population, and their schemas."""
    from synth_core.example.households import generate_households, households_schema
    from synth_core.schema import Schema

    schema = households_schema()
    schema.save(folder / "linked.yaml")
    columns = (*schema.household.columns, *schema.person.columns)
    Schema.model_validate({"columns": columns}).save(folder / "flat.yaml")
    left, number, header = round(people / PEOPLE_EACH), 0, True
    while left > 0:
        own = min(left, 400_000)
        tables = generate_households(own, seed=number)
        for table in tables.values():
            table[schema.link] += number * 400_000
        tables["flat"] = tables["person"].merge(tables["household"], on=schema.link).drop(columns=schema.link)
        for name, table in tables.items():
            table.to_csv(folder / f"{name}.csv", index=False, mode="w" if header else "a", header=header)
        left, number, header = left - own, number + 1, False


def release(folder: Path, kind: str) -> dict[str, Any]:
    """The spec of one of the two releases, with its account."""
    from synth_core.ledger.sql import open_ledger
    from synth_core.privacy.accounts import Account

    linked = kind == "linked"
    account = Account(dataset=kind, unit="household" if linked else "person", delta=1e-9, cap_epsilon=2.0)
    workspace = folder / kind
    workspace.mkdir()
    open_ledger(workspace, create=True).declare(account, actor="benchmark")
    files = {name: str(folder / f"{name}.csv") for name in ("household", "person")}
    return {
        "release": "r",
        "dataset": kind,
        "source": files if linked else str(folder / "flat.csv"),
        "schema": str(folder / f"{kind}.yaml"),
        "method": METHOD,
        "epsilon": 1.0,
        "delta": 1e-9,
        "unit": account.unit,
        "uncertainty": 0,
        "evaluate": "none",
    }


def run(folder: Path, kind: str) -> dict[str, float]:
    """CPU seconds of every step of a release, and of counting all its pairs of columns; peak memory in MB."""
    from synth_core.cluster import Cluster
    from synth_core.release.paths import ReleasePaths
    from synth_core.schema.linked import LinkedSchema, load_schema
    from synth_core.steps import prepare, run_step
    from synth_core.storage.counting import PartitionCounts
    from synth_core.storage.household_partitions import PartitionTuples, partitions_of
    from synth_core.storage.ingest import Snapshot

    address = prepare(release(folder, kind), workspace=folder / kind)
    found: dict[str, float] = {}
    for step in STEPS:
        begun = time.process_time()
        run_step(step, address)
        found[step] = time.process_time() - begun
        found[f"{step}, MB so far"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    paths = ReleasePaths.of_address(address)
    schema, names = load_schema(paths.schema), Snapshot.load(paths.snapshot).partitions
    linked = isinstance(schema, LinkedSchema)
    for places in (1, 2) if linked else (1,):
        if isinstance(schema, LinkedSchema):
            counts: Any = PartitionTuples(partitions_of(paths.encoded, names), schema, Cluster(), places=places)
        else:
            counts = PartitionCounts([paths.encoded / name for name in names], schema.planned.domain, Cluster())
        pairs = [pair for pair in combinations(counts.domain.attributes, 2) if places == 1 or pair[1].endswith("@2")]
        for part in ("compiled", "counted"):  # the first pass compiles
            begun = time.process_time()
            counts.tables(pairs if part == "counted" else pairs[:1])
            found[f"all pairs of columns, {places} at a time"] = time.process_time() - begun
    return found


def main(sizes: Sequence[int]) -> None:
    """Measure every size in processes of their own and write what was seen."""
    results = HERE / "household_scale.jsonl"
    known = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    known = [one for one in known if one["people"] not in sizes]
    for people in sizes:
        with TemporaryDirectory() as folder:
            write_sources(Path(folder), people)
            for kind in ("flat", "linked"):
                asked = [sys.executable, __file__, folder, kind]
                said = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
                known.append({"people": people, "kind": kind, **json.loads(said.splitlines()[-1])})
                print(known[-1], flush=True)
    results.write_text("".join(json.dumps(one) + "\n" for one in sorted(known, key=lambda one: one["people"])))
    (HERE / "household_scale.md").write_text(page(known), encoding="utf-8")


def page(known: Sequence[dict[str, Any]]) -> str:
    """The table of what was seen."""
    lines = [
        "# Households and their people beside one table",
        "",
        "`tests/benchmarks/household_scale.py`: CPU seconds of one process on releases of the fictional population,",
        f"method `{METHOD}`, from CSV; peak memory of the process after `sample`. One table has a row for each person",
        "with the household's columns; its pairs of columns are of one person.",
        "",
        "| people | | ingest | score to fit | sample | the three | all pairs, 1 person | all pairs, 2 people | MB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for people in sorted({one["people"] for one in known}):
        whole = {}
        for one in sorted((one for one in known if one["people"] == people), key=lambda one: one["kind"]):
            fit = one["score"] + one["select"] + one["fit"]
            whole[one["kind"]] = one["ingest"] + fit + one["sample"]
            two = one.get("all pairs of columns, 2 at a time")
            name = "one table" if one["kind"] == "flat" else "linked"
            lines.append(
                f"| {people:,} | {name} | {one['ingest']:.1f} | {fit:.1f} | "
                f"{one['sample']:.1f} | {whole[one['kind']]:.1f} | {one['all pairs of columns, 1 at a time']:.2f} | "
                f"{'–' if two is None else f'{two:.2f}'} | {one['sample, MB so far']:.0f} |"
            )
        if len(whole) == 2:
            lines.append(f"| | ratio | | | | {whole['linked'] / whole['flat']:.2f} | | | |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if len(sys.argv) == 3 and not sys.argv[1].isdecimal():
        print(json.dumps(run(Path(sys.argv[1]), sys.argv[2])))
    else:
        main([int(size) for size in sys.argv[1:]])
