"""Releases of public tables as a paper makes them: what one of them costs and misses, and tables of such figures."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from synth_core import Schema, synthesize
from synth_core.domain import Domain
from synth_core.ledger.memory import MemoryLedger
from synth_core.privacy.accounts import Account
from synth_core.privacy.budget import epsilon_of
from synth_core.privacy.curator import Curator, Spending
from synth_core.storage.counting import TableCounts
from tests.benchmarks.papers.figures import COLOURS, ROOT, Contestant, Result, means, table, ticks_at
from tests.benchmarks.yardstick import mean_tvd, wrong_predictions

DATA = ROOT.parent / "shared" / "data"
DELTA = 1e-6
"""Of accounts that only a benchmark has."""
REAL = "real rows"
"""The contestant that publishes the confidential rows, for classifiers."""
Maker = Callable[..., np.ndarray]
"""Makes the rows of a release as `release` does."""
Judge = Callable[[np.ndarray, np.ndarray, Domain], dict[str, float]]
"""Errors by target of what was learned from rows, on other rows."""
TEST_SHARE = 5
"""One row in so many is held out from synthesis and tests the classifiers."""


class Public(NamedTuple):
    """A public table of codes."""

    rows: pd.DataFrame
    sizes: dict[str, int]

    @classmethod
    def load(cls, name: str) -> Public:
        """Read a table and the sizes of its columns."""
        sizes = json.loads((DATA / f"{name}-domain.json").read_text())
        return cls(pd.read_csv(DATA / f"{name}.csv")[list(sizes)], sizes)


def release(rows: pd.DataFrame, sizes: dict[str, int], scheme: str, *, epsilon: float, delta: float) -> np.ndarray:
    """The codes of a synthetic table."""
    contestant = Contestant.parse(scheme)
    made = synthesize(
        rows,
        Schema.from_sizes(sizes),
        method=contestant.method,
        preset=contestant.preset,
        options=contestant.options,
        epsilon=epsilon,
        delta=delta,
    )
    return made.table[list(sizes)].astype("int64").to_numpy()


def public_curator(rows: pd.DataFrame, domain: Domain, mu2: Fraction) -> Curator:
    """A curator of a public table, with an account that has as much to spend."""
    ledger = MemoryLedger()
    ledger.declare(Account(dataset="public", delta=DELTA, cap_epsilon=1.01 * epsilon_of(mu2, DELTA)), actor="benchmark")
    counts = TableCounts({name: rows[name].to_numpy() for name in domain}, domain)
    spending = Spending(dataset="public", snapshot="s", release="r", step="all")
    return Curator(counts=counts, ledger=ledger, spending=spending)


def marginal_errors(
    cell: dict[str, Any], *, delta: float, alphas: Iterable[int], make: Maker = release
) -> dict[str, float]:
    """Mean total variation (half of L1) of marginals of one release, and the CPU seconds that it took."""
    public, begun = Public.load(cell["data"]), time.process_time()
    made = make(public.rows, public.sizes, cell["scheme"], epsilon=cell["epsilon"], delta=delta)
    seconds = time.process_time() - begun
    real, sizes = public.rows.to_numpy(), list(public.sizes.values())
    return {f"tvd{a}": mean_tvd(real, made, sizes, a) for a in alphas} | {"seconds": seconds}


def svm_errors(
    cell: dict[str, Any], *, delta: float, make: Maker = release, judge: Judge = wrong_predictions
) -> dict[str, float]:
    """Shares of held-out real rows that classifiers, learned from one release, get wrong: each, and their mean.

    The synthesis does not see the rows that test it.
    """
    public = Public.load(cell["data"])
    domain = Domain.of(public.sizes)
    order = np.random.default_rng(0).permutation(len(public.rows))
    tested, rest = np.split(order, [len(order) // TEST_SHARE])
    known = public.rows.iloc[rest]
    real = cell["scheme"] == REAL
    training = (
        known.to_numpy() if real else make(known, public.sizes, cell["scheme"], epsilon=cell["epsilon"], delta=delta)
    )
    test = public.rows.iloc[tested].to_numpy()
    errors = judge(training, test, domain)
    return errors | {"mean": float(np.mean(list(errors.values())))}


def cell_text(found: tuple[float, int] | None, digits: int = 4) -> str:
    """A mean with its number of runs, or a dash."""
    return "–" if found is None else f"{found[0]:.{digits}f} ({found[1]})"


def by_scheme(
    results: Sequence[Result],
    value: str,
    schemes: Sequence[str],
    *,
    keys: Sequence[str] = ("data", "epsilon"),
    digits: int = 4,
) -> str:
    """A table with a line for each setting and a column for each scheme."""
    found = means(results, value, (*keys, "scheme"))
    places = list(dict.fromkeys(key[:-1] for key in found))
    places.sort(key=lambda place: [str(part) if isinstance(part, str) else f"{part:09.4f}" for part in place])
    rows = [
        [*(f"{part:g}" if isinstance(part, float | int) else part for part in place)]
        + [cell_text(found.get((*place, scheme)), digits) for scheme in schemes]
        for place in places
    ]
    return table([*keys, *schemes], rows)


def count_best(
    results: Sequence[Result],
    value: str,
    schemes: Sequence[str],
    *,
    first: str,
    keys: Sequence[str] = ("data", "epsilon"),
) -> tuple[int, int]:
    """In how many settings `first` has the least mean, of those in which all schemes were run."""
    found = means(results, value, (*keys, "scheme"))
    places = [p for p in dict.fromkeys(key[:-1] for key in found) if all((*p, s) in found for s in schemes)]
    return sum(min(schemes, key=lambda s: found[*place, s][0]) == first for place in places), len(places)


NOISE = 0.05
"""Share by which an error may rise from one epsilon to the next before it is named: runs differ by as much and more."""


def rising_steps(
    results: Sequence[Result], value: str, schemes: Sequence[str]
) -> tuple[list[tuple[str, str, float, float, float]], int]:
    """Steps from one epsilon to the next at which a mean error rises by more than `NOISE`, and the number of all steps.

    Returns:
        Table, scheme, both epsilons and the ratio of the errors for each of these steps; and the number of all steps.
    """
    found = means(results, value, ("data", "scheme", "epsilon"))
    rises, steps = [], 0
    for data, scheme in dict.fromkeys((data, scheme) for data, scheme, _ in found if scheme in schemes):
        own = sorted((epsilon, mean) for (d, s, epsilon), (mean, _) in found.items() if (d, s) == (data, scheme))
        for (low, before), (high, after) in pairwise(own):
            steps += 1
            if after > before * (1 + NOISE):
                rises.append((data, scheme, low, high, after / before))
    return rises, steps


def said_of_rises(found: tuple[list[tuple[str, str, float, float, float]], int]) -> str:
    """A sentence about `rising_steps`."""
    rises, steps = found
    said = f"From one epsilon to the next the error rises by more than {NOISE:.0%} in {len(rises)} of {steps} steps"
    listed = "; ".join(f"`{s}` on {d} from {low:g} to {high:g} (× {r:.2f})" for d, s, low, high, r in rises)
    return f"{said}: {listed}." if rises else f"{said}."


def draw_by_epsilon(
    data: str, value: str, schemes: Sequence[str], label: str, *, scale: str = "log"
) -> Callable[[Any, Sequence[Result]], None]:
    """A picture of one table's errors against epsilon."""

    def draw(axes: Any, results: Sequence[Result]) -> None:
        found = means(results, value, ("data", "epsilon", "scheme"))
        for scheme, colour in zip(schemes, COLOURS[: len(schemes)], strict=True):
            points = sorted((e, v) for (own, e, s), (v, _) in found.items() if (own, s) == (data, scheme))
            if points:
                axes.plot(*zip(*points, strict=True), marker="o", color=colour, label=scheme)
        axes.set(yscale=scale, xlabel="epsilon", ylabel=f"{label}, {data}")
        ticks_at(axes, [epsilon for own, epsilon, _ in found if own == data])

    return draw
