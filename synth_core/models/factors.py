"""Query matrices over one attribute: the building blocks of Private-PGM's factored queries (its Table 2).

A matrix has one column for each code of the attribute and one row for each query. The Kronecker product of one matrix
for each attribute is a query set over all of them, measured with noise (`linear.LinearMeasurement`) or answered
by a model (`queries.answers`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from synth_core.errors import SpecError

Matrix = NDArray[np.float64]


def identity(size: int) -> Matrix:
    """Keep the attribute: one query for each code."""
    return np.eye(size)


def total(size: int) -> Matrix:
    """Sum the attribute out."""
    return np.ones((1, size))


def evidence(size: int, codes: int | Iterable[int]) -> Matrix:
    """Records with this code, or with one of these codes."""
    chosen = [codes] if isinstance(codes, int) else list(codes)
    matrix = np.zeros((1, size))
    matrix[0, _checked(chosen, size)] = 1.0
    return matrix


def prefixes(size: int) -> Matrix:
    """Records with at most each code: the cumulative distribution."""
    return np.tril(np.ones((size, size)))


def ranges(size: int, bounds: Sequence[tuple[int, int]]) -> Matrix:
    """Records with a code from first to last, both included, for each pair of bounds."""
    codes = np.arange(size)
    for first, last in bounds:
        _checked([first, last], size)
    return np.array([(first <= codes) & (codes <= last) for first, last in bounds], dtype=np.float64)


def compressed(size: int, groups: Sequence[int]) -> Matrix:
    """Records in each group of codes; `groups` names the group of every code."""
    if len(groups) != size:
        raise SpecError(f"a compression of {size} codes needs {size} group numbers")
    matrix = np.zeros((max(groups) + 1, size))
    matrix[list(groups), np.arange(size)] = 1.0
    return matrix


def mean(size: int, values: Sequence[float] | None = None) -> Matrix:
    """Sum of the attribute's value over records; codes count as 1, 2, … where no values are given."""
    return moments(size, 1, values)


def moments(size: int, count: int, values: Sequence[float] | None = None) -> Matrix:
    """Sums of the first powers of the attribute's value over records."""
    numbers = np.arange(1.0, size + 1) if values is None else np.asarray(values, dtype=np.float64)
    if numbers.shape != (size,):
        raise SpecError(f"moments over {size} codes need {size} values")
    return numbers[None, :] ** np.arange(1, count + 1)[:, None]


def _checked(codes: Sequence[int], size: int) -> Sequence[int]:
    if not all(0 <= code < size for code in codes):
        raise SpecError(f"a query names a code outside 0 … {size - 1}")
    return codes
