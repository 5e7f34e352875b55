"""Which cells and rows the rules of a domain exclude."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain, Impossible
from synth_core.errors import FeasibilityError
from synth_core.measurement import Measurement

LARGEST_RULE = 2_000_000
"""Cells of the largest table that rules about one set of columns may need; every pass of inference goes over it."""


def forbidden_cells(domain: Domain, clique: Clique) -> NDArray[np.bool_]:
    """The clique's cells that rules about its own attributes exclude, one axis for each attribute."""
    forbidden = np.zeros(domain.shape(clique), dtype=np.bool_)
    for excluded in domain.impossible:
        if set(excluded.attributes) <= set(clique):
            codes = dict(excluded.codes)
            forbidden[np.ix_(*(codes.get(a, range(domain.size(a))) for a in clique))] = True
    return forbidden


def forbidden_tables(domain: Domain) -> list[tuple[Clique, NDArray[np.bool_]]]:
    """For each set of attributes that rules speak about, the cells they exclude; too large a table is refused."""
    for excluded in domain.impossible:
        cells = domain.cells(excluded.attributes)
        if cells > LARGEST_RULE:
            raise FeasibilityError(
                f"rule {excluded.rule!r} joins {', '.join(excluded.attributes)} into a table of {cells:,} cells, "
                f"over the limit of {LARGEST_RULE:,}; give these columns coarser bins, or name fewer of them"
            )
    own = {clique: domain.project(clique) for clique in domain.rule_cliques}
    return [(clique, forbidden_cells(local, clique)) for clique, local in own.items()]


def without_impossible(measurement: Measurement, domain: Domain) -> Measurement:
    """The measurement with 0 in the cells that the domain's rules exclude, instead of noise.

    The rules are public, so this is post-processing; the other cells keep their noise, and sigma is theirs.
    """
    if not domain.impossible:
        return measurement
    forbidden = forbidden_cells(domain, measurement.clique)
    return Measurement(measurement.clique, np.where(forbidden, 0.0, measurement.noisy), measurement.sigma)


def breaking_rows(codes: NDArray[Any], domain: Domain, *, rule: str | None = None) -> NDArray[np.bool_]:
    """Which rows of codes break the rule of this name, or any rule."""
    breaking = np.zeros(len(codes), dtype=np.bool_)
    for excluded in domain.impossible:
        if rule in (None, excluded.rule):
            breaking |= _among(codes, domain, excluded)
    return breaking


def _among(codes: NDArray[Any], domain: Domain, excluded: Impossible) -> NDArray[np.bool_]:
    rows = np.ones(len(codes), dtype=np.bool_)
    for attribute, values in excluded.codes:
        listed = np.zeros(domain.size(attribute), dtype=np.bool_)
        listed[list(values)] = True
        rows &= listed[codes[:, domain.position(attribute)]]
    return rows
