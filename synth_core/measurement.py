"""A noisy marginal: the only form in which counts leave the wall."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain, forbidden_cells


@dataclass(frozen=True, slots=True, eq=False)
class Measurement:
    """Noisy counts of one clique's cells, with the standard deviation of the noise on each cell.

    `noisy` has one axis for each attribute of `clique`, in the clique's order, in units of records.
    It is public: anything computed from it is post-processing.
    """

    clique: Clique
    noisy: NDArray[np.float64]
    sigma: float

    def __post_init__(self) -> None:
        if self.noisy.ndim != len(self.clique):
            raise ValueError(f"measurement of {self.clique} needs {len(self.clique)} axes")
        if not self.sigma > 0:
            raise ValueError(f"measurement of {self.clique} needs a positive sigma")
        self.noisy.setflags(write=False)


CodeGroups: TypeAlias = tuple[int, ...]
"""The group of each code of an attribute."""


@dataclass(frozen=True, slots=True, eq=False)
class EarlierTable:
    """A noisy table of an earlier release; `groups` says of each attribute how its codes were merged, if they were."""

    measurement: Measurement
    groups: tuple[CodeGroups | None, ...]

    @property
    def merged(self) -> frozenset[str]:
        """The attributes whose codes were merged."""
        pairs = zip(self.measurement.clique, self.groups, strict=True)
        return frozenset(attribute for attribute, groups in pairs if groups is not None)


@dataclass(frozen=True, slots=True, eq=False)
class EarlierRelease:
    """All noisy tables that a release has paid for, in the order of measuring."""

    release: str
    tables: tuple[EarlierTable, ...]

    def keeping(self, attributes: Collection[str]) -> EarlierRelease:
        """The release without the tables in which codes of these attributes are merged."""
        return replace(self, tables=tuple(table for table in self.tables if not table.merged & set(attributes)))

    @property
    def columns(self) -> list[Measurement]:
        """Its one-way marginals over all codes."""
        return [t.measurement for t in self.tables if len(t.measurement.clique) == 1 and not t.merged]


def without_impossible(measurement: Measurement, domain: Domain) -> Measurement:
    """The measurement with 0 in the cells that the domain's rules exclude, instead of noise.

    The rules are public, so this is post-processing; the other cells keep their noise, and sigma is theirs.
    """
    if not domain.impossible:
        return measurement
    forbidden = forbidden_cells(domain, measurement.clique)
    return Measurement(measurement.clique, np.where(forbidden, 0.0, measurement.noisy), measurement.sigma)


def merge_codes(table: NDArray[Any], groups: Sequence[Sequence[int] | NDArray[np.int64] | None]) -> NDArray[Any]:
    """The table after codes were put into groups.

    Args:
        table: counts, with one axis for each attribute.
        groups: for each axis the group of each code, or None where the codes stay as they are.

    Returns:
        The table of the groups: a cell is the sum of the cells that fall into it.
    """
    merged = table
    for axis, group in enumerate(groups):
        if group is not None:
            before = np.moveaxis(merged, axis, 0)
            after = np.zeros((int(np.max(group)) + 1, *before.shape[1:]), dtype=table.dtype)
            np.add.at(after, np.asarray(group), before)
            merged = np.moveaxis(after, 0, axis)
    return merged


def total_by_inverse_variance(measurements: Sequence[Measurement]) -> float:
    """Estimate the number of records from the measurements alone (Private-PGM, E.1).

    The sum of one noisy table estimates n with variance cells * sigma^2; independent estimates are combined
    with weights inverse to their variances, which is the linear unbiased combination of least variance.
    """
    if not measurements:
        raise ValueError("the total cannot be estimated without measurements")
    variances = np.array([m.noisy.size * m.sigma**2 for m in measurements])
    sums = np.array([m.noisy.sum() for m in measurements])
    return float((sums / variances).sum() / (1.0 / variances).sum())
