"""Private-PGM (McKenna, Sheldon & Miklau, ICML 2019): how estimation scales with the number of attributes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, lsmr

from synth_core.arrays import NUMPY
from synth_core.domain import Domain
from synth_core.models.inference import marginal_oracle
from synth_core.models.junction_tree import junction_tree
from tests.benchmarks.papers.figures import COLOURS, Figure, Result, means, table

SIZE = 10
"""Codes of each attribute."""
ATTRIBUTES = {"PGM": (3, 5, 7, 10, 30, 100, 300, 1000), "MW": (3, 4, 5, 6, 7), "LSMR": (3, 4, 5, 6, 7)}
ITERATIONS = 3
"""Iterations that are timed; the fastest counts."""


def measure(cell: dict[str, Any]) -> dict[str, float]:
    """CPU seconds of one iteration."""
    d = cell["attributes"]
    step = {"PGM": graphical, "MW": weights, "LSMR": least_squares}[cell["algorithm"]](d)
    step()  # the first one compiles and allocates
    seconds = []
    for _ in range(ITERATIONS):
        begun = time.process_time()
        step()
        seconds.append(time.process_time() - begun)
    return {"seconds": min(seconds)}


def graphical(d: int) -> Callable[[], Any]:
    """A pass of belief propagation over the triples of adjacent attributes, with the step that follows it."""
    domain = Domain.of({f"x{k}": SIZE for k in range(d)})
    cliques = [domain.attributes[k : k + 3] for k in range(d - 2)]
    oracle = marginal_oracle(junction_tree(domain, cliques), cliques, NUMPY)
    target = np.random.default_rng(0).dirichlet(np.ones(SIZE**3), size=d - 2).ravel()
    potentials = np.zeros(target.size)

    def step() -> float:
        nonlocal potentials
        off = oracle(potentials)[0] - target
        potentials = potentials - off
        return float(np.abs(off).sum())

    return step


def _triples(p: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    axes = range(p.ndim)
    return [p.sum(axis=tuple(a for a in axes if not k <= a < k + 3)) for k in range(p.ndim - 2)]


def _spread(tables: Sequence[NDArray[np.float64]], d: int) -> NDArray[np.float64]:
    found = np.zeros((SIZE,) * d)
    for k, values in enumerate(tables):
        found += values.reshape((1,) * k + values.shape + (1,) * (d - 3 - k))
    return found


def weights(d: int) -> Callable[[], Any]:
    """Multiplicative weights on the vector of all cells, all triples at once."""
    rng = np.random.default_rng(0)
    target = [rng.dirichlet(np.ones(SIZE**3)).reshape((SIZE,) * 3) for _ in range(d - 2)]
    p = np.full((SIZE,) * d, SIZE**-d, dtype=np.float64)

    def step() -> float:
        nonlocal p
        off = [t - m for t, m in zip(target, _triples(p), strict=True)]
        p = p * np.exp(_spread(off, d) / 2)
        p /= p.sum()
        return float(sum(np.abs(part).sum() for part in off))

    return step


def least_squares(d: int) -> Callable[[], Any]:
    """One iteration of LSMR on the vector of all cells."""
    shape, rows = (SIZE,) * d, (d - 2) * SIZE**3
    operator = LinearOperator(
        (rows, SIZE**d),
        matvec=lambda p: np.concatenate([t.ravel() for t in _triples(p.reshape(shape))]),
        rmatvec=lambda y: _spread(list(y.reshape(d - 2, SIZE, SIZE, SIZE)), d).ravel(),
    )
    target = np.random.default_rng(0).random(rows)
    return lambda: lsmr(operator, target, maxiter=1)


def show(results: Sequence[Result]) -> str:
    """The times, and whether only the graphical model goes beyond the vector of all cells."""
    found = means(results, "seconds", ("algorithm", "attributes"))
    widths = sorted({width for _, width in found})
    rows = [[str(width), *(_cell(found.get((name, width))) for name in ATTRIBUTES)] for width in widths]
    growth = {name: power([(w, found[n, w][0]) for n, w in found if n == name]) for name in ATTRIBUTES}
    holds = growth["PGM"] < 1.5 and min(growth["MW"], growth["LSMR"]) > 3
    claim = (
        f"**The claim {'reproduces' if holds else 'does not reproduce'}**: from its smallest to its largest number of "
        f"attributes d the time grows as d to the power {growth['PGM']:.1f} with the graphical model, "
        f"{growth['MW']:.1f} with MW and {growth['LSMR']:.1f} with LSMR, which need a vector of 10^d cells."
    )
    return table(["attributes", *ATTRIBUTES], rows) + "\n\n" + claim


def power(points: Sequence[tuple[int, float]]) -> float:
    """The power of d by which time grows between the smallest and the largest d."""
    (low, first), (high, last) = min(points), max(points)
    return math.log(max(last, 1e-9) / max(first, 1e-9)) / math.log(high / low) if high > low else math.nan


def _cell(found: tuple[float, int] | None) -> str:
    return "–" if found is None else f"{found[0] * 1000:,.2f} ms ({found[1]})"


def draw(axes: Any, results: Sequence[Result]) -> None:
    """Time for an iteration against the number of attributes."""
    found = means(results, "seconds", ("algorithm", "attributes"))
    for name, colour in zip(ATTRIBUTES, COLOURS, strict=False):
        points = sorted((width, value) for (own, width), (value, _) in found.items() if own == name)
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", color=colour, label=name)
    axes.set(xscale="log", yscale="log", xlabel="attributes of 10 codes", ylabel="CPU seconds for an iteration")
    axes.legend()


TITLE = "Private-PGM: figures of the paper"
FIGURES = [
    Figure(
        name="2b",
        title="Figure 2b: scalability of estimation algorithms",
        setting="CPU seconds of one iteration on one thread, marginals of all triples of adjacent attributes, 10 codes "
        "each. The paper shows 3 to 1,000 attributes and says that MW and LSMR fail beyond 10; here these stop at 7, "
        "at 80 MB a vector.",
        cells=[{"algorithm": name, "attributes": d} for name, widths in ATTRIBUTES.items() for d in widths],
        measure=measure,
        show=show,
        draw=draw,
    )
]
