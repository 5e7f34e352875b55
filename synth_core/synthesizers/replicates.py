"""Replicates of a model: what the method would have fitted, had the noise of its answers been drawn again.

The published model is taken for the truth: every noisy answer that was asked is what the model says, with fresh noise
of the same standard deviation, and the last fit is made again. It ends where loss and entropy are nearly balanced, at
the weight of the entropy that the model itself shows. It begins with no potentials: those of the published model hold
their share of the first noise, and a fit that begins there takes more passes. Before it the tables are made to agree.
That changes no model: what they disagree by adds a constant to the loss, but a fit would spend half its passes on
finding multipliers for it that change no row. Which tables were asked and which codes were merged stays as it was. All
of it is post-processing of public numbers, so it spends nothing, and is seeded like the sampling of rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from synth_core.arrays import Floats
from synth_core.domain import Clique
from synth_core.measurement import Measurement, merge_codes, without_impossible
from synth_core.models.linear import Answered, LinearMeasurement, contract_axes
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.maximum_entropy import entropy_weight, estimate
from synth_core.models.mixture import Model
from synth_core.models.reference import Reference
from synth_core.models.refined import Refined
from synth_core.synthesizers.base import Fit, Tools
from synth_core.synthesizers.compression import code_shares
from synth_core.synthesizers.consistency import make_consistent

MAX_PASSES = 150
"""Upper limit of the passes of inference of a replicate's fit, which needs 50 to 150 to be within its noise."""
STREAM = 26
"""Number of the replicates among the streams of random numbers that one public seed begins."""


class LastFit:
    """Keeps how the fields of a conversation were fitted, and finds the one that a model was made of."""

    def __init__(self) -> None:
        self._fits: dict[int, tuple[MarkovRandomField, Fit]] = {}

    def observing(self, tools: Tools) -> Tools:
        """Tools that do the same and are watched."""

        def estimate_and_note(domain: Any, measurements: Sequence[Answered], **settings: Any) -> MarkovRandomField:
            model = tools.estimate(domain, measurements, **settings)
            self.note(model, Fit(domain, tuple(measurements), settings))
            return model

        return replace(tools, estimate=estimate_and_note, note=self.note)

    def note(self, model: MarkovRandomField, fit: Fit) -> None:
        """Keep the fit; of all fits of one model the last that is noted counts."""
        self._fits[id(model)] = model, fit

    def of(self, model: Model) -> Fit | None:
        """How the field of this model was fitted; None if no fit of one field led to it."""
        inner = model.field if isinstance(model, Refined) else model
        found = self._fits.get(id(inner))
        return found[1] if found else None


