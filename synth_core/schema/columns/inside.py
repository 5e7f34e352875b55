"""Where inside its bins a column's numbers lie: what a schema says of it, how they are drawn, and how they are kept.

Beside the code of a number its place is kept, in the confidential zone alone: in which of `place_count` equal cells of
its bin's scale it lies. Code and place together say what the number was, up to a cell; sums and comparisons of numbers
are made of them. A place is a function of the cell and the public schema, as a code is: ingestion stays record-wise.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, StrictFloat, StrictInt

from synth_core.domain import Codes
from synth_core.schema.columns.base import ColumnBase, Declaration, read_truth
from synth_core.schema.densities import Densities, Scales, fit_densities, fit_uniform

if TYPE_CHECKING:
    import pyarrow as pa

MAX_PLACES = 2**12
"""Upper limit of the cells of a bin's scale."""

MAX_PLACE_CELLS = 2**20
"""Upper limit of the cells of all bins of a column together."""

HEAPED = 0.5
"""Share of the numbers that are round where `heaping` gives none."""

_CACHED_ROWS = 1 << 14
"""Rows for which numbers are drawn at once: their steps stay in the caches."""

ATOMS = "single numbers that many records have, such as 0 or a top code; each gets a bin of its own"
"""What the key `atoms` means."""

LEAST_NUMBER = float(np.nextafter(0.0, 1.0))
"""The smallest number above 0."""

UNKNOWN_SHARE = 0.01
"""Share of the records about whose numbers a warning speaks before there are any."""

WIDE = 2.0
"""Multiple of the width of the bin beside it from which an end bin is a tail."""

Places: TypeAlias = NDArray[np.uint16]
Tail: TypeAlias = Literal["pareto", "exponential", "uniform"]


class Heaping(Declaration):
    """Round numbers that people prefer: a share of the numbers goes to the nearest multiple in its bin."""

    every: Annotated[StrictInt | StrictFloat, Field(gt=0)] = Field(description="distance of the round numbers")
    share: Annotated[StrictInt | StrictFloat, Field(gt=0, le=1)] = Field(
        default=HEAPED, description="share of the numbers that are round"
    )


def _heaping_form(value: object) -> object:
    """A number alone is the distance of the round numbers."""
    return value if isinstance(value, dict | Heaping) or value is None else {"every": value}


def place_name(name: str) -> str:
    """Returns under which name a column's places are kept; no declared name has a line break."""
    return f"{name}\nplace"


def is_place(name: str) -> bool:
    """Whether a kept column holds places rather than codes."""
    return "\n" in name


