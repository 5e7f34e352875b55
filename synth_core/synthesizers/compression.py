"""Rare codes measured together: a smaller domain in which each attribute's rare codes are one, and the way back.

Which codes are rare is read from noisy one-way marginals, so deciding is post-processing. A count below a few sigmas
says nothing about what the code goes together with, and its cells of a larger table would hold noise alone. Tables of
the smaller domain are asked of the curator as sums of exact counts (`Compression.measure`): a merged cell then carries
the noise of one cell, where a sum of noisy cells would carry the noise of all of them. On the way back a
merged code becomes one of its codes by their noisy shares, independently of all else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Floats
from synth_core.domain import Clique, Domain
from synth_core.measurement import Measurement
from synth_core.models.linear import LinearMeasurement
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.refined import Refined
from synth_core.privacy.curator import Curator
from synth_core.privacy.queries import Coarsened, Misfit
from synth_core.privacy.strategies import Strategy, group_matrix
from synth_core.synthesizers.independent import positive_shares

LEAST_SHARE = 1e-9
"""Share of a merged code whose noisy count is not positive, so that its logarithm exists."""


@dataclass(frozen=True, slots=True, eq=False)
class Compression:
    """For each attribute of `full`: the smaller domain's code of every code, and its share of that code's records."""

    full: Domain
    groups: tuple[NDArray[np.int64], ...]
    shares: tuple[Floats, ...]

    @classmethod
    def from_measurements(
        cls,
        domain: Domain,
        one_way: Iterable[Measurement],
        *,
        threshold: float,
        given: Mapping[str, Sequence[int]] | None = None,
    ) -> Compression:
        """Merge codes with noisy counts below `threshold` sigmas in runs, each as long as it takes to be seen.

        A run follows the order of the codes, over those that are not rare, and ends when its count reaches `threshold`
        sigmas of its own sum; what is left at the end joins the last run. An attribute without a one-way
        measurement stays as it is, and so does one that a rule speaks about: a group says nothing about its codes.
        Attributes in `given` have the groups that it says.
        """
        ruled = {attribute for excluded in domain.impossible for attribute in excluded.attributes}
        known = {m.clique: m for m in one_way if m.clique[0] not in ruled}
        groups, shares = [], []
        for attribute, size in zip(domain.attributes, domain.sizes, strict=True):
            measured = known.get((attribute,))
            group, share = np.arange(size), np.ones(size)
            if measured is not None:
                said = (given or {}).get(attribute)
                group = _runs(measured.noisy, threshold * measured.sigma) if said is None else np.array(said)
                share = code_shares(measured.noisy, group, otherwise=share)
            groups.append(group)
            shares.append(share)
        return cls(domain, tuple(groups), tuple(shares))

    @property
    def trivial(self) -> bool:
        """Whether no codes were merged."""
        return self.domain == self.full

    def merged(self, measurement: Measurement) -> Measurement:
        """A one-way measurement of the smaller domain; the variance of a merged code is spread over all codes.

        Of tables of several attributes that were measured before codes were merged, no code is.
        """
        if len(measurement.clique) > 1:
            return measurement
        group = self.groups[self.full.position(measurement.clique[0])]
        table = np.bincount(group, weights=measurement.noisy).astype(np.float64)
        return Measurement(measurement.clique, table, measurement.sigma * math.sqrt(group.size / table.size))

    def misfit(self, clique: Clique, reference: Floats, penalty: float = 0.0) -> Misfit | Coarsened:
        """The question how far the clique's table of the smaller domain is from a reference.

        Args:
            clique: attributes, in the domain's order.
            reference: expected counts of the cells of the smaller domain.
            penalty: records taken off.

        Returns:
            A query over the full domain, of sensitivity 1.
        """
        query = Misfit(clique, reference, penalty)
        own = [self.groups[self.full.position(attribute)] for attribute in clique]
        groups = tuple(None if int(group.max()) + 1 == group.size else group for group in own)
        return query if all(group is None for group in groups) else Coarsened(query, groups)

    @property
    def domain(self) -> Domain:
        """The smaller domain, with the same rules: what they speak about is not merged."""
        return Domain(self.full.attributes, tuple(int(group.max()) + 1 for group in self.groups), self.full.impossible)

    def strategy(self, clique: Clique) -> Strategy:
        """The clique's table of the smaller domain as sums over the full one; a record is in one sum: sensitivity 1."""
        return Strategy(clique, tuple(self._matrix(attribute) for attribute in clique))

    def measure(
        self,
        curator: Curator,
        cliques: Sequence[Clique],
        mu2: Fraction,
        *,
        purpose: str,
        weights: Sequence[float] | None = None,
    ) -> list[Measurement]:
        """Noisy tables of the smaller domain."""
        if self.trivial:
            return curator.measure(cliques, mu2, purpose=purpose, weights=weights)
        strategies = [self.strategy(self.full.clique(clique)) for clique in cliques]
        answers = curator.answer(strategies, mu2, purpose=purpose, weights=weights)
        return [Measurement(a.strategy.clique, a.noisy, a.sigma) for a in answers]

    def encode(self, measurement: Measurement) -> LinearMeasurement:
        """A measurement of the full domain as one of the smaller.

        The sum of k noisy cells has the variance k sigma^2; divided by sqrt(k) it has that of all the others.
        """
        matrices = []
        noisy = measurement.noisy
        for axis, attribute in enumerate(measurement.clique):
            matrix = self._matrix(attribute)
            scale = matrix.sum(axis=1) ** -0.5
            noisy = np.moveaxis(np.tensordot(matrix * scale[:, None], noisy, axes=(1, axis)), 0, axis)
            matrices.append(np.diag(scale))
        return LinearMeasurement(measurement.clique, tuple(matrices), noisy, measurement.sigma)

    def refined(self, field: MarkovRandomField) -> MarkovRandomField | Refined:
        """A field over the smaller domain as a model of the full one."""
        return field if self.trivial else Refined(self.full, field, self.groups, self.shares)

    def _matrix(self, attribute: str) -> NDArray[np.int64]:
        return group_matrix(self.groups[self.full.position(attribute)])


def code_shares(noisy: Floats, group: NDArray[np.int64], *, otherwise: Floats) -> Floats:
    """The share of each code of its group's records.

    Args:
        noisy: counts of the codes.
        group: the group of each code.
        otherwise: shares of codes that are alone in their group.

    Returns:
        Shares that add up to 1 in every group; none is 0.
    """
    share = otherwise.copy()
    for number in np.flatnonzero(np.bincount(group) > 1):
        share[group == number] = _shares(noisy[group == number])
    return share


def _shares(noisy: Floats) -> Floats:
    shares = np.maximum(positive_shares(noisy), LEAST_SHARE)
    return np.asarray(shares / shares.sum())


def _runs(noisy: Floats, enough: float) -> NDArray[np.int64]:
    """The group of each code, in the order of the groups' first codes."""
    runs: list[list[int]] = [[]]
    for code in np.flatnonzero(noisy < enough).tolist():
        runs[-1].append(code)
        if noisy[runs[-1]].sum() >= enough * math.sqrt(len(runs[-1])):
            runs.append([])
    rest = runs.pop()
    runs[-1:] = [[*runs[-1], *rest]] if runs else [rest]
    first = np.arange(noisy.size)
    for run in runs:
        first[run] = min(run, default=0)
    return np.unique(first, return_inverse=True)[1].astype(np.int64)
