"""What every method is: a conversation with a curator in three phases, each leaving a public artifact.

Overlapping noisy marginals are pooled for the last fit that several methods share (`last_fit`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import Field, asdict, dataclass, field, fields, replace
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import numpy as np

from synth_core.arrays import Floats
from synth_core.documents import read_json
from synth_core.domain import Clique, Domain
from synth_core.errors import SourceError, SpecError
from synth_core.measurement import EarlierRelease, Measurement, total_by_inverse_variance
from synth_core.models.calibration import Factor
from synth_core.models.linear import Answered
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.maximum_entropy import estimate
from synth_core.models.mixture import Model
from synth_core.models.reference import Reference
from synth_core.privacy.budget import BudgetPlan, gaussian_for
from synth_core.privacy.curator import Curator
from synth_core.privacy.queries import Counts

T = TypeVar("T")
Progress = Callable[[str], None]
Estimator = Callable[..., MarkovRandomField]
PairScores = tuple[tuple[str, str, float], ...]


SHARED_MEANINGS = {
    "choices": "Share of the budget for choosing marginals; more finds the largest misfit more surely.",
    "early_fit": "Loss at which a round's fit stops, in multiples of what noise alone leaves; larger is faster.",
    "last_fit": "Loss at which the last fit stops, in multiples of what noise alone leaves; smaller follows the noise.",
    "last_gain": "Relative fall of the loss below which the entropy's weight is not halved again; larger is smoother.",
    "levels": "Coarser versions by column and first code of each group, as `{age: [0, 16]}`; more keep more detail.",
    "limit_cells": "Upper limit of the junction tree in cells of 8 bytes; larger allows more, costs memory and time.",
    "one_way": "Share of the budget for one-way marginals; more makes them, and what is scored by them, less noisy.",
    "pair_scores": "Share of the budget for dependence scores of all pairs; more finds weak dependence more surely.",
    "passes": "Upper limit of the passes of inference of a fit; more give a closer fit and take longer.",
    "penalty": "Multiple of a marginal's expected noise taken off its misfit; larger prefers smaller tables.",
    "pooling": "Tables of up to this many columns are pooled for the last fit; larger is slower, 0 pools none.",
    "rare": "Codes with noisy counts below this many standard deviations are merged; more merges more codes, 0 none.",
    "sized": "Whether budgets grow with a table's cells to the power 2/3 instead of being equal.",
    "theta": "Least ratio of records to mean absolute noise in a cell of a useful table; larger allows smaller ones.",
    "usefulness": "Least records in a table's cell, in standard deviations of its noise; larger gives smaller tables.",
    "workload": "Marginals, prefixes and ranges that are to be answered well; more of them share the same budget.",
}
"""Meanings of options that several methods have, by the name of the option."""

MOST = 1e12
"""Upper limit of any option that is a number."""
ANY, POSITIVE, SHARE, NUMBER = (0.0, MOST), (1e-6, MOST), (1e-6, 1.0), (1, MOST)
"""Limits of options: any, those by which something is divided, shares of a budget that is spent, and how many."""

SHARED_LIMITS = {
    **dict.fromkeys(("choices", "one_way", "pair_scores"), SHARE),
    **dict.fromkeys(("early_fit", "last_fit", "last_gain", "theta", "usefulness"), POSITIVE),
    **dict.fromkeys(("limit_cells", "passes"), NUMBER),
}
"""Limits of options that several methods have, by the same names."""


def silent(message: str) -> None:
    """Discard a progress message."""


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """What the score phase learned: the noisy number of records, noisy dependence of pairs, noisy marginals.

    `repeated` says how many steps of another budget went into measuring the marginals again, and into scores (see
    `precision`). `earlier` are tables of earlier releases, whose codes are merged in `groups`; `set_aside` names the
    releases whose answers do not agree with the measurements (see `reuse`). `reference` is the model of a public table,
    if one is given and the answers bear it out (see `prior`).
    """

    total: float
    pairs: PairScores = ()
    measurements: tuple[Measurement, ...] = ()
    repeated: int = 0
    earlier: tuple[Measurement, ...] = ()
    groups: tuple[tuple[str, tuple[int, ...]], ...] = ()
    set_aside: tuple[str, ...] = ()
    reference: Reference | None = None

    @property
    def tables(self) -> tuple[Clique, ...]:
        """Sets of several attributes that were measured before the method chooses any: protected ones, earlier ones."""
        return tuple(m.clique for m in (*self.measurements, *self.earlier) if len(m.clique) > 1)

    @property
    def mergeable(self) -> tuple[Measurement, ...]:
        """One-way measurements of attributes in no such set: by these, rare codes may be found and merged.

        Attributes of `groups` are among them, since these say how their codes are merged.
        """
        kept = set().union(*self.tables) - {attribute for attribute, _ in self.groups}
        return tuple(m for m in self.measurements if len(m.clique) == 1 and m.clique[0] not in kept)


@dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """What the select phase decided: where candidates may lie and which marginals are measured first."""

    scores: Scores
    cliques: tuple[Clique, ...] = ()
    initial: tuple[Clique, ...] = ()
    largest_table: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """One model to estimate, as data that can travel to a worker; the settings are those of the estimator.

    Tables of at most `order` columns are pooled, and count `emphasis` times: where the others are few and large, almost
    all answers are cells of theirs that hold more noise than records.
    """

    domain: Domain
    measurements: tuple[Answered, ...]
    settings: dict[str, Any]
    order: int = 0
    emphasis: float = 1.0

    def by(self, estimator: Estimator) -> MarkovRandomField:
        """The model."""
        return estimator(self.domain, self.tables(), **self.settings)

    def tables(self) -> list[Answered]:
        """What the estimator is given."""
        if (reference := self.settings.get("reference")) is not None:
            sharper = math.sqrt(self.emphasis)
            alike = [set(m.clique) <= reference.joined for m in self.measurements]
            return [
                m if own else replace(m, sigma=m.sigma / sharper)
                for m, own in zip(self.measurements, alike, strict=True)
            ]
        if not self.order:
            return list(self.measurements)
        known = pool_tables([m for m in self.measurements if isinstance(m, Measurement)], order=self.order)
        sharper = math.sqrt(self.emphasis)
        return [replace(m, sigma=m.sigma / sharper) if len(m.clique) <= self.order else m for m in known]


def forget(model: MarkovRandomField, fit: Fit) -> None:
    """Keep nothing of how a model was fitted."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What a runner lends to the fit: an estimator (perhaps on another machine) and a function that reports progress.

    `spread` estimates several models that do not depend on each other at the same time, where the runner has workers;
    `note` is given a model and the fit that led to it, where more was behind it than a call of `estimate` shows.
    """

    estimate: Estimator = estimate
    progress: Progress = silent
    spread: Callable[[Sequence[Fit]], list[MarkovRandomField]] | None = None
    note: Callable[[MarkovRandomField, Fit], None] = forget

    def estimate_each(self, fits: Sequence[Fit]) -> list[MarkovRandomField]:
        """All the models, in the order given."""
        return self.spread(fits) if self.spread else [fit.by(self.estimate) for fit in fits]


class Synthesizer(Protocol):
    """Three phases = three tasks of the pipeline; the plan is made before any data is opened."""

    def plan(self, domain: Domain, total_mu2: Fraction) -> BudgetPlan:
        """Named shares of the budget, before any data is opened."""

    def score(self, curator: Curator, plan: BudgetPlan) -> Scores:
        """First questions: what depends on what."""

    def select(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> Structure:
        """Which marginals to measure; often pure post-processing."""

    def fit(self, curator: Curator, plan: BudgetPlan, structure: Structure, tools: Tools) -> Model:
        """Measure and estimate."""

    def preview(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        """Named facts about what a plan means, for people."""


@runtime_checkable
class CountNoise(Protocol):
    """A method that can say beforehand how much noise its counts will have."""

    def count_noise(self, domain: Domain, plan: BudgetPlan) -> dict[Clique, float]:
        """The standard deviation in records of a count of each column, and of each pair if it is measured."""


@runtime_checkable
class CanReuse(Protocol):
    """A method that builds on answers of earlier releases."""

    @property
    def can_reuse(self) -> bool:
        """Whether it does so with its options."""

    def score_with(self, curator: Curator, plan: BudgetPlan, earlier: Sequence[EarlierRelease]) -> Scores:
        """The first questions, with what is known already."""


@runtime_checkable
class CanUsePrior(Protocol):
    """A method that builds on the model of a public table."""

    @property
    def can_use_prior(self) -> bool:
        """Whether it does so with its options."""

    def learn_prior(self, public: PublicCounts) -> Reference:
        """The model of a public table."""

    def score_beside(self, curator: Curator, plan: BudgetPlan, prior: Reference) -> Scores:
        """The first questions, with this model known already."""


@runtime_checkable
class MayRefit(Protocol):
    """A method whose models cannot always be fitted again, because not all are fitted to noisy tables by `estimate`."""

    def can_refit(self, domain: Domain) -> bool:
        """Whether its models over this domain can be."""


def has_replicates(method: Synthesizer, domain: Domain) -> bool:
    """Returns whether models of a method over this domain have replicates, which are fitted to redrawn noise."""
    return not isinstance(method, MayRefit) or method.can_refit(domain)


def noise_by_table(domain: Domain, *, column: float, pair: float | None = None) -> dict[Clique, float]:
    """The same noise for every column, and for every pair; None if pairs are not measured."""
    pairs = dict.fromkeys(combinations(domain.attributes, 2), pair) if pair is not None else {}
    return {**{(name,): column for name in domain}, **cast(dict[Clique, float], pairs)}


def option(
    default: T,
    meaning: str | None = None,
    *,
    limits: tuple[float, float] | None = None,
    parse: Callable[[Any], T] | None = None,
) -> T:
    """A field of a method's dataclass that a spec may set.

    Args:
        default: its value unless a preset or a spec says otherwise.
        meaning: one sentence with the unit, and what changes when the value grows, shown wherever options are listed;
            or a key of `SHARED_MEANINGS`, which is the field's own name if nothing is given.
        limits: least and largest number that it may be; those of `SHARED_LIMITS`, or 0 and any, if none are given.
        parse: reads the plain value of a spec; None takes it as it is.

    Returns:
        The field; `option_meaning` has the sentence.
    """
    declared: Any = field(default=default, metadata={"help": meaning, "limits": limits, "parse": parse})
    return cast(T, declared)


def _check_limits(field: Field[Any], number: float) -> None:
    """Refuse a number with which a method cannot go on: what it asks before would be paid for nothing."""
    shared = SHARED_LIMITS.get(field.metadata.get("help") or "", SHARED_LIMITS.get(field.name, ANY))
    least, most = field.metadata.get("limits") or shared
    if not least <= number <= most:
        raise SpecError(f"options: {field.name} must be a number from {least:g} to {most:g}")


def option_meaning(field: Field[Any]) -> str:
    """The sentence that says what an option changes."""
    meaning: str = field.metadata.get("help") or field.name
    return SHARED_MEANINGS.get(meaning, meaning)


@dataclass(frozen=True, slots=True, eq=False)
class Conversation:
    """What each phase of a method led to."""

    scores: Scores
    structure: Structure
    model: Model


def run_phases(
    method: Synthesizer,
    plan: BudgetPlan,
    curator: Callable[[str], Curator],
    tools: Tools | None = None,
    *,
    earlier: Sequence[EarlierRelease] = (),
    prior: Reference | None = None,
) -> Conversation:
    """Let a method ask all its questions, without a file in between.

    Args:
        method: Whose questions they are.
        plan: What the method planned.
        curator: Gives the curator of a phase, by the name of the phase: `score`, `select` or `fit`.
        tools: What the runner lends to the fit; None estimates here.
        earlier: What earlier releases have measured.
        prior: The model of a public table.

    Returns:
        Scores, structure and model.
    """
    scores = ask_first(method, curator("score"), plan, earlier, prior)
    structure = method.select(curator("select"), plan, scores)
    return Conversation(scores, structure, method.fit(curator("fit"), plan, structure, tools or Tools()))


def ask_first(
    method: Synthesizer,
    curator: Curator,
    plan: BudgetPlan,
    earlier: Sequence[EarlierRelease] = (),
    prior: Reference | None = None,
) -> Scores:
    """The first phase of a method, with answers of earlier releases or the model of a public table if there are any.

    Args:
        method: whose questions they are.
        curator: answers them.
        plan: what the method planned.
        earlier: what is known already.
        prior: the model of a public table.

    Returns:
        The scores.

    Raises:
        SpecError: the method does not build on them.
    """
    if prior is not None:
        return require_prior(method).score_beside(curator, plan, prior)
    if not earlier:
        return method.score(curator, plan)
    require_reuse(method)
    return cast(CanReuse, method).score_with(curator, plan, earlier)


def require_reuse(method: Synthesizer) -> None:
    """Refuse a method that does not build on answers of earlier releases."""
    if not isinstance(method, CanReuse) or not method.can_reuse:
        raise SpecError("reuse: the method does not build on answers of earlier releases; use privmrf, or leave it out")


def require_prior(method: Synthesizer) -> CanUsePrior:
    """The method as one that builds on a public table; refused if it does not."""
    if not isinstance(method, CanUsePrior) or not method.can_use_prior:
        raise SpecError("prior: the method does not build on a public table; use privmrf, or leave it out")
    return method


class PublicCounts(Protocol):
    """A public table, as a method learns from it."""

    @property
    def domain(self) -> Domain:
        """The columns that it shares with the confidential table."""

    @property
    def rows(self) -> int:
        """Number of its records."""

    def count(self, cliques: Sequence[Clique]) -> list[Counts]:
        """Tables of its counts."""


def with_options(preset: Any, options: Mapping[str, Any], *, method: str) -> Any:
    """The preset with some constants replaced; an unknown one is refused by name."""
    known = {field.name: field for field in fields(preset)}
    values = {field: getattr(preset, field) for field in known}
    for name, value in options.items():
        if name not in known:
            raise SpecError(f"options: {method} has no option {name!r} (it has: {', '.join(known)})")
        if parse := known[name].metadata.get("parse"):
            value = parse(value)
        kind = type(values[name])
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value) is not kind:
            raise SpecError(f"options: {name} must be of type {kind.__name__}")
        if kind in (int, float):
            _check_limits(known[name], value)
        values[name] = value
    return type(preset)(**values)


def noise_sigma(mu2: Fraction, *, count: int, sensitivity: Fraction = Fraction(1)) -> float:
    """The standard deviation in records of the Gaussian noise on each of `count` answers that share `mu2`."""
    return math.sqrt(gaussian_for(mu2, sensitivity=sensitivity, count=count).scale)


def noise_text(mu2: Fraction, *, count: int, sensitivity: Fraction = Fraction(1)) -> str:
    """The Gaussian noise on each of some answers, as a preview states it.

    Args:
        mu2: the squared Gaussian-DP parameter that all answers may spend together.
        count: number of answers.
        sensitivity: what one record can change in each, in records.

    Returns:
        The standard deviation in records, in words.
    """
    return f"sigma {noise_sigma(mu2, count=count, sensitivity=sensitivity):.1f} records"


def save_scores(scores: Scores, path: Path) -> None:
    """Write scores as JSON."""
    path.write_text(json.dumps(asdict(scores), default=np.ndarray.tolist), encoding="utf-8")


def load_scores(path: Path) -> Scores:
    """Read scores; SourceError if they are none."""
    with _reading(path, "score"):
        return _scores(read_json(path))


def save_structure(structure: Structure, path: Path) -> None:
    """Write a structure, with the scores it came from, as JSON."""
    path.write_text(json.dumps(asdict(structure), default=np.ndarray.tolist), encoding="utf-8")


def load_structure(path: Path) -> Structure:
    """Read a structure; SourceError if it is none."""
    with _reading(path, "select"):
        values = read_json(path)
        return Structure(
            _scores(values["scores"]),
            _cliques(values["cliques"]),
            _cliques(values["initial"]),
            values["largest_table"],
        )


@contextmanager
def _reading(path: Path, step: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError):
        raise SourceError(f"{path.name} cannot be read; run the step `{step}` again") from None


def _scores(values: dict[str, Any]) -> Scores:
    return Scores(
        values["total"],
        tuple((a, b, float(score)) for a, b, score in values["pairs"]),
        _measurements(values["measurements"]),
        values.get("repeated", 0),
        _measurements(values.get("earlier", ())),
        tuple((name, tuple(map(int, groups))) for name, groups in values.get("groups", ())),
        tuple(values.get("set_aside", ())),
        _reference(values.get("reference")),
    )


def _measurements(values: Sequence[dict[str, Any]]) -> tuple[Measurement, ...]:
    return tuple(Measurement(tuple(m["clique"]), np.array(m["noisy"]), m["sigma"]) for m in values)


def _reference(values: dict[str, Any] | None) -> Reference | None:
    if values is None:
        return None
    return Reference(tuple(Factor(tuple(c), np.array(table)) for c, table in values["tables"]), values["rows"])


def _cliques(values: Sequence[Sequence[str]]) -> tuple[Clique, ...]:
    return tuple(tuple(clique) for clique in values)


def sum_onto(table: Floats, clique: Clique, kept: Collection[str]) -> Floats:
    """The sums of a clique's table over the attributes that are not kept."""
    return np.asarray(table.sum(axis=tuple(k for k, attribute in enumerate(clique) if attribute not in kept)))


