"""The noisy answers a release has been given, read back from its ledger: public, and free to use again."""

from __future__ import annotations

import math

import numpy as np

from synth_core.domain import Domain
from synth_core.measurement import Measurement
from synth_core.privacy.ledger import Ledger, Record, SpendRequest, State
from synth_core.privacy.noise import GRID


def stored_measurements(ledger: Ledger, domain: Domain, *, dataset: str, release: str) -> list[Measurement]:
    """Every noisy marginal of the release, in the order in which they were measured."""
    found: list[Measurement] = []
    for record in ledger.records(dataset=dataset, release=release):
        if record.state is State.MEASURED and record.mechanism.name == "discrete_gaussian":
            found += _marginals(ledger, domain, record)
    return found


def _marginals(ledger: Ledger, domain: Domain, record: Record) -> list[Measurement]:
    """The marginals of one answer; none if it is a vector of scores, which has one number for each clique."""
    answer = ledger.reserve(_request(record)).answer
    sizes = [domain.cells(clique) for clique in record.asked]
    if answer is None or len(answer) != sum(sizes) or len(answer) == len(record.asked):
        return []
    parts = np.split(answer / GRID, np.cumsum(sizes)[:-1])
    return [
        Measurement(clique, part.reshape(domain.shape(clique)), math.sqrt(variance))
        for clique, part, variance in zip(record.asked, parts, record.mechanism.variances(), strict=True)
    ]


def _request(record: Record) -> SpendRequest:
    """The question the record answers; asking it again returns the stored answer and spends nothing."""
    return SpendRequest(
        dataset=record.dataset,
        snapshot=record.snapshot,
        release=record.release,
        step=record.step,
        purpose=record.purpose,
        mechanism=record.mechanism,
        asked=record.asked,
        stratum=record.stratum,
    )
