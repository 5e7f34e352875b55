"""Make a table by MST on the mbi engine; run as a script, in an environment that has it, with an order's address.

mbi 2.0 brings estimation and sampling but no mechanism, so MST (McKenna, Miklau & Sheldon, 2021) is written out
here: a third of the zero-concentrated budget for one-way marginals, a third to choose a spanning tree of pairs by
the exponential mechanism, a third for the chosen pairs.
"""

from __future__ import annotations

import json
import math
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

ITERATIONS = 5000


def main(address: str) -> None:
    """Read the order, measure, choose, measure, estimate, sample, write the codes."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import mbi

    order = json.loads(Path(address).read_text(encoding="utf-8"))
    names = list(order["sizes"])
    rng = np.random.default_rng(order["seed"])
    rows = np.load(order["rows"])
    domain = mbi.Domain(names, list(order["sizes"].values()))
    data = mbi.Dataset(dict(zip(names, rows.T, strict=True)), domain)
    rho = zcdp(order["epsilon"], order["delta"])

    def measured(cliques: list[tuple[str, ...]]) -> list[Any]:
        sigma = math.sqrt(3 * len(cliques) / (2 * rho))
        exact = [np.asarray(data.project(clique).datavector()) for clique in cliques]
        return [
            mbi.LinearMeasurement(counts + rng.normal(scale=sigma, size=counts.size), clique, sigma)
            for clique, counts in zip(cliques, exact, strict=True)
        ]

    answers = measured([(name,) for name in names])
    alone = mbi.estimation.MirrorDescent().estimate(domain, answers, iters=1000)
    scores: dict[tuple[str, ...], float] = {}
    for pair in combinations(names, 2):
        gap = np.asarray(data.project(pair).datavector()) - np.asarray(alone.project(pair).datavector())
        scores[pair] = float(np.abs(gap).sum())
    answers += measured(spanning_tree(names, scores, rho / 3, rng))
    model = mbi.estimation.MirrorDescent().estimate(domain, answers, iters=ITERATIONS)
    table = model.synthetic_data(rows=len(rows)).to_dict()
    np.save(order["out"], np.column_stack([table[name] for name in names]).astype(np.int32))


def spanning_tree(
    names: list[str], scores: dict[tuple[str, ...], float], rho: float, rng: np.random.Generator
) -> list[tuple[str, ...]]:
    """Edges of a spanning tree, each drawn by the exponential mechanism among those that join two parts."""
    epsilon = math.sqrt(8 * rho / (len(names) - 1))
    part = {name: name for name in names}
    tree = []
    for _ in range(len(names) - 1):
        open_pairs = [pair for pair in scores if part[pair[0]] != part[pair[1]]]
        utility = np.array([scores[pair] for pair in open_pairs]) * epsilon / 2
        weights = np.exp(utility - utility.max())
        chosen = open_pairs[rng.choice(len(open_pairs), p=weights / weights.sum())]
        tree.append(chosen)
        old, new = part[chosen[1]], part[chosen[0]]
        part = {name: new if at == old else at for name, at in part.items()}
    return tree


def zcdp(epsilon: float, delta: float) -> float:
    """The largest rho whose best conversion (Canonne, Kamath & Steinke) is within (epsilon, delta), by bisection."""

    def delta_at(rho: float) -> float:
        orders = 1 + np.geomspace(1e-3, 1e4, 4000)
        logs = (orders - 1) * (orders * rho - epsilon) + orders * np.log1p(-1 / orders) - np.log(orders - 1)
        return float(np.exp(min(0.0, logs.min())))

    low, high = 0.0, epsilon + 1.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_at(middle) <= delta else (low, middle)
    return low


if __name__ == "__main__":
    main(sys.argv[1])
