"""What edit rules cost and save: the generated population, whose data obey 24 rules, with and without declaring them.

Run as `python tests/benchmarks/rules.py [--runs N] [--methods NAME,...]`; one thread. Each result is kept in
rules.jsonl and not made again; rules.md is written from it.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from kept import keep_result, read_results
from yardstick import mean_tvd

from synth_core.domain import Domain, breaking_rows
from synth_core.example.population import EXAMPLE_ROWS, EXAMPLE_SEED, generate, population_schema
from synth_core.ledger.memory import MemoryLedger
from synth_core.models.mixture import Model
from synth_core.privacy.accounts import Account
from synth_core.privacy.budget import mu2_of
from synth_core.privacy.curator import Curator, Spending
from synth_core.schema.codec import decode, encode
from synth_core.storage.counting import TableCounts
from synth_core.synthesizers.base import Tools
from synth_core.synthesizers.methods import synthesizer

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "rules.jsonl", HERE / "rules.md"
EPSILONS, DELTA, ALPHAS = (0.1, 0.8, 3.2), 1e-6, (1, 2, 3)
METHODS = ("privmrf", "mst", "swift", "privmn", "privbayes:paper")
MANY, SHARD, DECODED = 10_000_000, 1_000_000, 1_000_000


def fitted(method: str, domain: Domain, codes: dict[str, np.ndarray], epsilon: float) -> Model:
    """One whole conversation."""
    name, _, preset = method.partition(":")
    built = synthesizer(name, preset or "default", {"generation": "dealt"} if name == "privbayes" else None)
    plan = built.plan(domain, mu2_of(epsilon, DELTA))
    ledger = MemoryLedger()
    ledger.declare(Account(dataset="people", delta=DELTA, cap_epsilon=epsilon), actor="benchmark")
    spending = Spending(dataset="people", snapshot="s", release="r", step="all")
    curator = Curator(counts=TableCounts(codes, domain), ledger=ledger, spending=spending)
    return built.fit(curator, plan, built.select(curator, plan, built.score(curator, plan)), Tools())


def judged(method: str, *, declared: bool, epsilon: float, run: int) -> dict:
    """A table of as many rows as the data, with its errors and the rows that break a rule."""
    schema = population_schema()
    codes = encode(generate(EXAMPLE_ROWS, EXAMPLE_SEED), schema)
    real = np.column_stack([codes[name] for name in schema.domain])
    begun = time.process_time()
    model = fitted(method, schema.domain if declared else schema.domain.unruled, codes, epsilon)
    made = model.sample(len(real), np.random.default_rng(run))
    cpu = time.process_time() - begun
    return {
        "method": method,
        "rules": declared,
        "epsilon": epsilon,
        "run": run,
        "tvd": [mean_tvd(real, made, schema.domain.sizes, alpha) for alpha in ALPHAS],
        "broken": float(breaking_rows(made, schema.domain).mean()),
        "cpu": round(cpu, 1),
    }


def many_rows() -> dict:
    """Ten million rows of one model, counted as codes, and a part of them decoded and counted as rows."""
    schema = population_schema()
    model = fitted("privmrf", schema.domain, encode(generate(EXAMPLE_ROWS, EXAMPLE_SEED), schema), 0.8)
    rng = np.random.default_rng(0)
    broken = 0
    for number in range(MANY // SHARD):
        rows = model.sample(SHARD, rng)
        broken += int(breaking_rows(rows, schema.domain).sum())
        if number == 0:
            found = schema.violations(decode(rows[:DECODED], schema, rng))
            decoded = int(np.any(list(found.values()), axis=0).sum())
    return {"rows": MANY, "broken": broken, "decoded_rows": DECODED, "decoded_broken": decoded}


def line(results: list[dict], method: str, epsilon: float) -> str:
    """A row of the table: with rules, without, and how many rows then break one."""
    chosen = [r for r in results if (r.get("method"), r.get("epsilon")) == (method, epsilon)]
    sides = [[r for r in chosen if r["rules"] is declared] for declared in (True, False)]
    errors = [np.mean([r["tvd"] for r in side], axis=0) for side in sides]
    shown = [" / ".join(f"{e:.4f}".lstrip("0") for e in error) for error in errors]
    broken = [np.mean([r["broken"] for r in side]) for side in sides]
    cpu = [np.mean([r["cpu"] for r in side]) for side in sides]
    ratios = " / ".join(f"{r:.2f}" for r in errors[0] / errors[1])
    return (
        f"| {method} | {epsilon:g} | {shown[0]} | {shown[1]} | {ratios} | {broken[0]:.2%} | {broken[1]:.2%} "
        f"| {cpu[0]:.1f} | {cpu[1]:.1f} | {len(sides[0])} |"
    )


def page(results: list[dict]) -> str:
    """The tables."""
    many = next(r for r in results if "rows" in r)
    methods = list(dict.fromkeys(r["method"] for r in results if "method" in r))
    rows = [line(results, method, epsilon) for method in methods for epsilon in EPSILONS]
    return (
        f"""# Edit rules: figures

Written by `tests/benchmarks/rules.py`. The generated population ({EXAMPLE_ROWS:,} rows, 14 columns; its 24 rules hold
in every row), delta {DELTA:g}, one thread; the same data with the rules declared and with the rules left out. Errors
are mean total variation distances of fixed 1-, 2- and 3-way marginals; below a ratio of 1, declaring the rules helps.

{many["rows"]:,} rows of a privmrf model at epsilon 0.8, drawn in shards of {SHARD:,}: **{many["broken"]} break a rule**
(counted on codes; of {many["decoded_rows"]:,} of them decoded and counted as rows, {many["decoded_broken"]}).

The models of privmrf, mst, swift and privmn hold the rules and are fitted with them. The network of privbayes:paper is
drawn around them (`generation: dealt`; counting down is refused there): what is drawn late gives way, which at epsilon
0.1, where tables are mostly noise, shows in single columns.

| method | epsilon | 1 / 2 / 3-way, rules declared | not declared | ratio | rows that break a rule, declared """
        """| not declared | CPU s, declared | not | runs |
|---|---|---|---|---|---|---|---|---|---|
""" + "\n".join(rows) + "\n"
    )


def main() -> None:
    """Make what is missing, then the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--methods", default=",".join(METHODS))
    asked = parser.parse_args()
    results = read_results(RESULTS)

    def keep(result: dict) -> None:
        results.append(result)
        keep_result(RESULTS, result)

    known = {(r["method"], r["rules"], r["epsilon"], r["run"]) for r in results if "method" in r}
    if not any("rows" in r for r in results):
        keep(many_rows())
    for method in asked.methods.split(","):
        for epsilon in EPSILONS:
            for run in range(asked.runs):
                for declared in (True, False):
                    if (method, declared, epsilon, run) not in known:
                        keep(judged(method, declared=declared, epsilon=epsilon, run=run))
    PAGE.write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
