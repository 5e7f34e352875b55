"""The questions that may be asked about confidential counts: a closed list of data, never code.

Each query says which tables it needs, evaluates to an integer on the grid of 1/GRID, and carries its sensitivity:
the most one added or removed record can move it, with the proof in its docstring. Everything in a query other
than the counts it is evaluated on is public and fixed before the counts are opened. All of it, in the units in which
it is evaluated, are the query's `facts`: two queries with the same facts are the same question.

**Records in parts.** A unit may be spread over several cells, with weights that sum to 1 (`storage.households`); counts
then come in units of 1/`scale` records. Every query here is a function of tables of real numbers that a whole record
moves by at most its sensitivity D, wherever it lands and whatever is there already. A part of weight w then moves it by
at most w D: for `Total`, `Misfit` and `BoxCount` because each cell enters linearly or by a distance, for `Dependence`
because R(c + w e) - R(c) = w (R(c / w + e) - R(c / w)) and its proof nowhere needs whole counts. Parts are added one
after the other and their weights sum to 1, so the sensitivities stay. Values are floored to the grid last, and floors
of reals that differ by at most an integer differ by at most that integer.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique
from synth_core.errors import SpecError
from synth_core.measurement import merge_codes
from synth_core.privacy.answer_form import array_facts
from synth_core.privacy.noise import GRID

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Total:
    """The number of records.

    Sensitivity 1: one record more or less changes the number by one.
    """

    clique: ClassVar[Clique] = ()  # the empty set of attributes, whose table has one cell
    sensitivity: ClassVar[Fraction] = Fraction(1)

    def evaluate(self, counts: Counts, scale: int = 1) -> int:
        """Number of records, in grid units."""
        return GRID * int(counts.sum()) // scale

    def facts(self) -> list[Any]:
        """All that determines the question."""
        return ["total"]


@dataclass(frozen=True, slots=True)
class Dependence:
    """R(A, B) = 1/2 * sum |c_ab - r_a * s_b / n|: how far a pair is from independence, in records.

    Sensitivity 2. Let d_ab = c_ab - r_a s_b / n be the deviations and add a record at (i, j). They move by
    -s_b (n - r_i) / (n (n + 1)) in the rest of row i, by -r_a (n - s_j) / (n (n + 1)) in the rest of column j and by
    r_a s_b / (n (n + 1)) off both; each of these three groups adds up, in absolute value, to
    T = (n - r_i) (n - s_j) / (n (n + 1)). Deviations always sum to zero, so the corner (i, j) moves by T as well.
    Hence R moves by at most 4 T / 2 <= 2 n / (n + 1) < 2. On the grid the value is floored: reals that differ by less
    than the integer 2 * GRID have floors that differ by at most 2 * GRID, so the sensitivity is still 2.
    """

    clique: Clique
    sensitivity: ClassVar[Fraction] = Fraction(2)

    def evaluate(self, counts: Counts, scale: int = 1) -> int:
        """floor(GRID * R), by exact integer arithmetic."""
        n = int(counts.sum())
        if n == 0:
            return 0
        table = counts if n < 2**30 else counts.astype(object)
        deviation = np.abs(n * table - table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True))
        return GRID * int(deviation.sum()) // (2 * n * scale)

    def facts(self) -> list[Any]:
        """All that determines the question."""
        return ["dependence", list(self.clique)]


@dataclass(frozen=True, slots=True, eq=False)
class Misfit:
    """weight * (sum |c - reference| - penalty): L1 distance of a table from a public guess, in records.

    Sensitivity 1: a record changes one cell of c by one, so by the triangle inequality one term by at most one; the
    reference and the penalty are public constants (the reference is scaled by a frozen noisy total, never by n).
    Half of it against the product of noisy one-way marginals is S(A, B), of sensitivity 1/2. The reference
    is rounded to the grid first, so the arithmetic is exact.

    The weight, a public constant too, is at most 1, so it moves no value further: queries of different weights are
    divided by the largest before they are asked. On the grid the weighted value is floored; floor(x + m) = floor(x) + m
    for an integer m, so reals that differ by at most GRID have floors that do, and the sensitivity is still 1.
    """

    clique: Clique
    reference: NDArray[np.float64]
    penalty: float = 0.0
    weight: Fraction = Fraction(1)
    sensitivity: ClassVar[Fraction] = Fraction(1)

    def __post_init__(self) -> None:
        if not 0 < self.weight <= 1:
            raise SpecError("the weight of a misfit lies in (0, 1]; divide weights by the largest of them")

    def evaluate(self, counts: Counts, scale: int = 1) -> int:
        """The weighted misfit in grid units."""
        guess, penalty = self._on_grid()
        value = int(np.abs(GRID * counts - scale * guess).sum()) - scale * penalty
        return value * self.weight.numerator // (self.weight.denominator * scale)

    def facts(self) -> list[Any]:
        """All that determines the question; references that are rounded to the same numbers ask the same."""
        guess, penalty = self._on_grid()
        return ["misfit", list(self.clique), array_facts(guess), penalty, str(self.weight)]

    def _on_grid(self) -> tuple[Counts, int]:
        return np.rint(self.reference * GRID).astype(np.int64), round(self.penalty * GRID)


@dataclass(frozen=True, slots=True)
class BoxCount:
    """offset + sign * (records in a box - half of all records): how far a range query is from what it should be.

    Sensitivity 1/2: a record adds 1 or 0 to the count in the box and 1/2 to half of all, so it moves their
    difference by exactly 1/2, up or down; sign and offset are public constants. `box` holds the first code and the
    code after the last for each attribute. GRID is even, so half of all is an integer on the grid.
    """

    clique: Clique
    box: tuple[tuple[int, int], ...]
    sign: Literal[1, -1] = 1
    offset: float = 0.0
    sensitivity: ClassVar[Fraction] = Fraction(1, 2)

    def evaluate(self, counts: Counts, scale: int = 1) -> int:
        """The value in grid units."""
        inside = int(counts[tuple(slice(first, end) for first, end in self.box)].sum())
        centred = GRID * inside - GRID // 2 * int(counts.sum())
        return self.sign * centred // scale + round(self.offset * GRID)

    def facts(self) -> list[Any]:
        """All that determines the question."""
        box = [[int(first), int(end)] for first, end in self.box]
        return ["box", list(self.clique), box, int(self.sign), round(self.offset * GRID)]


@dataclass(frozen=True, slots=True, eq=False)
class Coarsened:
    """A query about a table whose codes are put into public groups first, attribute by attribute.

    Its sensitivity is that of the query: grouping maps every record to one record of the grouped table, so
    tables that differ by one record are mapped to grouped tables that differ by one record. `groups` holds, for each
    attribute of the clique, the group of each code, or None where the codes stay as they are.
    """

    query: Dependence | Misfit
    groups: tuple[NDArray[np.int64] | None, ...]

    @property
    def clique(self) -> Clique:
        """The attributes of the table."""
        return self.query.clique

    @property
    def sensitivity(self) -> Fraction:
        """That of the query."""
        return self.query.sensitivity

    def evaluate(self, counts: Counts, scale: int = 1) -> int:
        """The query's value on the grouped counts, in grid units."""
        return self.query.evaluate(merge_codes(counts, self.groups), scale)

    def facts(self) -> list[Any]:
        """All that determines the question."""
        groups = [None if group is None else array_facts(group) for group in self.groups]
        return ["coarsened", self.query.facts(), groups]


Query = Total | Dependence | Misfit | BoxCount | Coarsened
