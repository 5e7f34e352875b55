"""Where inside their bins numbers lie, guessed from published counts: all of it is post-processing and costs nothing.

A bin has a scale: its width or, in a tail over several orders of magnitude, the logarithm of its width. Along this
scale a density is kept as the masses of `PARTS` equal parts, and in each part a slope. The masses of bins themselves
are the model's and are not touched: codes are drawn first, and a density says only where in its bin a number falls.

- Between bins the density is continuous: a line from each edge to the middle of the bin and on to the next edge. Its
  height at an edge is that of an exponential curve through the middles of both bins; its height in the middle is what
  keeps the mass: with heights a and b at the edges of a bin of width w and mean height h, (a + 2m + b) w / 4 = h w.
  Where a + b > 4 h the edges are lowered, so that m is not below 0.
- A wide bin at either end is a tail, exponential along its scale; along a logarithm that is a truncated Pareto
  distribution. Its rate is the one at which the last two bins have their published counts.
- Where the mean place of the records of a bin was bought, the density is multiplied by exp(t s) along the scale s: of
  all densities with that mean it is the nearest to the guess, by relative entropy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Flags, Floats

PARTS = 32
"""Equal parts of a bin's scale, in each of which a density has a mass and a slope."""

USUAL_STRAY = 0.1
"""Standard deviation, in widths of a bin, with which a guessed mean place is trusted beside a bought one."""


@dataclass(frozen=True, slots=True, eq=False)
class Scales:
    """The scales of a column's bins, all public.

    Attributes:
        low: Lower end of each bin, a positive number where its scale is a logarithm.
        width: Its width, along its scale.
        logarithmic: Whether its scale is a logarithm.
        single: Whether it holds one value only.
    """

    low: Floats
    width: Floats
    logarithmic: Flags
    single: Flags

    def numbers(self, places: Floats, bins: NDArray[np.int64]) -> Floats:
        """Returns the numbers at these places of their bins."""
        low, along = self.low[bins], places * self.width[bins]
        found: Floats = np.where(self.logarithmic[bins], low * np.exp(along * self.logarithmic[bins]), low + along)
        return found


STEP = 0.01
"""Change of a mean place by which it is tried how far it moves the mean number of a bin."""

STEEPEST_TILT = 60.0
"""Upper limit of the tilt that gives a density a bought mean."""


@dataclass(frozen=True, slots=True, eq=False)
class Densities:
    """A density for each bin along its scale, and the tables from which a number is drawn with one uniform draw.

    Attributes:
        scales: The bins' scales.
        masses: Shares of the bin in its parts, one or `PARTS` of them; each row sums to 1.
        slopes: In each part the density is 1 + slope * (2 x - 1) times its mean, for x from 0 to 1.
    """

    scales: Scales
    masses: Floats
    slopes: Floats

    @property
    def means(self) -> Floats:
        """Mean place in each bin."""
        found: Floats = (self.masses * self._centres).sum(axis=1)
        return found

    @property
    def _centres(self) -> Floats:
        """Mean place in each part of each bin."""
        parts = self.masses.shape[1]
        found: Floats = (np.arange(parts) + 0.5 + self.slopes / 6) / parts
        return found

    def mean_numbers(self) -> Floats:
        """Returns the mean number of each bin."""
        at = self._centres
        bins = np.repeat(np.arange(len(at)), at.shape[1])
        found: Floats = (self.masses * self.scales.numbers(at.ravel(), bins).reshape(at.shape)).sum(axis=1)
        return found

    def numbers_per_place(self) -> Floats:
        """Returns how far the mean number of each bin moves with its mean place."""
        low, high = (self.with_exact_means(self.means + step) for step in (-STEP, STEP))
        apart = np.maximum(high.means - low.means, np.finfo(float).tiny)
        found: Floats = (high.mean_numbers() - low.mean_numbers()) / apart
        return found

    def with_means(self, means: Floats, deviations: Floats) -> Densities:
        """Returns the densities tilted to bought mean places, as far as their noise deserves.

        Args:
            means: A noisy mean place for each bin.
            deviations: Standard deviation of its noise, infinite where there is none.
        """
        trust = USUAL_STRAY**2 / (USUAL_STRAY**2 + deviations**2)
        with np.errstate(invalid="ignore"):
            wanted = np.where(trust > 0, trust * means + (1 - trust) * self.means, self.means)
        return self.with_exact_means(wanted)

    def with_exact_means(self, means: Floats) -> Densities:
        """Returns the densities tilted to these mean places; by bisection, since the mean place grows with the tilt."""
        wanted = np.clip(means, 0.005, 0.995)
        low = np.full(len(wanted), -STEEPEST_TILT)
        high = -low
        for _ in range(50):
            tilt = (low + high) / 2
            below = self._with_tilt(tilt).means < wanted
            low, high = np.where(below, tilt, low), np.where(below, high, tilt)
        return self._with_tilt((low + high) / 2)

    def _with_tilt(self, tilt: Floats) -> Densities:
        parts = self.masses.shape[1]
        exponents = tilt[:, None] * ((np.arange(parts) + 0.5) / parts - (tilt[:, None] > 0))
        masses = self.masses * np.exp(exponents)
        ends = (1 - self.slopes), (1 + self.slopes) * np.exp(tilt[:, None] / parts)
        masses *= (ends[0] + ends[1]) / 2
        return Densities(
            self.scales, masses / masses.sum(axis=1, keepdims=True), (ends[1] - ends[0]) / (ends[0] + ends[1])
        )

    def drawing_tables(self) -> tuple[Floats, Floats, Flags, Floats, NDArray[np.int64], Floats]:
        """Returns what `drawing.draw_offsets` needs."""
        keep, other = self._alias_tables()
        return self.scales.low, self.scales.width, self.scales.logarithmic, keep, other, self.slopes

    def _alias_tables(self) -> tuple[Floats, NDArray[np.int64]]:
        """Walker's tables: part j is kept with a chance, and otherwise gives way to another part."""
        parts = self.masses.shape[1]
        keep = self.masses * parts
        other = np.tile(np.arange(parts), (len(keep), 1))
        for row, give in zip(keep, other, strict=True) if parts > 1 else ():
            small = [j for j in range(parts) if row[j] < 1]
            large = [j for j in range(parts) if row[j] >= 1]
            while small and large:
                poor, rich = small.pop(), large[-1]
                give[poor] = rich
                row[rich] -= 1 - row[poor]
                if row[rich] < 1:
                    small.append(large.pop())
            row[[*small, *large]] = 1.0  # what is left differs from 1 by rounding alone
        return keep, other