def pool_tables(measurements: Sequence[Measurement], *, order: int) -> list[Measurement]:
    """The measurements, with every table of at most `order` attributes replaced by all that is known of it.

    A small table is estimated by the sum of each measured table around it; estimates are combined by inverse
    variance. Each pooled table is a true summary, so adding it is post-processing; it makes low-order
    dependence cheap for an estimator of greatest entropy, which otherwise shrinks it as much as the high-order one.
    """
    sums: dict[Clique, Any] = {}
    precisions: dict[Clique, float] = {}
    for measurement in measurements:
        for size in range(1, order + 1):
            for clique in combinations(measurement.clique, size):
                table = sum_onto(measurement.noisy, measurement.clique, clique)
                precision = table.size / (measurement.sigma**2 * measurement.noisy.size)
                sums[clique] = sums.get(clique, 0.0) + precision * table
                precisions[clique] = precisions.get(clique, 0.0) + precision
    large = [m for m in measurements if len(m.clique) > order]
    small = [Measurement(clique, sums[clique] / precision, precision**-0.5) for clique, precision in precisions.items()]
    return [*large, *small]


def free_parameters(domain: Domain, cliques: Iterable[Clique]) -> int:
    """Dimension of the log-linear model with these cliques: one interaction for each set inside some clique."""
    sets = {inner for clique in cliques for size in range(len(clique) + 1) for inner in combinations(clique, size)}
    return sum(math.prod(domain.size(a) - 1 for a in inner) for inner in sets)


def last_fit(
    domain: Domain,
    measurements: Sequence[Measurement],
    tools: Tools,
    *,
    order: int,
    gain: float,
    passes: int,
    warm: MarkovRandomField | None = None,
    emphasis: float = 1.0,
) -> MarkovRandomField:
    """The model of the pooled tables in which loss and entropy are balanced."""
    settings = {"total": total_by_inverse_variance(list(measurements)), "gain": gain, "max_passes": passes}
    fit = Fit(domain, tuple(measurements), settings, order, emphasis)
    model = tools.estimate(domain, fit.tables(), warm=warm, **settings)
    tools.note(model, fit)
    return model
