"""Columns of numbers cut into bins."""

from __future__ import annotations

import re
from abc import abstractmethod
from bisect import bisect_right
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Discriminator, Field, StrictFloat, StrictInt, Tag, model_validator

from synth_core.errors import SchemaError
from synth_core.names import one_line
from synth_core.schema.columns.base import UNSEEN, ColumnBase, Declaration, Range
from synth_core.schema.columns.inside import ATOMS, InsideBins

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

WHOLE_LIMIT = 2**52
"""Integers up to here, and the widths of bins between them, are exact as float64."""

REAL_LIMIT = 1e300
"""Keeps the width of every bin finite."""

MAX_BINS = 1_000_000
"""Upper limit of the number of equal bins."""

NOT_IN_UNIVERSE = "not in universe"
"""Caption of the code for records to which the question does not apply."""

MAX_GRID_CELLS = 2**16
"""Upper limit of `grid`."""

DEFAULT_GRID_CELLS = 256
"""Cells of the grid where none are declared; a column of fewer whole numbers has one for each."""


def _bins_form(value: object) -> str:
    if isinstance(value, dict | PrivateQuantiles):
        return "quantiles"
    return "edges" if isinstance(value, list | tuple) else "count"


def _number_or_text(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("text or a number is needed")
    if value == "":
        raise ValueError("empty text cannot be distinguished from a missing value; use a word")
    if not isinstance(value, str):
        if not abs(value) <= REAL_LIMIT:
            raise ValueError("the number is too large; use text")
        return value
    try:
        float(value)
    except ValueError:
        return one_line(value)
    raise ValueError(f"{value!r} in quotes reads as a number; write it without quotes")


class PrivateQuantiles(Declaration):
    """Bins of about equally many records: their edges are bought, as a noisy histogram over a public grid.

    The grid cuts the column's `bounds` into equal cells, and every edge is one of its edges. What lies beyond the outer
    ones is clipped into the end bins, so that numbers drawn inside these do not stray as far as wide bounds allow.
    """

    private_quantiles: Annotated[int, Field(strict=True, ge=2, le=MAX_GRID_CELLS)] = Field(
        description="how many bins there shall be; where many records share one cell there are fewer"
    )
    grid: Annotated[int, Field(strict=True, ge=2, le=MAX_GRID_CELLS)] | None = Field(
        default=None,
        description=f"how many cells the grid has; left out: {DEFAULT_GRID_CELLS}, "
        "or one for each whole number if fewer",
    )
    tails: Annotated[float, Field(strict=True, ge=0, lt=0.5)] = Field(
        default=0.005,
        description="share of the records beyond each of the outer edges; more where noise hides so few",
    )
    bought: tuple[StrictInt | StrictFloat, ...] | None = Field(
        default=None,
        description="the edges that a release has bought; the step `ingest` writes them, no person does",
    )


Whole: TypeAlias = Annotated[int, Field(strict=True, ge=-WHOLE_LIMIT, le=WHOLE_LIMIT)]
Finite: TypeAlias = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-REAL_LIMIT, le=REAL_LIMIT)]
Mark: TypeAlias = Annotated[int | float | str, BeforeValidator(_number_or_text)]
Count: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=MAX_BINS), Tag("count")]
Quantiles: TypeAlias = Annotated[PrivateQuantiles, Tag("quantiles")]
WholeBins: TypeAlias = Annotated[
    Count | Annotated[tuple[Whole, ...], Tag("edges")] | Quantiles,
    Discriminator(_bins_form),
]
FiniteBins: TypeAlias = Annotated[
    Count | Annotated[tuple[Finite, ...], Tag("edges")] | Quantiles,
    Discriminator(_bins_form),
]