def fit_uniform(scales: Scales, *, parts: int = 1) -> Densities:
    """Returns densities of which nothing is known: uniform along the scale of each bin."""
    shape = (len(scales.low), parts)
    return Densities(scales, np.full(shape, 1 / parts), np.zeros(shape))


MAX_SHAPED = 2_000
"""Upper limit of the bins that get a density of their own; where there are more, they are narrow and stay uniform."""


def fit_densities(
    scales: Scales, edges: Floats, masses: Floats, *, hidden: Flags, tails: tuple[bool, bool]
) -> Densities:
    """Guess the densities of a column's bins from their masses.

    Args:
        scales: The bins' scales.
        edges: The bins' edges, one more than there are bins.
        masses: Expected counts of the bins; negative ones count as 0.
        hidden: Bins that say nothing about their neighbours: declared point masses.
        tails: Whether the first and the last bin are tails.

    Returns:
        The densities; where nothing is in reach of a bin, uniform.
    """
    seen = np.flatnonzero(~hidden)
    if len(masses) > MAX_SHAPED or not len(seen):
        return fit_uniform(scales)
    found = fit_uniform(scales, parts=PARTS)
    mass, low, high = np.maximum(masses, 0.0)[seen], edges[:-1][seen], edges[1:][seen]
    width = high - low
    height = mass / width
    rates = _tail_rates(scales, low, high, mass, seen=seen, tails=tails)
    at_edges = _edge_heights(height, width, scales.single[seen])
    for end, rate in rates.items():
        at_edges[end] = _tail_edges(float(height[end]), rate, scales, int(seen[end]), first=end == 0)
    left, right = _limited(at_edges, height, fixed=[end % len(seen) for end in rates])
    for i, bin_ in enumerate(seen):
        if height[i] > 0:
            _set_lines(found, int(bin_), float(left[i]), float(height[i]), float(right[i]))
    for end, rate in rates.items():
        _set_tail(found, int(seen[end]), rate)
    return found


JUMP = 4.0
"""Ratio of the heights beside a single value from which the density has a jump there: the value is special."""


def _edge_heights(height: Floats, width: Floats, single: Flags) -> Floats:
    """The heights at the lower and upper edge of each bin, NaN where nothing beside it continues it."""
    found = np.full((len(height), 2), np.nan)
    for i in range(1, len(height)):
        a, b = height[i - 1], height[i]
        jumps = (single[i - 1] or single[i]) and max(a, b) > JUMP * min(a, b)
        if jumps:
            continue
        both = width[i - 1] + width[i]
        joint = 0.0
        if min(a, b) > 0:
            joint = math.exp((width[i] * math.log(a) + width[i - 1] * math.log(b)) / both)
        found[i - 1, 1] = found[i, 0] = joint
    return found


def _tail_edges(height: float, fall: float, scales: Scales, bin_: int, *, first: bool) -> Floats:
    """The heights at both ends of a tail: where it begins it has the one that its rate gives."""
    steep, width = abs(fall), float(scales.width[bin_])
    begin = steep / -math.expm1(-steep) if steep > 1e-9 else 1.0  # relative to the mean height along the scale
    if scales.logarithmic[bin_]:
        begin *= math.expm1(width) / width
    return np.array([0.0, height * begin]) if first else np.array([height * begin, 0.0])


