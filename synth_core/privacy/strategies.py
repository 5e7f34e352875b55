"""Linear queries about one clique: integer matrices for its attributes, and what one record can change in the answers.

A strategy is public data, fixed before any count is opened. Its answers are sums of counts with integer
coefficients, so they are exact integers before the noise.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain
from synth_core.errors import SpecError, WallError
from synth_core.privacy.answer_form import AnswerKind, Block, Groups, array_facts
from synth_core.privacy.answer_form import fingerprint as fingerprint_of
from synth_core.privacy.noise import GRID
from synth_core.privacy.queries import Counts

IntegerMatrix = NDArray[np.int64]

SUM_STEPS = 2**16
"""Integers into which the reach of a sum of numbers is divided."""

_LARGEST = 2**62 // GRID


@dataclass(frozen=True, slots=True, eq=False)
class Strategy:
    """The queries A_1 ⊗ … ⊗ A_k over a clique: one integer matrix for each attribute, a column for each code."""

    clique: Clique
    matrices: tuple[IntegerMatrix, ...]

    def __post_init__(self) -> None:
        if len(self.matrices) != len(self.clique):
            raise SpecError(f"a strategy for {self.clique} needs one matrix for each attribute")
        for attribute, matrix in zip(self.clique, self.matrices, strict=True):
            if matrix.ndim != 2 or matrix.dtype != np.int64 or not matrix.any():
                raise SpecError(f"the strategy for {attribute!r} must be a matrix of 64-bit integers, not all 0")
            matrix.setflags(write=False)

    @property
    def sensitivity2(self) -> int:
        """The squared L2 sensitivity: the product of the largest squared column norms of the matrices.

        A record with codes x changes one cell of the table by one, hence the answers by the column of the Kronecker
        product at that cell. That column is the Kronecker product of the factors' columns x_1, …, x_k, and the norm
        of a Kronecker product is the product of the norms. The codes are chosen one by one, so the largest
        norm is the product of the largest norms, and some record attains it. All of this is in integers.
        """
        return math.prod(max(map(int, (m.astype(object) ** 2).sum(axis=0))) for m in self.matrices)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of queries along each attribute."""
        return tuple(len(matrix) for matrix in self.matrices)

    def check(self, domain: Domain) -> None:
        """Refuse a strategy that does not fit the domain."""
        columns = tuple(matrix.shape[1] for matrix in self.matrices)
        if self.clique != domain.clique(self.clique) or columns != domain.shape(self.clique):
            raise SpecError(f"the strategy for {', '.join(self.clique)} needs the domain's order and sizes")

    def evaluate(self, counts: Counts) -> Counts:
        """The exact answers; no sum on the way exceeds n times the product of the largest coefficients."""
        most = int(np.abs(counts).sum()) * math.prod(max(1, int(np.abs(m).max())) for m in self.matrices)
        if most > _LARGEST:
            raise WallError("the strategy's coefficients leave no room for noise; use smaller ones")
        for matrix in self.matrices:
            counts = np.tensordot(counts, matrix, axes=((0,), (1,)))
        return counts

    @property
    def groups(self) -> Groups | None:
        """The groups of codes that it counts, where every record is counted once; None for all other queries."""
        found = []
        for matrix in self.matrices:
            if not ((matrix == 0) | (matrix == 1)).all() or not (matrix.sum(axis=0) == 1).all():
                return None
            if not matrix[-1].any():  # the last group is the number of groups
                return None
            same = matrix.shape[0] == matrix.shape[1] and (np.diagonal(matrix) == 1).all()
            found.append(None if same else tuple(matrix.argmax(axis=0).tolist()))
        return tuple(found)

    def facts(self) -> list[Any]:
        """All that determines the question."""
        return ["strategy", list(self.clique), [array_facts(matrix) for matrix in self.matrices]]

    def block(self) -> Block:
        """What its answers are: a marginal, one of merged codes, or something else."""
        groups = self.groups
        if groups is None:
            digest = fingerprint_of("strategy", [self.facts()])
            return Block(kind=AnswerKind.STRATEGY, clique=self.clique, shape=self.shape, strategy=digest)
        if not any(groups):
            return Block(kind=AnswerKind.MARGINAL, clique=self.clique, shape=self.shape)
        return Block(kind=AnswerKind.MERGED, clique=self.clique, shape=self.shape, groups=groups)


