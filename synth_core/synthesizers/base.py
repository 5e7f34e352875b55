"""What every method is: a conversation with a curator in three phases, each leaving a public artifact."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain
from synth_core.errors import SpecError
from synth_core.measurement import Measurement
from synth_core.models.estimators import estimate
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.privacy.budget import BudgetPlan
from synth_core.privacy.curator import Curator

Progress = Callable[[str], None]
Estimator = Callable[..., MarkovRandomField]


def silent(message: str) -> None:
    """Report progress to nobody."""


class Model(Protocol):
    """A fitted distribution; everything about it is public."""

    @property
    def domain(self) -> Domain:
        """The attributes and their sizes."""
        ...

    @property
    def total(self) -> float:
        """Estimated number of records."""
        ...

    def marginal(self, clique: Clique) -> NDArray[np.float64]:
        """Expected counts of the clique's cells."""
        ...

    def sample(self, rows: int, rng: np.random.Generator) -> NDArray[Any]:
        """Rows of codes, in the domain's order."""
        ...

    def save(self, path: Path) -> None:
        """Write the model."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """What the score phase learned: the noisy number of records, noisy dependence of pairs, noisy marginals."""

    total: float
    pairs: tuple[tuple[str, str, float], ...] = ()
    measurements: tuple[Measurement, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """What the select phase decided: where candidates may lie and which marginals are measured first."""

    scores: Scores
    cliques: tuple[Clique, ...] = ()
    initial: tuple[Clique, ...] = ()
    largest_table: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """One model to estimate, as data that can travel to a worker; the settings are those of the estimator."""

    domain: Domain
    measurements: tuple[Measurement, ...]
    settings: dict[str, Any]

    def by(self, estimator: Estimator) -> MarkovRandomField:
        """The model."""
        return estimator(self.domain, self.measurements, **self.settings)


@dataclass(frozen=True, slots=True)
class Tools:
    """What a runner lends to the fit: an estimator (perhaps on another machine) and someone to tell of progress.

    `spread` estimates several models that do not depend on each other at the same time, where the runner has workers.
    """

    estimate: Estimator = estimate
    progress: Progress = silent
    spread: Callable[[Sequence[Fit]], list[MarkovRandomField]] | None = None

    def estimate_each(self, fits: Sequence[Fit]) -> list[MarkovRandomField]:
        """All the models, in the order given."""
        return self.spread(fits) if self.spread else [fit.by(self.estimate) for fit in fits]


class Synthesizer(Protocol):
    """Three phases = three tasks of the pipeline; the plan is made before any data is opened."""

    def plan(self, domain: Domain, total_mu2: Fraction) -> BudgetPlan:
        """Named shares of the budget, before any data is opened."""
        ...

    def score(self, curator: Curator, plan: BudgetPlan) -> Scores:
        """First questions: what depends on what."""
        ...

    def select(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> Structure:
        """Which marginals to measure; often pure post-processing."""
        ...

    def fit(self, curator: Curator, plan: BudgetPlan, structure: Structure, tools: Tools) -> Model:
        """Measure and estimate."""
        ...

    def preview(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        """Named facts about what a plan means, for people."""
        ...


def with_options(preset: Any, options: dict[str, Any], *, method: str) -> Any:
    """The preset with some constants replaced; an unknown one is refused by name."""
    known = {field.name: field for field in fields(preset)}
    values = {field: getattr(preset, field) for field in known}
    for name, value in options.items():
        if name not in known:
            raise SpecError(f"options: {method} has no option {name!r} (it has: {', '.join(known)})")
        kind = type(values[name])
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value) is not kind:
            raise SpecError(f"options: {name} must be of type {kind.__name__}")
        values[name] = value
    return type(preset)(**values)


def save_scores(scores: Scores, path: Path) -> None:
    """Write scores as JSON."""
    path.write_text(json.dumps(_scores_json(scores)), encoding="utf-8")


def load_scores(path: Path) -> Scores:
    """Read scores."""
    return _scores(json.loads(path.read_text(encoding="utf-8")))


def save_structure(structure: Structure, path: Path) -> None:
    """Write a structure, with the scores it came from, as JSON."""
    values = {
        "scores": _scores_json(structure.scores),
        "cliques": structure.cliques,
        "initial": structure.initial,
        "largest_table": structure.largest_table,
    }
    path.write_text(json.dumps(values), encoding="utf-8")


def load_structure(path: Path) -> Structure:
    """Read a structure."""
    values = json.loads(path.read_text(encoding="utf-8"))
    return Structure(
        _scores(values["scores"]),
        _cliques(values["cliques"]),
        _cliques(values["initial"]),
        values["largest_table"],
    )


def _scores_json(scores: Scores) -> dict[str, Any]:
    return {
        "total": scores.total,
        "pairs": scores.pairs,
        "measurements": [
            {"clique": m.clique, "noisy": m.noisy.tolist(), "sigma": m.sigma} for m in scores.measurements
        ],
    }


def _scores(values: dict[str, Any]) -> Scores:
    return Scores(
        values["total"],
        tuple((a, b, float(score)) for a, b, score in values["pairs"]),
        tuple(
            Measurement(tuple(m["clique"]), np.array(m["noisy"]), m["sigma"]) for m in values["measurements"]
        ),
    )


def _cliques(values: Sequence[Sequence[str]]) -> tuple[Clique, ...]:
    return tuple(tuple(clique) for clique in values)
