"""Linear queries, their noisy answers, and the query matrices they are made of.

A query matrix has one column for each code of an attribute and one row for each query (Private-PGM, Table 2). The
Kronecker product of one matrix for each attribute is a query set over all of them, measured with noise
(`LinearMeasurement`) or answered by a model (`markov_random_field.answer_queries`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import namespace
from synth_core.domain import Clique, Domain
from synth_core.errors import SchemaError, SpecError
from synth_core.measurement import Measurement
from synth_core.models.calibration import split_tables

Vector = Any
"""A one-dimensional float64 array of the library in use."""


@dataclass(frozen=True, slots=True, eq=False)
class LinearMeasurement:
    """Noisy answers to (Q_1 ⊗ … ⊗ Q_k) mu, with the standard deviation of the noise on each answer.

    `matrices` holds one query matrix for each attribute of `clique`; `noisy` has one axis for each, as long as
    the matrix has rows. A plain `Measurement` is the case of identity matrices.
    """

    clique: Clique
    matrices: tuple[Matrix, ...]
    noisy: NDArray[np.float64]
    sigma: float

    def __post_init__(self) -> None:
        if self.noisy.shape != tuple(len(matrix) for matrix in self.matrices):
            raise ValueError(f"measurement of {self.clique} needs one answer for each query")
        if not self.sigma > 0:
            raise ValueError(f"measurement of {self.clique} needs a positive sigma")
        self.noisy.setflags(write=False)


Answered: TypeAlias = Measurement | LinearMeasurement


def contract_axes(table: Any, matrices: Sequence[Any]) -> Any:
    """Multiply the table's axes by one matrix each: the Kronecker product's answer, never forming the product."""
    xp = namespace(table)
    for matrix in matrices:
        # The first axis is consumed and its answers become the last: after all matrices the order is restored.
        table = xp.tensordot(table, matrix, axes=((0,), (1,)))
    return table


def estimate_total(measurements: Sequence[Answered]) -> float:
    """Estimate the number of records from the answers alone (Private-PGM, E.1).

    If 1ᵀ = vᵀQ then vᵀy estimates the total with variance sigma^2 |v|^2; v = 1ᵀQ⁺ has the least. For a Kronecker
    product v is the product of the factors' v. Estimates are combined with weights inverse to their variances.

    Args:
        measurements: noisy marginals, or noisy answers to linear queries.

    Returns:
        The number of records.

    Raises:
        SchemaError: no measurement determines it.
    """
    estimates = [estimate for m in measurements if (estimate := _total(m)) is not None]
    if not estimates:
        raise SchemaError("the measurements do not determine the number of records; give the total")
    precision = sum(1 / variance for _, variance in estimates)
    return float(sum(value / variance for value, variance in estimates) / precision)


def _total(measurement: Answered) -> tuple[float, float] | None:
    if isinstance(measurement, Measurement):
        return float(measurement.noisy.sum()), measurement.noisy.size * measurement.sigma**2
    vectors = [np.ones(matrix.shape[1]) @ np.linalg.pinv(matrix) for matrix in measurement.matrices]
    for vector, matrix in zip(vectors, measurement.matrices, strict=True):
        if not np.allclose(vector @ matrix, 1.0):
            return None
    value = contract_axes(measurement.noisy, [vector[None, :] for vector in vectors])
    spread = np.prod([float(vector @ vector) for vector in vectors])
    return float(value.sum()), measurement.sigma**2 * float(spread)


@dataclass(frozen=True, slots=True)
class Queries:
    """A block-diagonal query matrix over the tables of several cliques, applied block by block.

    `cliques` are the tables it reads, one after the other in one vector; each block names a table and the
    matrices applied to it (None: the table itself). `lengths` are the answers of each block.
    """

    domain: Domain
    cliques: tuple[Clique, ...]
    blocks: tuple[tuple[int, tuple[Any, ...] | None], ...]

    @property
    def lengths(self) -> list[int]:
        """Number of answers of each block."""
        return [
            self.domain.cells(self.cliques[table]) if matrices is None else int(np.prod([len(m) for m in matrices]))
            for table, matrices in self.blocks
        ]

    def answers(self, tables: Vector) -> Vector:
        """Q mu."""
        xp = namespace(tables)
        parts = split_tables(self.domain, self.cliques, tables)
        found = [contract_axes(parts[table].values, matrices or ()) for table, matrices in self.blocks]
        return xp.concat([xp.reshape(answers, (-1,)) for answers in found])

    def transposed(self, answers: Vector) -> Vector:
        """Qᵀ r."""
        xp = namespace(answers)
        sums: list[Any] = [None] * len(self.cliques)
        start = 0
        for (table, matrices), length in zip(self.blocks, self.lengths, strict=True):
            part = answers[start : start + length]
            if matrices is not None:
                shaped = xp.reshape(part, tuple(m.shape[0] for m in matrices))
                part = xp.reshape(contract_axes(shaped, [m.T for m in matrices]), (-1,))
            sums[table] = part if sums[table] is None else sums[table] + part
            start += length
        return xp.concat(sums)

    def squared(self) -> Queries:
        """The same blocks with every matrix entry squared."""
        blocks = [(table, None if ms is None else tuple(m * m for m in ms)) for table, ms in self.blocks]
        return Queries(self.domain, self.cliques, tuple(blocks))


Matrix = NDArray[np.float64]


def identity(size: int) -> Matrix:
    """Keep the attribute.

    Args:
        size: number of the attribute's codes.

    Returns:
        The queries, one for each code.
    """
    return np.eye(size)


def total(size: int) -> Matrix:
    """Sum the attribute out.

    Args:
        size: number of the attribute's codes.

    Returns:
        The query, one row of ones.
    """
    return np.ones((1, size))


def evidence(size: int, codes: int | Iterable[int]) -> Matrix:
    """Count the records with this code, or with one of these codes.

    Args:
        size: number of the attribute's codes.
        codes: the code, or several.

    Returns:
        The query, one row.

    Raises:
        SpecError: a code is outside the attribute.
    """
    chosen = [codes] if isinstance(codes, int) else list(codes)
    matrix = np.zeros((1, size))
    matrix[0, _checked(chosen, size)] = 1.0
    return matrix


def prefixes(size: int) -> Matrix:
    """Count the records with at most each code.

    Args:
        size: number of the attribute's codes.

    Returns:
        The queries, one for each code: the cumulative distribution.
    """
    return np.tril(np.ones((size, size)))


def ranges(size: int, bounds: Sequence[tuple[int, int]]) -> Matrix:
    """Count the records with a code in each range.

    Args:
        size: number of the attribute's codes.
        bounds: first and last code of each range, both included.

    Returns:
        The queries, one for each range.

    Raises:
        SpecError: a code is outside the attribute.
    """
    codes = np.arange(size)
    for first, last in bounds:
        _checked([first, last], size)
    return np.array([(first <= codes) & (codes <= last) for first, last in bounds], dtype=np.float64)


def group_codes(size: int, groups: Sequence[int]) -> Matrix:
    """Count the records in each group of codes.

    Args:
        size: number of the attribute's codes.
        groups: number of the group of every code.

    Returns:
        The queries, one for each group.

    Raises:
        SpecError: there is not one group number for each code.
    """
    if len(groups) != size:
        raise SpecError(f"a compression of {size} codes needs {size} group numbers")
    matrix = np.zeros((max(groups) + 1, size))
    matrix[list(groups), np.arange(size)] = 1.0
    return matrix


def mean(size: int, values: Sequence[float] | None = None) -> Matrix:
    """Sum the attribute's value over records.

    Args:
        size: number of the attribute's codes.
        values: what each code stands for; 1, 2, … unless given.

    Returns:
        The query, one row; divide its answer by the number of records.
    """
    return moments(size, 1, values)


def moments(size: int, count: int, values: Sequence[float] | None = None) -> Matrix:
    """Sum the first powers of the attribute's value over records.

    Args:
        size: number of the attribute's codes.
        count: how many powers, from the first on.
        values: what each code stands for; 1, 2, … unless given.

    Returns:
        The queries, one for each power.

    Raises:
        SpecError: there is not one value for each code.
    """
    numbers = np.arange(1.0, size + 1) if values is None else np.asarray(values, dtype=np.float64)
    if numbers.shape != (size,):
        raise SpecError(f"moments over {size} codes need {size} values")
    return numbers[None, :] ** np.arange(1, count + 1)[:, None]


def _checked(codes: Sequence[int], size: int) -> Sequence[int]:
    if not all(0 <= code < size for code in codes):
        raise SpecError(f"a query names a code outside 0 … {size - 1}")
    return codes