class NumberBase(InsideBins):
    """A column of numbers cut into bins.

    Either `bins` lists the edges, or `bounds` and a number of equal `bins` give them, or the release buys them between
    the `bounds`; until it has, the column has no edges and no codes. `unseen: clip` moves a number outside the edges
    into the nearest bin. `hierarchy` lists coarser edges, a part of the fine ones with the same first and last.

    Decoded, what is `not_in_universe` is written as it is declared: a number outside the bins leaves the column one of
    numbers, a word makes it one of text.

    Each of the `atoms` has a bin of its own, cut out of the bin in which it lies.
    """

    unseen_remedy: ClassVar[str] = (
        "has a value outside the declared bins; widen them, declare a code for those not asked as not_in_universe, or "
        "use unseen: other or clip"
    )

    bounds: tuple[Any, Any] | None = None
    bins: Any
    hierarchy: tuple[Any, ...] | None = None
    not_in_universe: Mark | None = Field(
        default=None,
        description="the word, or the number outside the bins, where the question does not apply; it has its own code",
    )

    @cached_property
    def edges(self) -> tuple[Any, ...]:
        """The edges of the bins, one more than there are bins; SchemaError where they are still to be bought."""
        around = {edge for atom in self.atoms for edge in (atom, self._after(atom))}
        return tuple(sorted({*self._edges, *around})) if around else self._edges

    @cached_property
    def _edges(self) -> tuple[Any, ...]:
        """The edges without those around atoms."""
        if isinstance(self.bins, tuple) or self.bounds is None:
            return tuple(self.bins)
        if not isinstance(self.bins, PrivateQuantiles):
            return self._equal_edges(*self.bounds, count=self.bins)
        if self.bins.bought is None:
            raise SchemaError(
                f"column {self.name!r} has bins that are to be bought; use `synth run`, or list their edges"
            )
        return self.bins.bought

    def codes_alike(self, other: ColumnBase) -> bool:
        """The same, with the same edges to the last digit."""
        return isinstance(other, NumberBase) and super().codes_alike(other) and self.edges == other.edges

    @property
    def grid_edges(self) -> tuple[Any, ...]:
        """The edges of the grid over which a histogram is bought."""
        low, high = self.bounds or (0, 0)
        return self._equal_edges(low, high, count=self.quantiles.grid or self._usual_cells(low, high))

    @property
    def even_edges(self) -> tuple[Any, ...]:
        """Edges of the grid at even distances, as many as are to be bought."""
        grid, bins = self.grid_edges, self.quantiles.private_quantiles
        return tuple(grid[i * (len(grid) - 1) // bins] for i in range(bins + 1))

    @property
    def private_bins(self) -> Self | None:
        """The column itself if the edges of its bins are measured privately, bought or not."""
        return self if isinstance(self.bins, PrivateQuantiles) else None

    @property
    def numbers(self) -> Self:
        """The column itself."""
        return self

    @property
    def quantiles(self) -> PrivateQuantiles:
        """How the bins are bought, where they are."""
        wanted: PrivateQuantiles = self.bins
        return wanted

    def with_bought(self, edges: tuple[Any, ...] | None) -> Self:
        """The same column with these edges bought, or with none bought yet."""
        bins = self.quantiles.model_dump() | {"bought": edges}
        return type(self).model_validate(self.model_dump() | {"bins": bins})

    @property
    def declared(self) -> int:
        """How many bins are declared."""
        return len(self.edges) - 1

    @property
    def outside_code(self) -> int | None:
        """The code of what is not in the column's universe, where that is declared."""
        return self._code_beyond(NOT_IN_UNIVERSE)

    @property
    def levels(self) -> NDArray[np.float64]:
        """The number in the middle of every code's bin, NaN for codes that are no number."""
        edges = np.asarray(self.edges, dtype=np.float64)
        return np.concatenate([(edges[:-1] + edges[1:]) / 2, np.full(self.size - self.declared, np.nan)])

    def _beyond(self) -> tuple[str, ...]:
        return (NOT_IN_UNIVERSE,) * (self.not_in_universe is not None) + super()._beyond()

    def _declared_groups(self) -> tuple[int, ...] | None:
        if self.hierarchy is None:
            return None
        last = len(self.hierarchy) - 2
        return tuple(min(bisect_right(self.hierarchy, low) - 1, last) for low in self.edges[:-1])

    def _marks(self, cells: pa.Array, source: str) -> NDArray[np.int64]:
        return self._read(cells, source)[1]

    def _read(self, cells: pa.Array, source: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        from synth_core.schema.cells import NUMBER, read_numbers

        mark, code = self.not_in_universe, self.outside_code
        known = [] if mark is None or code is None else [(mark, code)]
        numbers, found = read_numbers(cells, known, self, source)
        plain = found == NUMBER
        self._check_numbers(numbers[plain], source)
        marks = np.searchsorted(self._open_edges(self.edges), numbers, side="right") - 1
        if self.unseen == "clip":
            np.clip(marks, 0, self.declared - 1, out=marks)
        else:
            marks[(marks < 0) | (marks == self.declared)] = UNSEEN
        return numbers, np.where(plain, marks, found)

    def _check_numbers(self, numbers: NDArray[np.float64], source: str) -> None:
        """Refuse numbers that the kind cannot hold."""

    def _open_edges(self, edges: tuple[Any, ...]) -> NDArray[np.float64]:
        """The edges such that every bin is closed below and open above."""
        return np.array(edges, dtype=np.float64)

    @abstractmethod
    def _after(self, atom: Any) -> Any:
        """Where the bin above an atom begins."""

    @property
    def _mark_number(self) -> int | float:
        """What is not in universe, where it is a number."""
        return 0 if isinstance(self.not_in_universe, str | None) else self.not_in_universe

    def _codes_of(self, item: int | float | str | Range) -> Any:
        """Bins inside the item; a bin partly inside is refused, because codes cannot separate its rows."""
        if item == self.not_in_universe:
            return self.outside_code
        span = _as_range(item)
        if self.private_bins:
            raise ValueError(
                f"{span!r} may cut through a bin, since the bins are bought; name null or what is not in universe"
            )
        inside, beside = self._bins_inside(span)
        if not np.all(inside | beside):
            raise ValueError(f"{span!r} cuts through a bin; move it to the bin's edge, or add an edge there")
        return np.flatnonzero(inside)

    @abstractmethod
    def _bins_inside(self, span: Range) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which bins lie wholly inside the range, and which wholly beside it."""

    def _matches(self, cells: pd.Series[Any], items: list[int | float | str | Range]) -> NDArray[np.bool_]:
        mark, matching = self.not_in_universe, np.zeros(len(cells), dtype=np.bool_)
        marked, numbers = self._marked(cells), self.numbers_in(cells)
        for item in items:
            if item == mark:
                matching = matching | marked
            else:
                span = _as_range(item)
                below = numbers <= span.max if self._includes_max(span) else numbers < span.max
                matching = matching | ((numbers >= span.min) & below)
        return matching

    def _marked(self, cells: pd.Series[Any]) -> NDArray[np.bool_]:
        """Which decoded cells say that the column does not apply."""
        mark = self.not_in_universe
        if mark is None:
            return np.zeros(len(cells), dtype=np.bool_)
        return cells.eq(mark).fillna(False).to_numpy(dtype=np.bool_)

    def numbers_in(self, cells: pd.Series[Any]) -> NDArray[np.float64]:
        """Returns the numbers of a decoded column, NaN where it holds none."""
        import pandas as pd

        return pd.to_numeric(cells.mask(self._marked(cells))).to_numpy(dtype=np.float64, na_value=np.nan)

    @abstractmethod
    def _includes_max(self, span: Range) -> bool:
        """Whether the greatest number of a range belongs to it."""

    @abstractmethod
    def _equal_edges(self, low: Any, high: Any, *, count: int) -> tuple[Any, ...]:
        """The edges of `count` bins of equal width."""

    def _usual_cells(self, low: Any, high: Any) -> int:
        return DEFAULT_GRID_CELLS

    @model_validator(mode="after")
    def _check(self) -> NumberBase:
        if isinstance(self.bins, tuple) and self.bounds is not None:
            raise ValueError("bounds: bins already lists the edges; give bounds with a number of bins, or edges alone")
        if not isinstance(self.bins, tuple) and self.bounds is None:
            raise ValueError("bins: a number of bins needs bounds: [low, high]; add them or list the edges")
        if isinstance(self.bins, PrivateQuantiles):
            self._check_quantiles(self.bins)
        edges = self.grid_edges if isinstance(self.bins, PrivateQuantiles) else self.edges
        if len(edges) < 2:
            raise ValueError("bins: at least two edges are needed")
        if any(low >= high for low, high in pairwise(edges)):
            key = "bins: edges must increase" if self.bounds is None else "bounds: there is no room for this many bins"
            raise ValueError(f"{key}; each bin needs a width above zero")
        if self.hierarchy is not None:
            self._check_coarser(self.hierarchy)
        self._check_inside(edges)
        mark = self.not_in_universe
        if not isinstance(mark, str | None) and edges[0] <= mark < self._open_edges(edges)[-1]:
            raise ValueError(f"not_in_universe: {mark!r} lies in the bins; use a number beyond them, or text")
        return self

    def _check_inside(self, edges: tuple[Any, ...]) -> None:
        if self.atoms and isinstance(self.bins, PrivateQuantiles):
            raise ValueError("atoms: they need edges that are known beforehand; list the edges, or leave atoms out")
        bins = self._edges if self.atoms else edges
        for atom in self.atoms:
            if not bins[0] <= atom < self._open_edges(bins)[-1]:
                raise ValueError(f"atoms: {atom!r} lies outside the bins; add an edge beyond it")
        if len(set(self.atoms)) < len(self.atoms):
            raise ValueError("atoms: a number is listed twice; name each once")
        if self.tail == "pareto" and isinstance(self.bins, tuple) and self.last_tail == "exponential":
            raise ValueError("tail: a pareto tail begins above 0; add an edge above 0, or use exponential")

    def _check_quantiles(self, bins: PrivateQuantiles) -> None:
        grid = self.grid_edges
        if bins.private_quantiles >= len(grid):
            raise ValueError(
                f"bins: the grid has fewer than {bins.private_quantiles} cells; refine it or ask for fewer quantiles"
            )
        if self.hierarchy is not None:
            raise ValueError("hierarchy: the edges of bought bins are not known beforehand; leave it out")
        if self.unseen != "clip":
            raise ValueError("unseen: numbers beyond bought edges belong to the end bins; declare unseen: clip")
        if bins.bought is not None:
            chosen = set(bins.bought)
            if len(chosen) < 2 or bins.bought != tuple(edge for edge in grid if edge in chosen):
                raise ValueError("bins: bought edges are two or more of the grid's, in its order; restore them")

    def _check_coarser(self, coarse: tuple[Any, ...]) -> None:
        if any(low >= high for low, high in pairwise(coarse)):
            raise ValueError("hierarchy: edges must increase")
        if not set(coarse) <= set(self.edges):
            raise ValueError("hierarchy: every coarser edge must be an edge of the bins")
        if len(coarse) < 2 or (coarse[0], coarse[-1]) != (self._edges[0], self._edges[-1]):
            raise ValueError("hierarchy: the coarser edges must begin and end where the bins do")


class Integer(NumberBase):
    """Whole numbers: bin i holds e_i … e_{i+1}-1, also the last; `bounds` are the least and greatest value.

    So `bins: [0, 18, 65, 100]` holds the values 0–17, 18–64 and 65–99, and `bounds: [0, 99]` with `bins: 10`
    the values 0–9, 10–19, … 90–99. Where the number of values is no multiple of `bins`, widths differ by one.
    """

    kind: Literal["integer"] = "integer"
    bounds: tuple[Whole, Whole] | None = None
    bins: WholeBins
    hierarchy: tuple[Whole, ...] | None = None
    atoms: tuple[Whole, ...] = Field(default=(), description=ATOMS)

    def _equal_edges(self, low: int, high: int, *, count: int) -> tuple[int, ...]:
        return tuple(low + i * (high + 1 - low) // count for i in range(count + 1))

    def _usual_cells(self, low: int, high: int) -> int:
        return max(1, min(DEFAULT_GRID_CELLS, high + 1 - low))

    def _declared_captions(self) -> tuple[str, ...]:
        return tuple(str(a) if b - a == 1 else f"{a}–{b - 1}" for a, b in pairwise(self.edges))

    def _check_numbers(self, numbers: NDArray[np.float64], source: str) -> None:
        if np.any(numbers != np.floor(numbers)):
            self.refuse(source, "has a value that is not a whole number; correct the source or declare kind: real")

    @property
    def single_bins(self) -> NDArray[np.bool_]:
        """Which bins hold one number only."""
        return np.asarray(np.diff(np.array(self.edges, dtype=np.int64)) == 1)

    @property
    def step(self) -> float:
        """Distance of neighbouring numbers."""
        return 1.0

    def _after(self, atom: int) -> int:
        return atom + 1

    def _bins_inside(self, span: Range) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        edges = np.asarray(self.edges, dtype=np.float64)
        low, high = edges[:-1], edges[1:] - 1
        return (low >= span.min) & (high <= span.max), (high < span.min) | (low > span.max)

    def _includes_max(self, span: Range) -> bool:
        return True

    @model_validator(mode="after")
    def _check_whole(self) -> Integer:
        mark = self.not_in_universe
        if not isinstance(mark, str | None) and (not isinstance(mark, int) or abs(mark) > WHOLE_LIMIT):
            raise ValueError("not_in_universe: a whole number is needed, of at most 2^52, or text")
        return self


class Real(NumberBase):
    """Real numbers: bin i is [e_i, e_{i+1}), the last one [e_{k-1}, e_k]; `bounds` are the outer edges."""

    kind: Literal["real"] = "real"
    bounds: tuple[Finite, Finite] | None = None
    bins: FiniteBins
    hierarchy: tuple[Finite, ...] | None = None
    atoms: tuple[Finite, ...] = Field(default=(), description=ATOMS)

    def _equal_edges(self, low: float, high: float, *, count: int) -> tuple[float, ...]:
        return (*(low + (high - low) * (i / count) for i in range(count)), high)

    def _declared_captions(self) -> tuple[str, ...]:
        *inner, last = pairwise(self.edges)
        captions = [*(f"[{_plain(a)}, {_plain(b)})" for a, b in inner), f"[{_plain(last[0])}, {_plain(last[1])}]"]
        for bin_ in np.flatnonzero(self.atom_bins):
            captions[bin_] = atom = _plain(self.edges[bin_])
            if bin_ + 1 < len(captions):
                captions[bin_ + 1] = f"({atom},{captions[bin_ + 1].partition(',')[2]}"
        return tuple(captions)

    def _open_edges(self, edges: tuple[float, ...]) -> NDArray[np.float64]:
        found = super()._open_edges(edges)
        found[-1] = np.nextafter(found[-1], np.inf)  # the last bin is closed
        return found

    @property
    def single_bins(self) -> NDArray[np.bool_]:
        """Which bins hold one number only."""
        edges = np.array(self.edges, dtype=np.float64)
        return np.asarray(np.nextafter(edges[:-1], np.inf) == edges[1:])

    @property
    def step(self) -> float:
        """Reals have no neighbours."""
        return 0.0

    def _after(self, atom: float) -> float:
        """The next number there is, so that a bin holds the atom alone."""
        return float(np.nextafter(atom, np.inf))

    def _bins_inside(self, span: Range) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        edges = np.asarray(self.edges, dtype=np.float64)
        low, high = edges[:-1], edges[1:]
        if span.min == span.max:
            if span.min not in self.atoms:
                raise ValueError(f"{span!r} is a single point; a real column takes ranges, or declares it in atoms")
            return low == span.min, low != span.min
        top = np.inf if self._includes_max(span) else span.max
        return (low >= span.min) & (high <= top), (high <= span.min) | (low >= top)

    def _includes_max(self, span: Range) -> bool:
        return bool(span.max >= self._edges[-1] or span.min == span.max)


_SPAN = re.compile(r"(-?[\d.]*?)\.\.(-?[\d.]*?)")
"""A range as it may stand where a mapping cannot, as a key: 18..64, 65.. or ..17."""


def _plain(edge: float) -> str:
    """An edge as people write it: 1000000, and not 1e+06."""
    return f"{edge:.0f}" if edge.is_integer() and abs(edge) < 1e15 else f"{edge:g}"


def _number(text: str) -> int | float | None:
    if not text:
        return None
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _as_range(item: int | float | str | Range) -> Range:
    if isinstance(item, Range):
        return item
    if isinstance(item, str) and (ends := _SPAN.fullmatch(item)):
        named = dict(zip(("min", "max"), (_number(end) for end in ends.groups()), strict=True))
        return Range(**{key: end for key, end in named.items() if end is not None})
    if isinstance(item, str):
        raise ValueError(f"{item!r} is not a number; a numeric column takes numbers and ranges")
    return Range(min=item, max=item)
