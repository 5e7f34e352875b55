"""Columns of numbers cut into bins."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Discriminator, Field, StrictFloat, StrictInt, Tag, model_validator

from synth_core.schema.columns.base import ColumnBase, Declaration, one_line

WHOLE_LIMIT = 2**52
"""Integers up to here, and the widths of bins between them, are exact as float64."""

REAL_LIMIT = 1e300
"""Keeps the width of every bin finite."""

MOST_BINS = 1_000_000

NOT_IN_UNIVERSE = "not in universe"

MOST_CELLS = 2**16
"""Of the public grid from which bins are bought, at most,"""
USUAL_CELLS = 256
"""and if nothing is declared."""


def _bins_form(value: object) -> str:
    if isinstance(value, dict | PrivateQuantiles):
        return "quantiles"
    return "edges" if isinstance(value, list | tuple) else "count"


def _number_or_text(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("text or a number is needed")
    if value == "":
        raise ValueError("empty text cannot be told from a missing value; use a word")
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

    private_quantiles: Annotated[int, Field(strict=True, ge=2, le=MOST_CELLS)] = Field(
        description="how many bins there shall be; where many records share one cell there are fewer"
    )
    grid: Annotated[int, Field(strict=True, ge=2, le=MOST_CELLS)] | None = Field(
        default=None,
        description=f"how many cells the grid has; left out: {USUAL_CELLS}, or one for each whole number if fewer",
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
Count: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=MOST_BINS), Tag("count")]
Quantiles: TypeAlias = Annotated[PrivateQuantiles, Tag("quantiles")]
WholeBins: TypeAlias = Annotated[
    Count | Annotated[tuple[Whole, ...], Tag("edges")] | Quantiles,
    Discriminator(_bins_form),
]
FiniteBins: TypeAlias = Annotated[
    Count | Annotated[tuple[Finite, ...], Tag("edges")] | Quantiles,
    Discriminator(_bins_form),
]


class NumberBase(ColumnBase):
    """A column of numbers cut into bins.

    Either `bins` lists the edges, or `bounds` and a number of equal `bins` give them, or the release buys them between
    the `bounds`; until it has, the bins are the cells of the grid. `unseen: clip` moves a number outside the edges into
    the nearest bin. `hierarchy` lists coarser edges, a part of the fine ones with the same first and last.

    Decoded, what is `not_in_universe` is written as it is declared: a number outside the bins leaves the column one of
    numbers, a word makes it one of text.
    """

    bounds: tuple[Any, Any] | None = None
    bins: Any
    hierarchy: tuple[Any, ...] | None = None
    not_in_universe: Mark | None = Field(
        default=None,
        description="the word, or the number outside the bins, where the question does not apply; it has its own code",
    )

    @cached_property
    def edges(self) -> tuple[Any, ...]:
        """The edges of the bins, one more than there are bins."""
        if isinstance(self.bins, tuple) or self.bounds is None:
            return tuple(self.bins)
        if not isinstance(self.bins, PrivateQuantiles):
            return self._equal_edges(*self.bounds, count=self.bins)
        return self.grid_edges if self.bins.bought is None else self.bins.bought

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
    def buys_bins(self) -> bool:
        """Whether a release buys the edges of the bins."""
        return isinstance(self.bins, PrivateQuantiles)

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
    def has_missing(self) -> bool:
        """Whether a decoded column may hold nulls: OTHER has no number to stand for it."""
        return self.nullable or self.unseen == "other"

    def _beyond(self) -> tuple[str, ...]:
        return (NOT_IN_UNIVERSE,) * (self.not_in_universe is not None) + super()._beyond()

    def _declared_groups(self) -> tuple[int, ...] | None:
        if self.hierarchy is None:
            return None
        return tuple(bisect_right(self.hierarchy, low) - 1 for low in self.edges[:-1])

    @property
    @abstractmethod
    def _greatest(self) -> Any:
        """The greatest number of the last bin."""

    @abstractmethod
    def _equal_edges(self, low: Any, high: Any, *, count: int) -> tuple[Any, ...]:
        """The edges of `count` bins of equal width."""

    def _usual_cells(self, low: Any, high: Any) -> int:
        return USUAL_CELLS

    @model_validator(mode="after")
    def _check(self) -> NumberBase:
        if isinstance(self.bins, tuple) and self.bounds is not None:
            raise ValueError(
                "bounds: bins already lists the edges; give bounds with a number of bins, or edges alone"
            )
        if not isinstance(self.bins, tuple) and self.bounds is None:
            raise ValueError("bins: a number of bins needs bounds: [low, high]; add them or list the edges")
        if isinstance(self.bins, PrivateQuantiles):
            self._check_quantiles(self.bins)
        if len(self.edges) < 2:
            raise ValueError("bins: at least two edges are needed")
        if any(low >= high for low, high in pairwise(self.edges)):
            key = (
                "bins: edges must increase"
                if self.bounds is None
                else "bounds: there is no room for so many bins"
            )
            raise ValueError(f"{key}; each bin needs a width above zero")
        if self.hierarchy is not None:
            self._check_coarser(self.hierarchy)
        mark = self.not_in_universe
        if not isinstance(mark, str | None) and self.edges[0] <= mark <= self._greatest:
            raise ValueError(f"not_in_universe: {mark!r} lies in the bins; use a number beyond them, or text")
        return self

    def _check_quantiles(self, bins: PrivateQuantiles) -> None:
        grid = self.grid_edges
        if bins.private_quantiles >= len(grid):
            raise ValueError(
                f"bins: the grid has fewer than {bins.private_quantiles} cells; refine it or ask for fewer quantiles"
            )
        if self.hierarchy is not None:
            raise ValueError("hierarchy: the edges of bought bins are not known beforehand; leave it out")
        if self.unseen != "clip":
            raise ValueError(
                "unseen: numbers beyond bought edges belong to the end bins; declare unseen: clip"
            )
        if bins.bought is not None:
            chosen = set(bins.bought)
            if len(chosen) < 2 or bins.bought != tuple(edge for edge in grid if edge in chosen):
                raise ValueError(
                    "bins: bought edges are two or more of the grid's, in its order; restore them"
                )

    def _check_coarser(self, coarse: tuple[Any, ...]) -> None:
        if any(low >= high for low, high in pairwise(coarse)):
            raise ValueError("hierarchy: edges must increase")
        if not set(coarse) <= set(self.edges):
            raise ValueError("hierarchy: every coarser edge must be an edge of the bins")
        if len(coarse) < 2 or (coarse[0], coarse[-1]) != (self.edges[0], self.edges[-1]):
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

    @property
    def _greatest(self) -> int:
        return int(self.edges[-1]) - 1

    def _equal_edges(self, low: int, high: int, *, count: int) -> tuple[int, ...]:
        return tuple(low + i * (high + 1 - low) // count for i in range(count + 1))

    def _usual_cells(self, low: int, high: int) -> int:
        return max(1, min(USUAL_CELLS, high + 1 - low))

    def _declared_captions(self) -> tuple[str, ...]:
        return tuple(str(a) if b - a == 1 else f"{a}–{b - 1}" for a, b in pairwise(self.edges))

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

    @property
    def _greatest(self) -> float:
        return float(self.edges[-1])

    def _equal_edges(self, low: float, high: float, *, count: int) -> tuple[float, ...]:
        return (*(low + (high - low) * (i / count) for i in range(count)), high)

    def _declared_captions(self) -> tuple[str, ...]:
        *inner, last = pairwise(self.edges)
        return (*(f"[{a:g}, {b:g})" for a, b in inner), f"[{last[0]:g}, {last[1]:g}]")
