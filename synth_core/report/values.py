"""What the internal report shows of the numbers themselves: a quantile curve and a table for each column of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from synth_core.domain import pick_varied
from synth_core.evaluation.values import SHARES, ValueComparison, ValueErrors
from synth_core.report.charts import MUTED, NARROW, REFERENCE, RULE, SYNTHETIC, Canvas, round_numbers
from synth_core.report.exhibits import Exhibit
from synth_core.report.page import MAX_LISTED, Table, percent, signed_text
from synth_core.schema import Schema

HEIGHT = 150.0
"""Points of a quantile curve's height."""

MOST_TICKS = 6
"""Upper limit of the marks of a scale of logarithms that has 2 and 5 between powers of ten."""

SKEWED = 20.0
"""Ratio of the 98th to the 50th percentile from which a curve is drawn on a scale of logarithms."""


def value_exhibits(values: ValueComparison) -> tuple[Exhibit, ...]:
    """One exhibit for each column of numbers: its percentiles in both tables.

    Args:
        values: the compared numbers.

    Returns:
        Exhibits in the order of the columns.
    """
    return tuple(_exhibit(one) for one in values.columns)


def means_table(values: ValueComparison) -> Table:
    """The means of all columns, how far they are off, and the distances of the distributions."""
    return Table(
        head=("column", "real mean", "synthetic mean", "off by", "Kolmogorov–Smirnov", "Wasserstein"),
        rows=tuple(
            (
                one.column,
                number(one.real.mean),
                number(one.synthetic.mean),
                _off(one.real.mean, one.synthetic.mean),
                f"{one.kolmogorov:.4f}",
                f"{one.wasserstein:.4f}",
            )
            for one in values.columns
        ),
    )


def groups_table(values: ValueComparison, schema: Schema) -> Table:
    """Means in the largest groups of rows, those farthest off first, and not all of one column."""
    ranked = sorted(
        ((one.column, group) for one in values.columns for group in one.groups),
        key=lambda found: -abs(_share_off(found[1].real, found[1].synthetic)),
    )
    first = pick_varied(ranked, lambda found: found[:1], count=MAX_LISTED)
    rows = [
        (
            name,
            f"{group.attribute} = {schema.column(group.attribute).captions[group.code]}",
            number(group.real),
            number(group.synthetic),
            _off(group.real, group.synthetic),
        )
        for name, group in [*first, *(found for found in ranked if found not in first)]
    ]
    return Table(head=("mean of", "where", "real", "synthetic", "off by"), rows=tuple(rows), words=2)


def correlations_table(values: ValueComparison) -> Table:
    """Correlations of the numbers of each pair of columns."""
    return Table(
        head=("columns", "real", "synthetic"),
        rows=tuple(
            (f"{a}, {b}", signed_text(real, 3), signed_text(made, 3)) for a, b, real, made in values.correlations
        ),
    )


def quantile_curves(reference: Sequence[float], synthetic: Sequence[float]) -> str:
    """Percentiles of two columns of numbers, from the first to the last, as two lines.

    Args:
        reference: percentiles of the real numbers.
        synthetic: the same percentiles of the synthetic numbers.

    Returns:
        The picture.
    """
    low, high = min(*reference, *synthetic), max(*reference, *synthetic)
    middle = sorted(reference)[len(reference) // 2]
    skewed = low > 0 and middle > 0 and high > SKEWED * middle
    along = math.log10 if skewed else float
    ticks = _decades(low, high) if skewed else round_numbers(low, high, 4)
    begin, end = along(low), along(high)
    span = end - begin or 1.0
    canvas, left, right, top, bottom = Canvas(NARROW, HEIGHT), 44.0, NARROW - 8, 6.0, HEIGHT - 26
    xs = [left + (right - left) * i / (len(reference) - 1) for i in range(len(reference))]

    def y(value: float) -> float:
        return bottom - (bottom - top) * (along(value) - begin) / span

    for value in ticks:
        canvas.line([(left, y(value)), (right, y(value))], RULE, width=0.6)
        canvas.text(left - 4, y(value), number(value), MUTED, anchor="end", size=8)
    for percentile in (1, 25, 50, 75, 99):
        x = left + (right - left) * (percentile - 1) / 98
        canvas.text(x, bottom + 9, str(percentile), MUTED, anchor="middle", size=8)
    canvas.text((left + right) / 2, HEIGHT - 5, "percentile", MUTED, anchor="middle", size=8)
    for curve, colour, width in ((reference, REFERENCE, 2.4), (synthetic, SYNTHETIC, 1.2)):
        canvas.line(list(zip(xs, map(y, curve), strict=True)), colour, width=width)
    return canvas.svg()


def _decades(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten from `low` to `high`, or powers alone where those would be many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for several in ((1, 2, 5), (1,)):
        found = [nice * 10.0**power for power in powers for nice in several if low <= nice * 10.0**power <= high]
        if len(found) <= MOST_TICKS:
            break
    return found


def number(value: float) -> str:
    """A number as text, with as many digits as a reader needs."""
    size = abs(value)
    if size >= 1e6:
        return f"{value:,.4g}" if size >= 1e9 else f"{value:,.0f}"
    return f"{value:,.0f}" if size >= 1000 else f"{value:.4g}"


def _exhibit(one: ValueErrors) -> Exhibit:
    real, made = zip(*one.curve, strict=True)
    measures = [
        ("rows with a number", f"{one.real.rows:,}", f"{one.synthetic.rows:,}", ""),
        ("mean", number(one.real.mean), number(one.synthetic.mean), _off(one.real.mean, one.synthetic.mean)),
        (
            "standard deviation",
            number(one.real.deviation),
            number(one.synthetic.deviation),
            _off(one.real.deviation, one.synthetic.deviation),
        ),
        ("total", number(one.real.total), number(one.synthetic.total), _off(one.real.total, one.synthetic.total)),
        *(
            (f"p{round(100 * share)}", number(a), number(b), _off(a, b))
            for share, a, b in zip(SHARES, one.real.quantiles, one.synthetic.quantiles, strict=True)
        ),
    ]
    if one.real.gini is not None and one.synthetic.gini is not None:
        measures.append(("Gini coefficient", f"{one.real.gini:.4f}", f"{one.synthetic.gini:.4f}", ""))
    return Exhibit(
        title=one.column,
        svg=quantile_curves(real, made),
        alt=f"Percentiles of {one.column} in the real and the synthetic table; the largest difference of their "
        f"distribution functions is {one.kolmogorov:.4f}.",
        note="",
        table=Table(head=("", "real", "synthetic", "off by"), rows=tuple(measures)),
        key=(("reference", "real"), ("synthetic", "synthetic")),
    )


def _off(real: float, synthetic: float) -> str:
    share = _share_off(real, synthetic)
    return "–" if math.isinf(share) else ("+" if share >= 0 else "") + percent(share)


def _share_off(real: float, synthetic: float) -> float:
    """The difference as a share of the real number; infinite where that is 0 and the other is not."""
    if not real:
        return math.inf if synthetic else 0.0
    return (synthetic - real) / abs(real)
