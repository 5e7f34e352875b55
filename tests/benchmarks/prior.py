"""Judge releases that build on a public table: a good one, worse ones and wrong ones, beside releases without one.

Run as `PYTHONPATH=tests python tests/benchmarks/prior.py [--only DATA] [--epsilon E] [--runs N]`. Half of a public
table, drawn at random, plays the confidential table; the priors are made of the other half. Errors are the mean total
variation distance over 300 fixed marginals of each order; each result is kept in prior.jsonl, and runs that are there
are not made again. Noise is seeded by data, epsilon, kind and run.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
from support import seeding
from yardstick import mean_tvd

from synth_core import Schema, synthesize

HERE = Path(__file__).parent
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
NAMES = ("adult", "nltcs", "br2000", "acs")
EPSILONS = (0.1, 0.8)
ALPHAS = (2, 3, 4, 5)
DELTA = 1e-5
KINDS = {
    "none": "no prior",
    "half": "the other half",
    "columns": "the first half of its columns",
    "tiny": "500 rows of it",
    "group": "its rows that have the first code in one column",
    "shuffled": "each of its columns permuted",
    "moved": "every code moved by one",
    "mixed": "the second half of its columns permuted together",
}


def halves(name: str) -> tuple[dict[str, int], pd.DataFrame, pd.DataFrame]:
    """Sizes of the columns, the public half and the confidential half."""
    sizes = json.loads((DATA / f"{name}-domain.json").read_text())
    table = pd.read_csv(DATA / f"{name}.csv")[list(sizes)]
    order = np.random.default_rng(24).permutation(len(table))
    return sizes, table.iloc[order[: len(table) // 2]], table.iloc[order[len(table) // 2 :]]


def prior_of(kind: str, public: pd.DataFrame, sizes: dict[str, int]) -> pd.DataFrame | None:
    """The prior of a kind."""
    rng = np.random.default_rng(25)
    names = list(sizes)
    if kind == "none":
        return None
    if kind == "columns":
        return public[names[: len(names) // 2]]
    if kind == "tiny":
        return public.iloc[:500]
    if kind == "group":
        shares = {name: float((public[name] == 0).mean()) for name in names}
        chosen = min(names, key=lambda name: abs(shares[name] - 0.4))
        return public[public[chosen] == 0]
    if kind == "shuffled":
        return public.apply(lambda column: rng.permutation(column.to_numpy()))
    if kind == "moved":
        return public.apply(lambda column: (column + 1) % sizes[column.name])
    if kind == "mixed":
        moved = public[names[len(names) // 2 :]].iloc[rng.permutation(len(public))].reset_index(drop=True)
        return pd.concat([public[names[: len(names) // 2]].reset_index(drop=True), moved], axis=1)
    return public


def one_run(name: str, epsilon: float, kind: str, run: int) -> dict:
    """One release, judged."""
    sizes, public, confidential = halves(name)
    prior = prior_of(kind, public, sizes)
    with seeding.noise_of(f"{name}/{epsilon}/{kind}/{run}"):
        start = time.process_time()
        made = synthesize(
            confidential.reset_index(drop=True),
            Schema.from_sizes(sizes),
            epsilon=epsilon,
            delta=DELTA,
            seed=run,
            prior=prior,
            public_because="it is a published table of the benchmarks",
        )
        seconds = time.process_time() - start
    table = made.table[list(sizes)].astype("int64").to_numpy()
    errors = [mean_tvd(confidential.to_numpy(), table, list(sizes.values()), alpha) for alpha in ALPHAS]
    used = bool(made.prior and made.prior["used"])
    facts = {"data": name, "epsilon": epsilon, "kind": kind, "run": run}
    return {**facts, "tvd": errors, "used": used, "cpu": round(seconds, 1)}


def report(results: list[dict]) -> str:
    """The table."""
    lines = [
        "# Public priors\n",
        "Written by `tests/benchmarks/prior.py`: privmrf `default`, delta 1e-5, a random half of each table is",
        "confidential. The priors, made of the other half: "
        + "; ".join(f"`{kind}`: {what}" for kind, what in KINDS.items() if kind != "none")
        + ". Errors are mean total variation distances over 300 marginals of 2, 3, 4 and 5 columns; the ratio is to",
        "those without a prior. `used` is in how many runs the noisy answers bore the prior out. Noise is seeded.\n",
        "| data | epsilon | prior | runs | used | 2-way / 3-way / 4-way / 5-way | ratio | CPU s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in NAMES:
        for epsilon in EPSILONS:
            cell = [r for r in results if (r["data"], r["epsilon"]) == (name, epsilon)]
            means = {k: np.mean([r["tvd"] for r in own], axis=0) for k in KINDS if (own := _of(cell, k))}
            for kind, errors in means.items():
                own = _of(cell, kind)
                ratio = " / ".join(f"{one:.2f}" for one in errors / means["none"]) if "none" in means else ""
                shown = " / ".join(f"{one:.4f}" for one in errors)
                used = f"{sum(r['used'] for r in own)} of {len(own)}" if kind != "none" else ""
                cpu = np.mean([r["cpu"] for r in own])
                lines.append(f"| {name} | {epsilon} | {kind} | {len(own)} | {used} | {shown} | {ratio} | {cpu:.1f} |")
    return "\n".join(lines) + "\n"


def _of(results: list[dict], kind: str) -> list[dict]:
    return [r for r in results if r["kind"] == kind]


def main() -> None:
    """Run what is missing and write the report after each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=NAMES)
    parser.add_argument("--epsilon", type=float, choices=EPSILONS)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    seeding.install()
    kept = HERE / "prior.jsonl"
    kept.touch()
    results = [json.loads(line) for line in kept.read_text().splitlines()]
    done = {(r["data"], r["epsilon"], r["kind"], r["run"]) for r in results}
    for name in [arguments.only] if arguments.only else NAMES:
        for epsilon in [arguments.epsilon] if arguments.epsilon else EPSILONS:
            for kind in KINDS:
                for run in range(arguments.runs):
                    if (name, epsilon, kind, run) in done:
                        continue
                    results.append(one_run(name, epsilon, kind, run))
                    print(results[-1], flush=True)
                    with kept.open("a") as file:
                        file.write(json.dumps(results[-1]) + "\n")
                    (HERE / "prior.md").write_text(report(results))


if __name__ == "__main__":
    main()
