"""Judge MST, AIM and the one-shot clique-tree method beside other implementations of them, and write baselines.md.

Run as `python tests/benchmarks/baselines.py [--runs N] [--peers NAME,...] [--only DATA] [--limit CPU_SECONDS]`, with
the peers' environments in --cache (made there if missing). Every table is made in a process of its own, one thread,
imports and compilation included. Each result is kept in baselines.jsonl and not made again.
"""

import argparse
import itertools
from pathlib import Path

import numpy as np
from contest.execution import execute
from contest.jobs import OURS, Job, contestants, load
from kept import keep_result, read_results
from yardstick import mean_tvd

HERE = Path(__file__).parent
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
NAMES = ("nltcs", "adult", "br2000", "acs")
METHODS = ("mst", "mst:paper", "aim", "aim:paper", "swift")
EPSILON, DELTA, ALPHAS = 0.8, 1e-5, (2, 3, 4, 5)
RECORDED = {  # 2- to 5-way errors and CPU seconds, measured once on another day at the same epsilon and delta
    ("mst", "nltcs"): ("mbi 2.0", (0.0882, 0.1451, 0.1835, 0.2172), 41),
    ("mst", "adult"): ("mbi 2.0", (0.0367, 0.0810, 0.1280, 0.1909), 113),
    ("mst", "br2000"): ("mbi 2.0", (0.0260, 0.0578, 0.0994, 0.1440), 75),
    ("swift", "nltcs"): ("SWIFT", (0.0020, 0.0045, 0.0085, 0.0145), 36),
    ("swift", "adult"): ("SWIFT", (0.0209, 0.0476, 0.0832, 0.1374), 113),
    ("swift", "br2000"): ("SWIFT", (0.0109, 0.0248, 0.0502, 0.0803), 136),
    ("swift", "acs"): ("SWIFT", (0.0016, 0.0037, 0.0061, 0.0101), 99),
}


def judged(job: Job, *, cache: Path, limit: float) -> dict:
    """One table, made and judged."""
    dataset = load(job.dataset, DATA)
    outcome = execute(job, dataset, delta=DELTA, limit=limit, cache=cache)
    errors = None
    if outcome.table is not None:
        errors = [mean_tvd(dataset.codes, outcome.table, dataset.domain.sizes, alpha) for alpha in ALPHAS]
    return {
        "data": job.dataset,
        "contestant": job.contestant.name,
        "ours": job.contestant.library == OURS,
        "run": job.run,
        "tvd": errors,
        "cpu": round(outcome.cpu_seconds, 1),
        "mb": round(outcome.peak_mb),
        "note": outcome.note,
    }


def figures(values: np.ndarray | tuple) -> str:
    return " / ".join(f"{value:.4f}".lstrip("0") for value in values)


def row(results: list[dict], contestant: str, data: str) -> str | None:
    """One line of the table: means over the runs, and CPU time relative to ours."""
    own = [r for r in results if (r["contestant"], r["data"]) == (contestant, data)]
    if not own:
        return None
    method = contestant.split("/")[-1]
    ours = [r["cpu"] for r in results if (r["contestant"], r["data"]) == (method, data)]
    cpu = float(np.mean([r["cpu"] for r in own]))
    made = [r["tvd"] for r in own if r["tvd"]]
    ratio = f"{cpu / np.mean(ours):.1f}" if ours and made and not own[0]["ours"] else ""
    errors = figures(np.mean(made, axis=0)) if made else own[-1]["note"]
    memory = max(r["mb"] for r in own)
    return f"| {contestant} | {data} | {errors} | {cpu:.1f} | {ratio} | {memory} | {len(own)} |"


def report(results: list[dict]) -> str:
    """The tables."""
    names = list(dict.fromkeys(r["contestant"] for r in sorted(results, key=lambda r: not r["ours"])))
    rows = [line for data in NAMES for name in names if (line := row(results, name, data))]
    recorded = [
        f"| {peer} | {method} | {data} | {figures(errors)} | {cpu} |"
        for (method, data), (peer, errors, cpu) in RECORDED.items()
    ]
    return "\n".join(
        [
            "# MST, AIM and the one-shot clique-tree method: figures\n",
            "Written by `tests/benchmarks/baselines.py`. Mean total variation distance of 300 fixed 2-, 3-, 4- and",
            f"5-way marginals at epsilon {EPSILON}, delta {DELTA:g}; one thread; CPU seconds of the whole process,",
            "with imports and compilation, on a loaded machine. `times ours`: CPU time relative to our `default`.\n",
            "| method | data | 2 / 3 / 4 / 5-way | CPU s | times ours | peak MB | runs |",
            "|---|---|---|---|---|---|---|",
            *rows,
            "\nMeasured once before, at the same epsilon and delta (SWIFT with a numpy fit of 1,000 steps):\n",
            "| implementation | method | data | 2 / 3 / 4 / 5-way | CPU s |",
            "|---|---|---|---|---|",
            *recorded,
            "",
        ]
    )


def main() -> None:
    """Make what is missing and write the report after each result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--peers", default="")
    parser.add_argument("--only", default=",".join(NAMES[:3]))
    parser.add_argument("--limit", type=float, default=1800)
    parser.add_argument("--cache", type=Path, default=Path("bench-out/peers"))
    arguments = parser.parse_args()
    if not DATA.exists():
        raise SystemExit("the benchmark's data sets are not installed")
    kept = HERE / "baselines.jsonl"
    results = read_results(kept)
    wanted = contestants(
        [name for name in arguments.methods.split(",") if name],
        [name for name in arguments.peers.split(",") if name],
    )
    for run, contestant, data in itertools.product(range(arguments.runs), wanted, arguments.only.split(",")):
        if any((r["contestant"], r["data"], r["run"]) == (contestant.name, data, run) for r in results):
            continue
        job = Job(data, contestant, EPSILON, run)
        results.append(judged(job, cache=arguments.cache, limit=arguments.limit))
        keep_result(kept, results[-1])
        (HERE / "baselines.md").write_text(report(results))
        print(results[-1], flush=True)


if __name__ == "__main__":
    main()
