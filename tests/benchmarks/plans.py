"""What `synth plan` says of time, memory and disk, beside what a release took.

    python tests/benchmarks/plans.py           measure what plans.jsonl has not, then write costs.yaml and plans.md
    python tests/benchmarks/plans.py --table   write them from what was measured

Each release runs in a process of its own. The costs are fitted to the shapes of LEARNT; those of FRESH are not looked
at for that, and are what the table compares. Seconds are CPU seconds, beside the speed of the machine at the moment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "plans.jsonl"

HEADING = (
    "| method | records | columns | strata | internal report | refits | tables | CSV | CPU seconds | peak MB "
    "| confidential MB | published MB |\n|---|---:|---:|---:|---|---:|---:|---|---:|---:|---:|---:|\n"
)

PAGE = f"""# What a plan says, beside what the release took

Written by `python tests/benchmarks/plans.py`: planned / taken = ratio, for releases of a generated census that the
costs were not learnt from, and that were chosen before any of them was measured. Seconds are CPU seconds, of all steps;
the speed of the machine was measured before each release, which had other work beside it. Nothing was changed when
these releases had been seen but how far time is said to be off: 3 times, since one took 2.2 times what was planned.

{HEADING}"""

EPSILON, DELTA = 1.0, 1e-9
"""Budget of every release."""

SHAPE = ("method", "records", "columns", "strata", "evaluate", "uncertainty", "replicates", "csv")

Case: TypeAlias = tuple[str, int, int, int, str, int, int, bool]
"""Method, records, columns, strata, the internal report that is asked for, refits, replicate tables, and whether CSV
files are written too."""


def usual(method: str, records: int, columns: int, strata: int, evaluate: str) -> Case:
    """A release with as many refits as are usual, one table and no CSV."""
    return method, records, columns, strata, evaluate, 24, 0, False


LEARNT: list[Case] = [
    *(usual("absyn", records, columns, 0, "full") for records, columns in ((5_000, 4), (5_000, 12), (60_000, 8))),
    *(
        usual(method, records, columns, 0, "none")
        for method in ("privmrf", "privbayes")
        for records, columns in ((5_000, 4), (5_000, 12), (60_000, 8), (5_000, 24))
    ),
    usual("absyn", 10_000, 16, 0, "none"),
    usual("absyn", 10_000, 8, 7, "none"),
    usual("absyn", 10_000, 8, 16, "none"),
    ("absyn", 20_000, 10, 0, "none", 0, 0, True),
    ("privmrf", 10_000, 10, 0, "none", 0, 0, False),
    ("privmrf", 10_000, 9, 0, "none", 60, 10, False),
    ("absyn", 10_000, 5, 0, "none", 12, 12, True),
    usual("absyn", 20_000, 7, 0, "full"),
    usual("absyn", 8_000, 14, 0, "none"),
    ("absyn", 15_000, 10, 7, "none", 10, 0, False),
    ("privmrf", 25_000, 6, 0, "none", 50, 20, False),
    usual("privmrf", 8_000, 17, 0, "none"),
    ("privmrf", 20_000, 11, 0, "full", 0, 0, True),
    usual("privbayes", 7_000, 16, 0, "none"),
    ("privbayes", 50_000, 7, 0, "full", 24, 0, True),
]
"""The last eight judged earlier costs, and were learnt from when those were found wanting."""

FRESH: list[Case] = [
    usual("absyn", 30_000, 9, 0, "full"),
    usual("absyn", 12_000, 11, 0, "none"),
    usual("absyn", 6_000, 18, 0, "none"),
    ("absyn", 18_000, 8, 7, "none", 12, 0, False),
    usual("privmrf", 10_000, 13, 0, "none"),
    ("privmrf", 40_000, 7, 0, "full", 12, 0, True),
    ("privmrf", 6_000, 20, 0, "none", 12, 0, False),
    ("privmrf", 15_000, 5, 0, "none", 40, 10, False),
    usual("privbayes", 12_000, 10, 0, "none"),
    ("privbayes", 30_000, 13, 0, "full", 12, 0, False),
]
"""Chosen when the terms of the costs were fixed, before any of them was measured."""

KNOWN = {"public": {"row in a column": 0.55, "row in a column of CSV": 7.5}}
"""Costs that small releases do not show beside the page of tables: bytes of a cell of the generated census."""


def main() -> None:
    known = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    done = {tuple(one[name] for name in SHAPE) for one in known}
    for shape in [] if "--table" in sys.argv else [*LEARNT, *FRESH]:
        if shape not in done:
            command = [sys.executable, __file__, "--one", json.dumps(shape)]
            line = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
            with RESULTS.open("a") as file:
                file.write(f"{line}\n")
            print(line, flush=True)
            known.append(json.loads(line))
    write_costs(known)
    write_table(known)


def write_costs(known: list[dict[str, Any]]) -> None:
    """Fit each cost to its terms, none of them negative, so that the ratios are least off; write costs.yaml."""
    import yaml

    from synth_core.release.estimate import COSTS, PER_METHOD, STEP_TERMS

    learnt = [one for one in known if tuple(one[name] for name in SHAPE) in LEARNT]
    yardstick = min(one["speed"] for one in learnt)
    learnt = [scaled(one, yardstick) for one in learnt] + of_scale()
    steps = [name for name in STEP_TERMS if name in learnt[0]["seconds"]]
    methods = list(dict.fromkeys(one["method"] for one in learnt))
    costs: dict[str, Any] = {
        "methods": {
            method: {step: fitted(step, [one for one in learnt if one["method"] == method]) for step in PER_METHOD}
            for method in methods
        },
        "dearest": max(methods, key=lambda name: sum(o["seconds"]["fit"] for o in learnt if o["method"] == name)),
        **{name: fitted(name, learnt) for name in STEP_TERMS if name not in PER_METHOD},
        "steps": steps,
        "yardstick": yardstick,
        "records": max(one["records"] for one in learnt),
        "columns": max(one["columns"] for one in learnt),
        "models": max(max(1, one["strata"]) for one in learnt),
    }
    head = "# Written by tests/benchmarks/plans.py: CPU seconds, MB of memory and bytes of disk for each term.\n"
    COSTS.write_text(head + yaml.safe_dump(costs, sort_keys=False), encoding="utf-8")


def scaled(one: dict[str, Any], yardstick: float) -> dict[str, Any]:
    """A result as it would have been on the machine at its fastest."""
    return one | {"seconds": {step: value * yardstick / one["speed"] for step, value in one["seconds"].items()}}


def of_scale() -> list[dict[str, Any]]:
    """Larger releases that the benchmark `scale` has measured on a machine of this kind."""
    found = []
    for line in (HERE / "scale.jsonl").read_text().splitlines():
        one = json.loads(line)
        if one["part"] == "release":
            values, steps = one["values"], ("ingest", "score", "select", "fit", "sample", "evaluate", "publish")
            shape = {
                "method": "absyn",
                "records": one["rows"],
                "columns": one["columns"],
                "strata": 0,
                "uncertainty": 0,
            }
            seconds = {step: values[f"{step}_cpu_s"] for step in steps}
            shape |= {"replicates": 0, "csv": False}
            found.append(shape | {"evaluate": "full", "seconds": seconds, "peak_mb": {"all": values["peak_mb"]}})
    return found


def fitted(name: str, results: list[dict[str, Any]]) -> dict[str, float]:
    import numpy as np
    from scipy.optimize import least_squares, nnls

    from synth_core.release.estimate import STEP_TERMS, TERMS

    known = KNOWN.get(name, {})
    open_terms = [term for term in STEP_TERMS[name] if term not in known]
    rows, ones = [], []
    for one in results:
        actual = amount_of(one, name)
        if actual:
            actual -= sum(cost * TERMS[term](shape_of(one)) for term, cost in known.items())
            rows.append([TERMS[term](shape_of(one)) / actual for term in open_terms])
            ones.append(1.0)
    shares = np.array(rows)
    terms = [term for term, some in zip(open_terms, shares.any(axis=0), strict=True) if some]
    shares = shares[:, shares.any(axis=0)]  # a method without refits has no cost of them
    first, _ = nnls(shares, ones)
    scale = 1 / shares.max(axis=0)  # a weight of 1 explains the whole of the release that it is largest in
    found = least_squares(lambda w: np.log(shares @ (scale * w**2) + 1e-9), np.sqrt(first / scale) + 0.1)
    weights = np.where(found.x**2 > 1e-6, scale * found.x**2, 0.0)
    return known | {term: float(f"{w:.4g}") for term, w in zip(terms, weights, strict=True) if w}


def amount_of(one: dict[str, Any], name: str) -> float | None:
    """What one release took of something; None if it was not measured."""
    if name == "peak_mb":
        return max(one["peak_mb"].values())
    if name in ("confidential", "public"):
        return one["bytes"][name] if "bytes" in one else None
    return one["seconds"][name]


def shape_of(one: dict[str, Any]) -> Any:
    from synth_core.domain import Domain
    from synth_core.release.estimate import Shape
    from synth_core.synthesizers.base import has_replicates
    from synth_core.synthesizers.methods import synthesizer

    return Shape(
        method=one["method"],
        records=one["records"],
        rows=one["records"],
        columns=one["columns"],
        models=max(1, one["strata"]),
        evaluate=one["evaluate"],
        refits=one["uncertainty"] if has_replicates(synthesizer(one["method"]), Domain((), ())) else 0,
        tables=1 + one["replicates"],
        csv=one["csv"],
        tree=tree_of(one["columns"], one["records"] // max(1, one["strata"])),
    )


@cache
def tree_of(columns: int, records: int) -> float:
    """The expected tree of a release of the generated census."""
    from synth_core.bench.scale_tasks import census_schema
    from synth_core.privacy.budget import mu2_of
    from synth_core.release.expected_tree import expected_tree

    return expected_tree(census_schema(columns).domain, records=records, mu2=float(mu2_of(EPSILON, DELTA)))


def compared(one: dict[str, Any]) -> list[tuple[str, float, float]]:
    """What is planned for a release at the speed of its machine, and what it took."""
    from synth_core.release.estimate import _costs, estimate_release

    planned = estimate_release(shape_of(one), speed=_costs()["yardstick"] / one["speed"])
    return [
        ("seconds", sum(planned.seconds.values()), sum(one["seconds"].values())),
        ("memory", planned.peak_mb, max(one["peak_mb"].values())),
        ("confidential", planned.confidential_mb, one["bytes"]["confidential"] / 1e6),
        ("public", planned.public_mb, one["bytes"]["public"] / 1e6),
    ]


def write_table(known: list[dict[str, Any]]) -> None:
    """What is planned beside what was taken, of the releases from which nothing was learnt."""
    rows = "".join(map(_row, known_of(known, FRESH)))
    (HERE / "plans.md").write_text(PAGE + rows, encoding="utf-8")


def known_of(known: list[dict[str, Any]], shapes: list[Any]) -> list[dict[str, Any]]:
    """The results of these shapes, in their order."""
    by_shape = {tuple(one[name] for name in SHAPE): one for one in known}
    return [by_shape[shape] for shape in shapes if shape in by_shape]


def _row(one: dict[str, Any]) -> str:
    cells = [f"{planned:.3g} / {taken:.3g} = {planned / taken:.2f}" for _, planned, taken in compared(one)]
    shape = [one["method"], f"{one['records']:,}", one["columns"], one["strata"] or "–", one["evaluate"]]
    shape += [one["uncertainty"], 1 + one["replicates"], "yes" if one["csv"] else "–"]
    return "| " + " | ".join(map(str, [*shape, *cells])) + " |\n"


def measure(
    method: str, records: int, columns: int, strata: int, evaluate: str, uncertainty: int, replicates: int, csv: bool
) -> dict[str, Any]:
    """A release of a generated census, step by step."""
    from synth_core.bench.scale_tasks import _cpu, _forget_peak, _peak_mb, census_schema, write_source
    from synth_core.ledger.sql import open_ledger
    from synth_core.privacy.accounts import Account
    from synth_core.release.estimate import measure_speed
    from synth_core.release.paths import ReleasePaths
    from synth_core.steps import STEPS, prepare, run_step

    with TemporaryDirectory() as folder:
        site = Path(folder)
        schema = census_schema(columns)
        schema.save(site / "schema.yaml")
        write_source(site / "rows.csv", records, columns)
        (site / "workspace").mkdir()
        account = Account(dataset="bench", delta=1e-9, cap_epsilon=1.0, largest_n=10**8)
        open_ledger(site / "workspace", create=True).declare(account, actor="bench")
        spec = {"release": "bench", "dataset": "bench", "source": str(site / "rows.csv"), "method": method}
        spec |= {"schema": str(site / "schema.yaml"), "epsilon": EPSILON, "delta": DELTA, "evaluate": evaluate}
        spec |= {"uncertainty": uncertainty, "replicates": replicates, "csv": csv}
        by = next((name for name in schema.domain if schema.domain.size(name) == strata), None)
        address = prepare(spec | ({"strata": {"by": by}} if by else {}), workspace=site / "workspace")
        speed, seconds, peaks = measure_speed(), {}, {}
        for step in STEPS:
            _forget_peak()
            seconds[step] = round(_cpu(lambda step=step: run_step(step, address)), 4)
            peaks[step] = round(_peak_mb(), 1)
        paths = ReleasePaths.of_address(address)
        size = {
            "confidential": sum(path.stat().st_size for path in paths.confidential.rglob("*") if path.is_file()),
            "public": sum(path.stat().st_size for path in paths.public.rglob("*") if path.is_file()),
        }
    given = (method, records, columns, strata, evaluate, uncertainty, replicates, csv)
    shape = dict(zip(SHAPE, given, strict=True))
    return shape | {"speed": speed, "seconds": seconds, "peak_mb": peaks, "bytes": size}


if __name__ == "__main__":
    if "--one" in sys.argv:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        print(json.dumps(measure(*json.loads(sys.argv[-1]))))
    else:
        main()