@dataclass(frozen=True, slots=True, eq=False)
class Redrawing:
    """What a worker needs to make any replicate of a model.

    Attributes:
        model: the published model.
        fit: how its field was fitted.
        one_way: the one-way measurements of all codes by which rare codes were merged.
        ridge: weight of the entropy.
        seed: public seed.
    """

    model: MarkovRandomField | Refined
    fit: Fit
    one_way: tuple[Measurement, ...]
    ridge: float
    seed: int
    expected: dict[Clique, Floats] = field(default_factory=dict)

    @classmethod
    def where_known(
        cls, model: Model, fit: Fit | None, one_way: Sequence[Measurement], *, seed: int
    ) -> Redrawing | None:
        """The same as `of`; None for a model of another kind or without a fit, which has no replicates."""
        if fit is None or not isinstance(model, MarkovRandomField | Refined):
            return None
        return cls.of(model, fit, one_way, seed=seed)

    @classmethod
    def of(
        cls, model: MarkovRandomField | Refined, fit: Fit, one_way: Sequence[Measurement], *, seed: int
    ) -> Redrawing:
        """Prepare to redraw.

        Args:
            model: the published model.
            fit: how its field was fitted.
            one_way: the one-way measurements from which rare codes were merged; those that the fit took as they are
                may be among them.
            seed: public seed.

        Returns:
            The recipe of all replicates.
        """
        inner = model.field if isinstance(model, Refined) else model
        cliques = list(dict.fromkeys(m.clique for m in fit.measurements))
        expected = dict(zip(cliques, inner.marginals(cliques), strict=True))
        known = tuple(m for m in one_way if len(m.clique) == 1) if isinstance(model, Refined) else ()
        ridge = fit.settings.get("ridge") or entropy_weight(fit.domain, fit.tables(), inner)
        return cls(model, fit, known, ridge, seed, expected)

    def replicate(self, number: int) -> MarkovRandomField | Refined:
        """The replicate of this number."""
        rng = np.random.default_rng([self.seed, STREAM, number])
        codes = {m.clique: _redrawn_codes(self.model, m, rng) for m in self.one_way}
        fresh = tuple(self._redrawn(m, codes, rng) for m in self.fit.measurements)
        tables = self._agreed(replace(self.fit, measurements=fresh).tables())
        settings: dict[str, Any] = {"ridge": self.ridge, "reference": self._reference, "max_passes": MAX_PASSES}
        fitted = estimate(self.fit.domain, tables, total=_total(fresh), **settings)
        if not isinstance(self.model, Refined):
            return fitted
        return replace(self.model, field=fitted, shares=self._shares(codes))

    @property
    def _reference(self) -> Reference | None:
        """What the fit departed from; the same in every replicate."""
        found: Reference | None = self.fit.settings.get("reference")
        return found

    def _agreed(self, tables: Sequence[Answered]) -> list[Answered]:
        """The tables after they were made to agree, which needs all cells of each to be open.

        Beside a reference they are fitted as they are: there each table counts by its noise alone.
        """
        plain = [m for m in tables if isinstance(m, Measurement)]
        if self._reference is not None or len(plain) < len(tables) or self.fit.domain.impossible:
            return list(tables)
        return list(make_consistent(plain, update=False))

    def _redrawn(self, m: Answered, codes: dict[Clique, Floats], rng: np.random.Generator) -> Answered:
        """The measurement with what the model expects, and fresh noise."""
        table = self.expected[m.clique]
        if isinstance(m, LinearMeasurement):
            answers = contract_axes(table, m.matrices)
            return replace(m, noisy=answers + m.sigma * rng.standard_normal(answers.shape))
        merged = next((one for one in self.one_way if self._is_merged(m, one)), None)
        if merged is not None:
            noisy = merge_codes(codes[m.clique], [self._groups(m.clique[0])])
        else:
            noisy = table + m.sigma * rng.standard_normal(table.shape)
        return without_impossible(replace(m, noisy=noisy), self.fit.domain)

    def _is_merged(self, m: Measurement, one: Measurement) -> bool:
        """Whether a table is this measurement of all codes after rare ones were merged."""
        if m.clique != one.clique or one.noisy.size != len(self._groups(m.clique[0])):
            return False
        merged = merge_codes(one.noisy, [self._groups(m.clique[0])])
        return merged.shape == m.noisy.shape and bool(np.allclose(merged, m.noisy))

    def _groups(self, name: str) -> Any:
        return self.model.groups[self.model.domain.position(name)] if isinstance(self.model, Refined) else None

    def _shares(self, codes: dict[Clique, Floats]) -> tuple[Floats, ...]:
        """The shares that redrawn counts give to the codes of each group."""
        assert isinstance(self.model, Refined)  # noqa: S101 - checked by the caller
        found = []
        for name, group, share in zip(self.model.domain, self.model.groups, self.model.shares, strict=True):
            noisy = codes.get((name,))
            found.append(share if noisy is None else code_shares(noisy, group, otherwise=share))
        return tuple(found)


def _redrawn_codes(model: Refined | MarkovRandomField, m: Measurement, rng: np.random.Generator) -> Floats:
    """A one-way measurement of all codes, redrawn."""
    return np.asarray(model.marginal(m.clique) + m.sigma * rng.standard_normal(m.noisy.shape))


def _total(measurements: Sequence[Answered]) -> float | None:
    """The total by what every measurement says of it; None where the estimator knows better how."""
    tables = [m for m in measurements if isinstance(m, Measurement)]
    if len(tables) < len(measurements):
        return None
    precision = [1 / (m.noisy.size * m.sigma**2) for m in tables]
    total = sum(p * float(m.noisy.sum()) for p, m in zip(precision, tables, strict=True)) / math.fsum(precision)
    return max(total, 1.0)
