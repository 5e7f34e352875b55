"""What is written by hand against the library that could do it: L-BFGS (scipy) and triangulation (networkx).

Run on a quiet machine with one thread: `python tests/benchmarks/by_hand.py`. Ratios are of one run; the headers of
`models/maximum_entropy.py` and `models/junction_tree.py` quote them.
"""

from __future__ import annotations

import itertools
import math
import timeit

import networkx as nx
import numpy as np
from scipy.optimize import minimize

from synth_core.arrays import NUMPY
from synth_core.domain import Domain
from synth_core.measurement import Measurement
from synth_core.models import maximum_entropy as engine
from synth_core.models.inference import marginal_oracle
from synth_core.models.junction_tree import junction_tree
from synth_core.models.losses import Problem, merge_measurements
from synth_core.models.triangulation import TriangulatedGraph

SIZES = (2, 3, 4, 5, 7, 9, 16)


def lbfgs(columns: int, sigma: float, until: float) -> tuple[int, dict[str, int]]:
    """Passes of inference until the loss is at the level of noise: ours, and scipy's plain and preconditioned."""
    rng = np.random.default_rng(columns)
    domain = Domain.of({f"a{k}": int(rng.choice(SIZES)) for k in range(columns)})
    codes = np.zeros((20_000, columns), dtype=np.int64)
    latent = rng.integers(0, 6, 20_000)
    for k, size in enumerate(domain.sizes):
        noisy = rng.random(20_000) < 0.4
        codes[:, k] = np.where(noisy, rng.integers(0, size, 20_000), (latent * (k + 1)) % size)
    pairs = [(a, b) for a, b in itertools.pairwise(domain.attributes)]
    pairs += [(a, c) for a, _, c in zip(domain, list(domain)[1:], list(domain)[2:], strict=False)]
    measurements = []
    for pair in [*((a,) for a in domain), *pairs]:
        shape = domain.shape(pair)
        index = np.ravel_multi_index([codes[:, domain.position(a)] for a in pair], shape)
        counts = np.bincount(index, minlength=math.prod(shape)).reshape(shape)
        measurements.append(Measurement(pair, counts + rng.normal(0, sigma, shape), sigma))
    problem = Problem.of(domain, merge_measurements(domain, measurements), total=20_000.0, arrays=NUMPY)
    oracle = marginal_oracle(junction_tree(domain, problem.cliques), problem.cliques, NUMPY)
    passes = [0]

    def counted(potentials):
        passes[0] += 1
        return oracle(potentials)

    start = problem.multipliers(None)
    engine.maximum_entropy(problem, counted, start, until=until, max_passes=3000)
    ours = passes[0]
    radius = math.sqrt(2 * engine.SLACK * until * float(problem.expected.sum()))
    found = {}
    first = engine._Search(problem, oracle, 3000, None).evaluated(start, radius)
    poisson = np.sqrt(problem.curvature(first.marginals) + 1.0)
    for name, scale in {"plain": np.ones_like(start), "preconditioned": poisson}.items():
        passes[0] = 0

        def dual(z, scale=scale):
            point = engine._Search(problem, counted, 3000, None).evaluated(z / scale, radius)
            if problem.fitted(point.residual, point.gradient, until)[1]:
                raise StopIteration
            return point.value, point.gradient / scale

        try:
            minimize(
                dual,
                start * scale,
                jac=True,
                method="L-BFGS-B",
                options={"maxcor": engine.MEMORY, "maxfun": 3000, "maxiter": 3000, "ftol": 0, "gtol": 0},
            )
            found[name] = -passes[0]  # it stopped elsewhere
        except StopIteration:
            found[name] = passes[0]
    return ours, found


def triangulation(columns: int, edges: int) -> dict[str, tuple[float, int]]:
    """Least seconds of several tries and cells of the cliques: ours by three rules, networkx by min-fill.

    A trial is what a method asks of each candidate: which cliques one more pair would bring. networkx has no update, so
    it starts anew.
    """
    rng = np.random.default_rng(edges)
    domain = Domain.of({f"a{k}": int(rng.choice(SIZES)) for k in range(columns)})
    named = [tuple(map(str, rng.choice(domain.attributes, 2, replace=False))) for _ in range(edges + 20)]
    named, trials = named[:edges], named[edges:]
    graph = nx.Graph()
    graph.add_nodes_from(domain)
    graph.add_edges_from(named)
    growing = TriangulatedGraph.empty(domain)
    for a, b in named:
        growing = growing.with_edge(a, b)
    growing = growing.retriangulated()

    def retry(a, b):
        longer = graph.copy()
        longer.add_edge(a, b)
        return nx.approximation.treewidth_min_fill_in(longer)

    _, decomposition = nx.approximation.treewidth_min_fill_in(graph)
    cells = sum(math.prod(domain.size(a) for a in clique) for clique in decomposition.nodes)
    return {
        "ours": (least(lambda: junction_tree(domain, named)), junction_tree(domain, named).cells),
        "networkx": (least(lambda: nx.approximation.treewidth_min_fill_in(graph)), cells),
        "ours, a trial": (least(lambda: [growing.change(a, b) for a, b in trials]) / len(trials), 0),
        "networkx, a trial": (least(lambda: [retry(a, b) for a, b in trials]) / len(trials), 0),
    }


def least(work) -> float:
    """The least of ten times, in seconds."""
    return min(timeit.repeat(work, number=1, repeat=10))


def main() -> None:
    """Print both comparisons."""
    print("passes of inference until the loss is that of noise; negative: stopped elsewhere")
    for columns, sigma, until in itertools.product((8, 16, 30), (5.0, 50.0), (1.0, 0.6)):
        ours, found = lbfgs(columns, sigma, until)
        print(f"{columns} columns, sigma {sigma:g}, until {until}: ours {ours}, scipy {found}")
    print("milliseconds and cells of a triangulation; milliseconds of a trial edge")
    for columns, edges in ((15, 25), (30, 45), (98, 120)):
        for name, (seconds, cells) in triangulation(columns, edges).items():
            print(f"{columns} columns, {edges} pairs: {name:24} {seconds * 1e3:9.2f} ms {cells:,} cells")


if __name__ == "__main__":
    main()
