"""Judge two releases, the second of which reuses the answers of the first, beside one of the composed price.

Run as `PYTHONPATH=tests python tests/benchmarks/reuse.py [--only DATA] [--runs N]`. Errors are the mean total variation
distance over 300 fixed marginals of each order; each result is kept in reuse.jsonl, and runs that are there are not
made again. A fourth release that names a table of other people shows what a wrong declaration costs. Public tables.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from kept import keep_result, read_results
from yardstick import mean_tvd

from synth_core import Schema, synthesize
from synth_core.ledger.sql import open_ledger
from synth_core.privacy.accounts import Account
from synth_core.privacy.budget import epsilon_of, mu2_of

HERE = Path(__file__).parent
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
NAMES = ("nltcs", "acs", "adult", "br2000", "titanic", "salary")
ALPHAS = (2, 3, 4, 5)
EPSILON, DELTA = 0.4, 1e-5
COMPOSED = epsilon_of(2 * mu2_of(EPSILON, DELTA), DELTA)
"""What two releases of EPSILON cost together."""


def one_run(name: str) -> dict[str, dict]:
    """Four releases from one account: alone, with reuse, at the composed price, and with a wrong declaration."""
    sizes = json.loads((DATA / f"{name}-domain.json").read_text())
    real = pd.read_csv(DATA / f"{name}.csv")[list(sizes)]
    others = real.apply(lambda column: (column + 1) % sizes[column.name])
    with tempfile.TemporaryDirectory() as folder:
        account = Account(dataset="people", delta=DELTA, cap_epsilon=50.0, largest_n=None)
        open_ledger(Path(folder), create=True).declare(account, actor="benchmark")

        def released(release: str, *, frame: pd.DataFrame = real, epsilon: float = EPSILON, reuse: tuple = ()) -> dict:
            start = time.process_time()
            made = synthesize(
                frame,
                Schema.from_sizes(sizes),
                epsilon=epsilon,
                delta=DELTA,
                ledger=folder,
                dataset="people",
                release=release,
                reuse=reuse,
            )
            seconds = time.process_time() - start
            table = made.table[list(sizes)].astype("int64").to_numpy()
            errors = [mean_tvd(frame.to_numpy(), table, list(sizes.values()), alpha) for alpha in ALPHAS]
            used = [one["release"] for one in made.reused if one["used"]]
            return {"tvd": errors, "cpu": round(seconds, 1), "used": used}

        found = {"alone": released("first")}
        found["with reuse"] = released("second", reuse=("first",))
        found["composed"] = released("third", epsilon=COMPOSED)
        found["declared wrongly"] = released("fourth", frame=others, reuse=("first",))
        return found


def report(results: list[dict]) -> str:
    """The table."""
    lines = [
        "# Reuse of answers\n",
        f"Written by `tests/benchmarks/reuse.py`: privmrf `default`, delta {DELTA:g}. The first release has epsilon",
        f"{EPSILON}, the second the same with `reuse` of the first; one release of the composed price has epsilon",
        f"{COMPOSED:.4f}. Errors are mean total variation distances over 300 marginals of each order; the ratio is the",
        "second's to that of the composed price. `declared wrongly` is a release of other rows (every code moved by",
        "one) that names the first: its error relative to that of the first alone, and in how many runs the answers",
        "were set aside.\n",
        "| data | runs | order | first alone | with reuse | composed | ratio | declared wrongly | set aside | CPU s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in NAMES:
        own = [r for r in results if r["data"] == name]
        if not own:
            continue
        means = {kind: np.mean([r[kind]["tvd"] for r in own], axis=0) for kind in own[0] if kind != "data"}
        aside = sum(not r["declared wrongly"]["used"] for r in own)
        cpu = np.mean([r["with reuse"]["cpu"] for r in own])
        for k, alpha in enumerate(ALPHAS):
            alone, again, whole, wrong = (
                means[kind][k] for kind in ("alone", "with reuse", "composed", "declared wrongly")
            )
            lines.append(
                f"| {name} | {len(own)} | {alpha}-way | {alone:.4f} | {again:.4f} | {whole:.4f} | {again / whole:.3f} "
                f"| {wrong / alone:.3f} | {aside} of {len(own)} | {cpu:.0f} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what is missing and write the report after each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=NAMES)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    kept = HERE / "reuse.jsonl"
    results = read_results(kept)
    for name in [arguments.only] if arguments.only else NAMES:
        for _ in range(sum(r["data"] == name for r in results), arguments.runs):
            results.append({"data": name, **one_run(name)})
            print(results[-1], flush=True)
            keep_result(kept, results[-1])
            (HERE / "reuse.md").write_text(report(results))


if __name__ == "__main__":
    main()
