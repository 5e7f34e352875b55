"""The noisy answers a release has been given, read back from its ledger: public, and free to use again."""

from __future__ import annotations

import math

import numpy as np

from synth_core.domain import Clique, Domain
from synth_core.measurement import Measurement
from synth_core.privacy.ledger import Ledger, Record, State, Stratum
from synth_core.privacy.noise import GRID
from synth_core.release.division import Division

NUMBERS = ("discrete_gaussian", "discrete_laplace")
"""Mechanisms whose answers are noisy numbers."""


def stored_measurements(
    ledger: Ledger, domain: Domain, *, dataset: str, release: str, division: Division | None = None
) -> list[Measurement]:
    """Every noisy marginal of the release, in the order in which they were measured.

    Marginals that all parts of a division have measured are added up over the parts; those of some parts alone say
    nothing about the whole table and are left out.
    """
    found: list[Measurement] = []
    inside: dict[Stratum, tuple[Domain, list[Measurement]]] = {}
    if division is not None:
        inside = {division.stratum(part): (division.domain(domain, part), []) for part in division.parts}
    for record in ledger.records(dataset=dataset, release=release):
        if record.state is not State.MEASURED or record.mechanism.name not in NUMBERS:
            continue
        if record.stratum is None:
            found += _marginals(ledger, domain, record)
        elif record.stratum in inside:
            own, measured = inside[record.stratum]
            measured += _marginals(ledger, own, record)
    return found + _added_up([measured for _, measured in inside.values()], domain)


def _added_up(parts: list[list[Measurement]], domain: Domain) -> list[Measurement]:
    """What all parts have measured, each part's answers about a clique averaged by inverse variance, then summed."""
    averages = [{clique: _average(clique, part) for clique in {m.clique for m in part}} for part in parts]
    first = dict.fromkeys(m.clique for m in parts[0]) if parts else {}
    return [
        Measurement(
            clique,
            np.sum([average[clique].noisy for average in averages], axis=0),
            math.sqrt(sum(average[clique].sigma ** 2 for average in averages)),
        )
        for clique in first
        if all(clique in a and a[clique].noisy.shape == domain.shape(clique) for a in averages)
    ]


def _average(clique: Clique, measurements: list[Measurement]) -> Measurement:
    same = [m for m in measurements if m.clique == clique]
    weights = np.array([m.sigma**-2 for m in same])
    mean = np.average([m.noisy for m in same], axis=0, weights=weights)
    return Measurement(clique, mean, float(weights.sum() ** -0.5))


def _marginals(ledger: Ledger, domain: Domain, record: Record) -> list[Measurement]:
    """The marginals of one answer; none if it is a vector of scores, which has one number for each clique."""
    answer = ledger.reserve(record.request).answer
    sizes = [domain.cells(clique) for clique in record.asked]
    if answer is None or len(answer) != sum(sizes) or len(answer) == len(record.asked):
        return []
    parts = np.split(answer / GRID, np.cumsum(sizes)[:-1])
    return [
        Measurement(clique, part.reshape(domain.shape(clique)), math.sqrt(variance))
        for clique, part, variance in zip(record.asked, parts, record.mechanism.variances(), strict=True)
    ]