def _limited(ends: Floats, height: Floats, *, fixed: list[int]) -> tuple[Floats, Floats]:
    """Both edges of each bin: continued where nothing is beside it, lowered where its mass is too small for them."""
    left, right = ends[:, 0].copy(), ends[:, 1].copy()
    for i in fixed:  # what is next to a tail ends at the tail's height
        if i > 0:
            right[i - 1] = left[i]
        if i + 1 < len(height):
            left[i + 1] = right[i]
    for side, other in ((left, right), (right, left)):
        alone = np.isnan(side)
        continued = np.where(np.isnan(other), height, np.clip(2 * height - other, 0, None))
        side[alone] = continued[alone]
    for i in range(len(height)):
        both = left[i] + right[i]
        if i in fixed or both <= 4 * height[i] or both == 0:
            continue
        share = 4 * height[i] / both
        left[i] *= share
        right[i] *= share
        if i > 0 and i - 1 not in fixed:
            right[i - 1] = min(right[i - 1], left[i])
        if i + 1 < len(height) and i + 1 not in fixed:
            left[i + 1] = min(left[i + 1], right[i])
    return left, right


def _set_lines(found: Densities, bin_: int, left: float, height: float, right: float) -> None:
    """A line from the lower edge to the middle and on to the upper edge, with the bin's mass under it."""
    middle = max(0.0, 2 * height - (left + right) / 2)
    nodes = np.interp(np.linspace(0, 1, PARTS + 1), [0, 0.5, 1], [left, middle, right])
    pairs = nodes[:-1] + nodes[1:]
    if pairs.sum() <= 0:
        return
    found.masses[bin_] = pairs / pairs.sum()
    found.slopes[bin_] = np.divide(nodes[1:] - nodes[:-1], pairs, out=np.zeros(PARTS), where=pairs > 0)


def _set_tail(found: Densities, bin_: int, fall: float) -> None:
    """An exponential that falls by exp(-fall) along the scale; negative, it rises."""
    places = np.arange(PARTS) / PARTS
    masses = np.exp(-fall * (places if fall > 0 else places - 1))
    found.masses[bin_] = masses / masses.sum()
    found.slopes[bin_] = -math.tanh(fall / (2 * PARTS))


USUAL_INDEX = 2.0
"""Index of a Pareto tail where the bins below say nothing about it; incomes have 1.5 to 3."""

FLATTEST_TAIL = 0.2
"""Lower limit of the index of a Pareto tail: noise in small counts may feign a tail that rises."""
STEEPEST_TAIL = 20.0
"""Upper limit of the index of a Pareto tail; beyond, nearly all of it lies at the edge."""


def _tail_rates(
    scales: Scales, low: Floats, high: Floats, mass: Floats, *, seen: NDArray[np.int64], tails: tuple[bool, bool]
) -> dict[int, float]:
    """By end (0 or -1) how far the tail falls along its scale, towards higher numbers."""
    found: dict[int, float] = {}
    if len(seen) < 2:
        return found
    if tails[1]:
        logarithmic = bool(scales.logarithmic[seen[-1]])
        inner, outer = float(scales.width[seen[-2]]), float(scales.width[seen[-1]])
        if logarithmic:
            inner = math.log(low[-1] / low[-2]) if low[-2] > np.finfo(float).tiny else 0.0
        fall = _fitted_rate(inner, outer, float(mass[-2]), float(mass[-1])) * outer
        if logarithmic:
            index = fall / outer if inner > 0 else USUAL_INDEX
            fall = min(max(index, FLATTEST_TAIL), STEEPEST_TAIL) * outer
        found[-1] = max(fall, 0.0)
    if tails[0] and len(seen) > 2:
        inner, outer = float(high[1] - low[1]), float(high[0] - low[0])
        found[0] = -max(_fitted_rate(inner, outer, float(mass[1]), float(mass[0])) * outer, 0.0)
    return found


def _fitted_rate(inner: float, outer: float, inner_mass: float, outer_mass: float) -> float:
    """The rate of an exponential over two bins at which the outer one has its share of the mass of both.

    The share (exp(-r a) - exp(-r (a + b))) / (1 - exp(-r (a + b))) falls with the rate r.
    """
    total = inner_mass + outer_mass
    if total <= 0 or inner <= 0:
        return 0.0
    share, both = outer_mass / total, inner + outer
    least, most = 0.0, 200.0 / both
    for _ in range(60):
        rate = (least + most) / 2
        held = math.exp(-rate * inner) * math.expm1(-rate * outer) / math.expm1(-rate * both)
        least, most = (rate, most) if held > share else (least, rate)
    return (least + most) / 2