class InsideBins(ColumnBase):
    """What a column of numbers declares about the inside of its bins."""

    atoms: tuple[Any, ...] = Field(default=(), description=ATOMS)
    tail: Tail | None = Field(
        default=None,
        description="how numbers thin out in the last bin; left out: `pareto` if it is wide and begins above 0, "
        "`exponential` if it is wide and does not, else as in the other bins",
    )
    heaping: Annotated[Heaping, BeforeValidator(_heaping_form)] | None = Field(
        default=None,
        description=f"round numbers that people prefer: 5, or {{every: 5, share: 0.6}}; the share is {HEAPED} "
        "if none is given",
    )
    moments: Annotated[bool, BeforeValidator(read_truth)] = Field(
        default=False,
        strict=True,
        description="whether the release buys the sums of the numbers inside each bin, from its `moments_share`",
    )

    @cached_property
    @abstractmethod
    def edges(self) -> tuple[Any, ...]:
        """The edges of the bins."""

    @property
    @abstractmethod
    def single_bins(self) -> NDArray[np.bool_]:
        """Which bins hold one number only."""

    not_in_universe: Any = None

    @property
    @abstractmethod
    def step(self) -> float:
        """Distance of neighbouring numbers, 0 for reals."""

    @property
    @abstractmethod
    def _mark_number(self) -> int | float:
        """What is not in universe, where it is a number."""

    @abstractmethod
    def _read(self, cells: pa.Array, source: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The cells as numbers, and the marks of their bins."""

    @cached_property
    def place_count(self) -> int:
        """Cells of a bin's scale: a power of 2, and 1 where every bin holds one number only."""
        if self.single_bins.all():
            return 1
        return min(MAX_PLACES, 1 << max(0, (MAX_PLACE_CELLS // self.declared).bit_length() - 1))

    @property
    def atom_bins(self) -> NDArray[np.bool_]:
        """Which bins are those of declared atoms."""
        return np.isin(np.asarray(self.edges[:-1], dtype=np.float64), np.asarray(self.atoms, dtype=np.float64))

    @cached_property
    def scales(self) -> Scales:
        """The scales of the bins: a logarithm in a Pareto tail, else the width."""
        edges = np.asarray(self.edges, dtype=np.float64)
        low, width = edges[:-1].copy(), np.diff(edges)
        logarithmic = np.zeros(len(low), dtype=np.bool_)
        if self.last_tail == "pareto":
            end = np.flatnonzero(~self.atom_bins)[-1]
            logarithmic[end], width[end] = True, np.log(edges[end + 1]) - np.log(edges[end])
        return Scales(low, width, logarithmic, self.single_bins)

    @cached_property
    def last_tail(self) -> Tail | None:
        """How the last bin, atoms aside, goes on; None where it is a bin like the others."""
        ends = np.flatnonzero(~self.atom_bins)
        if not len(ends) or self.single_bins[ends[-1]]:
            return None
        above_zero = self.edges[ends[-1]] > LEAST_NUMBER  # where an atom at 0 ends, the next bin of reals begins
        if self.tail is None:
            return ("pareto" if above_zero else "exponential") if self._is_wide(-1) else None
        return "exponential" if self.tail == "pareto" and not above_zero else self.tail

    def _is_wide(self, end: Literal[0, -1]) -> bool:
        """Whether the bin at that end is much wider than the one beside it, atoms aside."""
        ends = np.flatnonzero(~self.atom_bins)
        widths = np.diff(np.asarray(self.edges, dtype=np.float64))[ends]
        return len(ends) > 2 and bool(widths[end] >= WIDE * widths[1 if end == 0 else -2])

    @property
    def doubtful_bin(self) -> tuple[str, float] | None:
        """The bin in which it is least known where a hundredth of the records lies, and how far that may move the mean.

        None where its tail is declared or its sums are bought. The mean is that of the middles of the other bins.
        """
        edges = np.asarray(self.edges, dtype=np.float64)
        seen = np.flatnonzero(~self.atom_bins)
        if self.tail is not None or self.moments or len(seen) < 3:
            return None
        widths, middles = np.diff(edges)[seen], np.abs(edges[:-1] + edges[1:])[seen] / 2
        means = (middles.sum() - middles) / (len(seen) - 1)
        doubts = UNKNOWN_SHARE * widths / 2 / np.maximum(means, np.finfo(float).tiny)
        worst = int(np.argmax(doubts))
        return self.captions[seen[worst]], float(doubts[worst])

    def densities(self, masses: NDArray[np.float64] | None = None) -> Densities:
        """Returns where in their bins numbers lie.

        Args:
            masses: published or expected counts of the column's codes; without them numbers are uniform in their bins.
        """
        if masses is None:
            return fit_uniform(self.scales)
        found = fit_densities(
            self.scales,
            np.asarray(self.edges, dtype=np.float64),
            np.asarray(masses, dtype=np.float64)[: self.declared],
            hidden=self.atom_bins,
            tails=(self._is_wide(0), self.last_tail in ("pareto", "exponential")),
        )
        if self.last_tail == "uniform":
            end = np.flatnonzero(~self.atom_bins)[-1]
            found.masses[end], found.slopes[end] = 1 / found.masses.shape[1], 0.0
        return found

    def mean_numbers(self, densities: Densities) -> NDArray[np.float64]:
        """Returns the mean number of each bin; a whole number is drawn as the unit above it, and written without."""
        return densities.mean_numbers() - self.step / 2

    def encode_places(self, cells: Sequence[pa.ChunkedArray], *, source: str) -> tuple[Codes, Places]:
        """Returns the codes of cells as `encode` does, and the places of their numbers, 0 where there is no number.

        Args:
            cells: the column that `origins` names.
            source: the source's name, for the refusal.

        Raises:
            SourceError: if a cell has no code; names the column and the remedy, never the value.
        """
        codes, places = [np.empty(0, dtype=self.dtype)], [np.empty(0, dtype=np.uint16)]
        for chunk in cells[0].chunks:
            self.check_type(chunk.type, source=source)
            numbers, marks = self._read(chunk, source)
            codes.append(self._finished(marks, source))
            places.append(self.places(numbers, codes[-1]))
        return np.concatenate(codes), np.concatenate(places)

    def places(self, numbers: NDArray[np.float64], codes: Codes) -> Places:
        """Returns in which cell of its bin's scale each number lies, 0 for codes beyond the bins."""
        found = np.zeros(len(codes), dtype=np.uint16)
        inside = codes < self.declared
        if self.place_count > 1:
            # A whole number stands for the unit above it, and lies in the middle of that.
            low, width, logarithmic = self.scales.low, self.scales.width, self.scales.logarithmic
            bins, own = codes[inside], np.maximum(numbers[inside] + self.step / 2, low[codes[inside]])
            along = own - low[bins]
            with np.errstate(invalid="ignore", divide="ignore"):
                along = np.where(logarithmic[bins], np.log(own) - np.log(low[bins]), along) / width[bins]
            found[inside] = np.minimum(along.clip(0, 1) * self.place_count, self.place_count - 1).astype(np.uint16)
        return found

    @cached_property
    def place_numbers(self) -> NDArray[np.float64]:
        """The number for which each place of each bin stands, a row for each bin."""
        count = self.place_count
        bins, places = (
            np.repeat(np.arange(self.declared), count),
            np.tile((np.arange(count) + 0.5) / count, self.declared),
        )
        offsets = self.scales.numbers(places, bins) - self.scales.low[bins]
        return self._placed(bins, offsets).astype(np.float64).reshape(-1, count)

    def _cells(self, codes: Codes, rng: np.random.Generator) -> pa.Array:
        return self._drawn_cells(codes, rng, fit_uniform(self.scales))

    def _drawn_cells(self, codes: Codes, rng: np.random.Generator, densities: Densities) -> pa.Array:
        return self.written(codes, self.draw(codes, rng, densities))

    def written(self, codes: Codes, drawn: NDArray[Any]) -> pa.Array:
        """Returns the cells of rows with these codes and numbers; where what is not in universe is a word, text."""
        import pyarrow as pa
        import pyarrow.compute as pc

        outside, mark = self.outside_code, self.not_in_universe
        nameless = self.declared if outside is None else outside + 1
        numbers = pa.array(drawn, mask=codes >= nameless if self.has_missing else None)
        if not isinstance(mark, str):
            return numbers
        return pc.if_else(pa.array(codes == outside), mark, numbers.cast(pa.string()))

    def draw(self, codes: Codes, rng: np.random.Generator, densities: Densities) -> NDArray[Any]:
        """Returns a number in each row's bin, the mark of what is not in universe, 0 for codes without a number.

        Each row takes one draw from `rng`, whatever the densities are, or none if all bins hold one number only.
        """
        bins = np.append(np.arange(self.declared), np.zeros(self.size - self.declared, dtype=np.int64))
        drawn = self._placed(bins, np.zeros(len(bins)))
        drawn[self.declared :] = 0
        if self.outside_code is not None:
            drawn[self.outside_code] = self._mark_number
        drawn = drawn[codes]
        if self.step and self.single_bins.all():
            return drawn
        from synth_core.schema.drawing import draw_offsets  # compiled

        tables = densities.drawing_tables()
        for start in range(0, len(codes), _CACHED_ROWS):
            some = codes[start : start + _CACHED_ROWS]
            offsets = np.empty(len(some))
            draw_offsets(some, rng.random(len(some)), *tables, offsets)
            inside = some < self.declared
            if inside.all():
                drawn[start : start + len(some)] = self._placed(some, offsets)
            else:
                drawn[start : start + len(some)][inside] = self._placed(some[inside], offsets[inside])
        return drawn if self.heaping is None else self._heaped(drawn, codes, rng)

    def _heaped(self, drawn: NDArray[Any], codes: Codes, rng: np.random.Generator) -> NDArray[Any]:
        """A share of the numbers at the nearest multiple that lies in their bin.

        Which ones is drawn from a generator of its own, so that the rows drawn next are the same with and without it.
        """
        assert self.heaping is not None  # noqa: S101 - checked by the caller
        chosen = rng.spawn(1)[0].random(len(codes)) < self.heaping.share
        nearest = self._nearest_round(drawn, np.minimum(codes, self.declared - 1))
        return np.where(chosen & (codes < self.declared), nearest.astype(drawn.dtype), drawn)

    def _nearest_round(self, numbers: NDArray[Any], bins: NDArray[Any]) -> NDArray[Any]:
        """The nearest multiple in the bin of each number, or the number itself where the bin has none."""
        assert self.heaping is not None  # noqa: S101 - checked by the caller
        every, edges = self.heaping.every, np.asarray(self.edges, dtype=np.float64)
        first, last = np.ceil(edges[:-1] / every), np.ceil(edges[1:] / every) - 1
        nearest = np.clip(np.rint(numbers / every), first[bins], last[bins]) * every
        return np.where((first <= last)[bins], nearest, numbers)

    def heaping_shifts(self, densities: Densities) -> NDArray[np.float64]:
        """Returns how far heaping moves the mean number of each bin."""
        if self.heaping is None:
            return np.zeros(self.declared)
        parts = densities.masses.shape[1]
        places = np.tile((np.arange(parts) + 0.5) / parts, self.declared)
        bins = np.repeat(np.arange(self.declared), parts)
        numbers = self._placed(bins, densities.scales.numbers(places, bins) - self.scales.low[bins])
        moved = (self._nearest_round(numbers, bins) - numbers).reshape(-1, parts)
        found: NDArray[np.float64] = self.heaping.share * (densities.masses * moved).sum(axis=1)
        return found

    def _placed(self, bins: NDArray[Any], offsets: NDArray[np.float64]) -> NDArray[Any]:
        """The numbers so far above the lower ends of their bins.

        A sum may round up to the upper edge of its bin, the next one's beginning, and is held below it.
        """
        edges = np.array(self.edges, dtype=np.int64 if self.step else np.float64)
        last = edges[1:] - 1 if self.step else np.nextafter(edges[1:], -np.inf)
        found: NDArray[Any] = np.minimum(edges[:-1][bins] + offsets.astype(edges.dtype), last[bins])
        return found

    @property
    def outside_code(self) -> int | None:
        """The code of what is not in the column's universe, where that is declared."""
        return None
