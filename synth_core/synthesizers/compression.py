"""Rare codes measured together: a smaller domain in which each attribute's rare codes are one, and the way back.

Which codes are rare is read from noisy one-way marginals, so deciding is post-processing. A count below a few sigmas
says nothing about what the code goes together with, and its cells of a larger table would hold noise alone. Tables of
the smaller domain are asked of the curator as sums of exact counts (`Compression.measure`): a merged cell then carries
the noise of one cell, where a sum of noisy cells would carry the noise of all of them. On the way back a
merged code becomes one of its codes by their noisy shares, independently of all else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Floats
from synth_core.domain import Clique, Domain, Impossible
from synth_core.measurement import Measurement
from synth_core.models.junction_tree import junction_tree
from synth_core.models.linear import LinearMeasurement
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.privacy.curator import Curator
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
    def from_measurements(cls, domain: Domain, one_way: Iterable[Measurement], *, threshold: float) -> Compression:
        """Merge the codes with noisy counts below `threshold` sigmas, where an attribute has two of them or more.

        Kept codes come first, in their order, and the merged one last. An attribute without a one-way measurement stays
        as it is.
        """
        known = {m.clique: m for m in one_way}
        groups, shares = [], []
        for attribute, size in zip(domain.attributes, domain.sizes, strict=True):
            measured = known.get((attribute,))
            noisy = np.zeros(size) if measured is None else measured.noisy
            rare = np.zeros(size, bool) if measured is None else noisy < threshold * measured.sigma
            group, share = np.arange(size), np.ones(size)
            if rare.sum() > 1:
                group = np.where(rare, np.sum(~rare), np.cumsum(~rare) - 1)
                share[rare] = _shares(noisy[rare])
            groups.append(group)
            shares.append(share)
        return cls(domain, tuple(groups), tuple(shares))

    @property
    def domain(self) -> Domain:
        """The smaller domain; a merged code is impossible with others if each of its codes is."""
        sizes = tuple(int(group.max()) + 1 for group in self.groups)
        excluded = [self._merged(one) for one in self.full.impossible]
        kept = tuple(one for one in excluded if all(codes for _, codes in one.codes))
        return Domain(self.full.attributes, sizes, kept)

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

    def expanded(self, model: MarkovRandomField) -> MarkovRandomField:
        """A model of the smaller domain as one of the full; merged codes are spread by their shares.

        The probability of a row is that of its merged row times the shares of its codes: the same potentials, repeated,
        and one more for each merged attribute.
        """
        tables = {clique: model.potential(clique)[self._index(clique)] for clique in model.cliques}
        for attribute, share in zip(self.full.attributes, self.shares, strict=True):
            if (share < 1).any():
                tables[attribute,] = tables.get((attribute,), 0.0) + np.log(share)
        potentials = np.concatenate([np.zeros(0), *(table.ravel() for table in tables.values())])
        return MarkovRandomField(junction_tree(self.full, list(tables)), list(tables), potentials, total=model.total)

    def spread(self, clique: Clique, table: Floats) -> Floats:
        """A table of the smaller domain as one of the full: merged cells are divided by the shares."""
        divided = table[self._index(clique)]
        for axis, attribute in enumerate(clique):
            share = self.shares[self.full.position(attribute)]
            divided = divided * np.expand_dims(share, tuple(k for k in range(len(clique)) if k != axis))
        return divided

    def _index(self, clique: Clique) -> tuple[NDArray[np.int64], ...]:
        return np.ix_(*(self.groups[self.full.position(attribute)] for attribute in clique))

    def _merged(self, excluded: Impossible) -> Impossible:
        codes = []
        for attribute, listed in excluded.codes:
            group = self.groups[self.full.position(attribute)]
            others = np.delete(group, listed)
            codes.append((attribute, tuple(np.setdiff1d(group, others).tolist())))
        return Impossible(excluded.rule, tuple(codes))

    def _matrix(self, attribute: str) -> NDArray[np.int64]:
        return group_matrix(self.groups[self.full.position(attribute)])


def _shares(noisy: Floats) -> Floats:
    shares = np.maximum(positive_shares(noisy), LEAST_SHARE)
    return np.asarray(shares / shares.sum())
