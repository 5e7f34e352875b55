"""The peer's side of the engine benchmark: run one case with mbi and print what it cost as JSON.

Runs in mbi's own environment: `python engine_mbi.py pass CASE.npz`, `fit CASE.npz METHOD` or `marginals FOLDER`. One
thread, float64.
"""

import contextlib
import json
import os
import resource
import sys
import time
from pathlib import Path

# jax reads its flags when it is imported.
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402
from mbi import CliqueVector, Domain, Factor, LinearMeasurement, marginal_oracles  # noqa: E402
from mbi.estimation import LBFGS, DualAveraging, InteriorGradient, MirrorDescent, UniversalAcceleratedMethod  # noqa: E402

ESTIMATORS = {
    "mirror descent": MirrorDescent,
    "dual averaging": DualAveraging,
    "interior gradient": InteriorGradient,
    "accelerated": UniversalAcceleratedMethod,
    "L-BFGS": LBFGS,
}

LONGEST = 30.0
"""CPU seconds after which a fit is stopped where it is."""


class Reached(Exception):
    """The loss is at its target, or the time is up."""


def tables(case):
    domain = Domain(case["attributes"].tolist(), case["sizes"].tolist())
    cliques = [tuple(clique.split("|")) for clique in case["cliques"]]
    parts, start = [], 0
    for clique in cliques:
        end = start + int(domain.project(clique).size())
        parts.append(case["values"][start:end])
        start = end
    return domain, cliques, parts


def vector(domain, cliques, parts):
    found = {}
    for clique, part in zip(cliques, parts, strict=True):
        own = domain.project(clique)
        found[clique] = Factor(own, jax.numpy.asarray(part.reshape(own.shape)))
    return CliqueVector(domain, cliques, found)


def one_pass(case):
    domain, cliques, parts = tables(case)
    potentials = vector(domain, cliques, parts)
    found = {}
    for oracle in (marginal_oracles.message_passing_hugin, marginal_oracles.message_passing_shafer_shenoy):
        begin = time.process_time()
        compiled = jax.jit(oracle)
        jax.block_until_ready(compiled(potentials, 1.0))
        first, best = time.process_time() - begin, float("inf")
        for _ in range(15):
            begin = time.process_time()
            jax.block_until_ready(compiled(potentials, 1.0))
            best = min(best, time.process_time() - begin)
        if best < found.get("seconds", float("inf")):
            found = {"seconds": best, "first": first, "oracle": oracle.__name__}
    return found


def marginals(folder):
    """Every case's marginals, in the order of its cliques; permuted duplicates share one table."""
    found = {}
    for path in sorted(Path(folder).glob("*.npz")):
        domain, cliques, parts = tables(load(path))
        own = {}
        for clique, part in zip(cliques, parts, strict=True):
            key = tuple(sorted(clique))
            turned = part.reshape(domain.project(clique).shape).transpose([clique.index(a) for a in key])
            own[key] = own.get(key, 0.0) + turned
        vectors = vector(domain, list(own), list(own.values()))
        solved = marginal_oracles.message_passing_shafer_shenoy(vectors, 1.0)
        values = {c: np.asarray(solved[tuple(sorted(c))].values) for c in cliques}
        turned = [values[c].transpose([sorted(c).index(a) for a in c]).ravel() for c in cliques]
        found[path.stem] = np.concatenate(turned).tolist()
    return found


def fit(case, name):
    domain, cliques, parts = tables(case)
    sigma, total = float(case["sigma"]), float(case["total"])
    target = sum(part.size for part in parts) / 2
    measured = [LinearMeasurement(part, clique, stddev=sigma) for clique, part in zip(cliques, parts, strict=True)]
    losses = []

    def watch(solution):
        """Every estimator hands its current marginals to its callback."""
        loss = 0.0
        for clique, part in zip(cliques, parts, strict=True):
            residual = np.asarray(solution.project(clique).datavector()) - part
            loss += float(residual @ residual) / (2 * sigma**2)
        losses.append(loss)
        if loss <= target or time.process_time() - begin > LONGEST:
            raise Reached

    begin = time.process_time()
    with contextlib.suppress(Reached):
        ESTIMATORS[name]().estimate(domain, measured, known_total=total, iters=3000, callback_fn=watch)
    return {"seconds": time.process_time() - begin, "loss": losses[-1] / target, "steps": 50 * len(losses)}


def load(path):
    with np.load(path, allow_pickle=False) as stored:
        return dict(stored)


if __name__ == "__main__":
    kind, where, *rest = sys.argv[1:]
    if kind == "marginals":
        result = marginals(where)
    else:
        result = fit(load(where), *rest) if kind == "fit" else one_pass(load(where))
        result["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(result))