@dataclass(frozen=True, slots=True, eq=False)
class WeightedSum:
    """One query over a clique: the sum of an integer weight over all records, given for each cell of their table.

    A record with codes x changes one cell of the table by one, hence the answer by the weight of that cell. So **the
    sensitivity is the largest absolute weight**, and a record in that cell attains it. All of this is in integers.

    Attributes:
        clique: The attributes whose codes say what a record weighs.
        weights: The weight of each cell, an axis for each attribute.
    """

    clique: Clique
    weights: IntegerMatrix

    def __post_init__(self) -> None:
        if self.weights.ndim != len(self.clique) or self.weights.dtype != np.int64 or not self.weights.any():
            raise SpecError(f"the weights for {', '.join(self.clique)} must be 64-bit integers, not all 0")
        self.weights.setflags(write=False)

    @property
    def sensitivity2(self) -> int:
        """The squared sensitivity: the square of the largest absolute weight."""
        return max(-int(self.weights.min()), int(self.weights.max())) ** 2

    @property
    def shape(self) -> tuple[int, ...]:
        """One answer, an axis for each attribute."""
        return (1,) * len(self.clique)

    def check(self, domain: Domain) -> None:
        """Refuse weights that do not fit the domain."""
        if self.clique != domain.clique(self.clique) or self.weights.shape != domain.shape(self.clique):
            raise SpecError(f"the weights for {', '.join(self.clique)} need the domain's order and sizes")

    def evaluate(self, counts: Counts) -> Counts:
        """The exact answer; no sum on the way exceeds n times the largest weight."""
        if int(np.abs(counts).sum()) * math.isqrt(self.sensitivity2) > _LARGEST:
            raise WallError("the sum's weights leave no room for noise; use smaller ones")
        return np.array((counts * self.weights).sum(), dtype=np.int64).reshape(self.shape)

    def facts(self) -> list[Any]:
        """All that determines the question."""
        return ["weighted sum", list(self.clique), array_facts(self.weights)]

    def block(self) -> Block:
        """What its answer is."""
        digest = fingerprint_of("strategy", [self.facts()])
        return Block(kind=AnswerKind.STRATEGY, clique=self.clique, shape=self.shape, strategy=digest)


LinearQuery: TypeAlias = Strategy | WeightedSum
"""What a curator answers with noise of the size of its sensitivity."""

Asked = TypeVar("Asked", bound=LinearQuery)


@dataclass(frozen=True, slots=True, eq=False)
class Answers(Generic[Asked]):
    """Noisy answers of a strategy, one axis for each attribute, with the standard deviation of each; public."""

    strategy: Asked
    noisy: NDArray[np.float64]
    sigma: float


def place_sums(clique: Clique, *, bins: int, size: int, places: int) -> Strategy:
    """For each bin of a column, the sum over its records of how far from the middle of the bin they lie.

    The table counts records by code and by place, one of `places` equal cells of their bin. A record at place p adds
    2 p - (places - 1) to the sum of its bin, which is its distance from the middle in units of 1 / (2 places) of the
    bin's width, and nothing to any other; a record with a code beyond the bins adds nothing at all. So one record moves
    one sum, by at most places - 1: **the L2 sensitivity is places - 1, less than half of the width of the bin**, the
    same for wide and narrow bins and for any number of them, and a record at either end attains it. In terms of
    `Strategy`: the columns of (I 0) have norm 1 or 0, and the largest coefficient is places - 1.

    Args:
        clique: the attribute of the codes and that of the places.
        bins: how many codes are bins; they come first.
        size: how many codes there are.
        places: how many places a bin has, at least 2.
    """
    chosen = np.eye(bins, size, dtype=np.int64)
    along = 2 * np.arange(places, dtype=np.int64)[None, :] - (places - 1)
    return Strategy(clique, (chosen, along))


def group_matrix(groups: NDArray[np.int64]) -> IntegerMatrix:
    """The queries that count each group of codes; `groups` holds the group of each code."""
    return np.equal.outer(np.arange(groups.max() + 1), groups).astype(np.int64)


def number_sum(clique: Clique, numbers: NDArray[np.float64], *, size: int, centre: float, reach: float) -> WeightedSum:
    """The sum, over a column's records, of how far their numbers lie from a public centre.

    A record in bin b at place p adds the integer nearest to `SUM_STEPS` * (numbers[b, p] - centre) / reach; a record
    with a code beyond the bins adds nothing. No number lies further than `reach` from the centre, which is refused
    otherwise, so one record moves the answer by at most `SUM_STEPS`: **the sensitivity is at most the reach**, in the
    column's numbers (see `WeightedSum`). Centre and reach are public, fixed before a count is opened.

    Args:
        clique: the attribute of the codes and that of the places.
        numbers: the number for which each place of each bin stands, a row for each bin.
        size: how many codes there are, the bins first.
        centre: from where it is measured.
        reach: the largest distance.
    """
    distances = (numbers - centre) / reach
    if not np.abs(distances).max() <= 1 + 1e-9:
        raise SpecError("a number lies beyond the reach of its sum; take a larger one")
    weights = np.zeros((size, numbers.shape[1]), dtype=np.int64)
    weights[: len(numbers)] = np.rint(np.clip(distances, -1, 1) * SUM_STEPS)
    return WeightedSum(clique, weights)


def fingerprint(strategies: Sequence[LinearQuery]) -> str:
    """A short name of what is asked, so that other matrices never get a stored answer of these."""
    asked = [
        [s.clique, [m.tolist() for m in (s.matrices if isinstance(s, Strategy) else (s.weights,))]] for s in strategies
    ]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]
