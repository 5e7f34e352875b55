"""Tables of a report: numbers as texts that a person can read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from synth_core.evaluation.distances import Cell
from synth_core.evaluation.result import Closeness, MarginalErrors, Subgroup
from synth_core.schema import Schema

MOST_LISTED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Numbers as text, the first cell of each row being its name."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def worst_cells_table(schema: Schema, cells: Sequence[Cell]) -> Table:
    """The cells whose shares differ most, in the schema's own words."""
    rows = []
    for cell in cells:
        values = zip(cell.clique, cell.codes, strict=True)
        words = " and ".join(f"{name} = {schema.column(name).captions[code]}" for name, code in values)
        rows.append((words, percent(cell.left), percent(cell.right), points(cell.right - cell.left)))
    return Table(head=("cell", "real", "synthetic", "points"), rows=tuple(rows))


def worst_marginals_table(marginals: Sequence[MarginalErrors]) -> Table:
    """The marginals of three columns (of the most there are, if fewer), the most distant first."""
    largest = max((m for m in marginals if m.alpha <= 3), key=lambda errors: errors.alpha)
    ranked = sorted(zip(largest.values, largest.cliques, strict=True), reverse=True)[:MOST_LISTED]
    return Table(
        head=("columns", "distance"),
        rows=tuple((" × ".join(clique), f"{value:.4f}") for value, clique in ranked),
    )


def rules_table(violations: Mapping[str, int], *, rows: int) -> Table:
    """How many synthetic rows break each declared rule."""
    return Table(
        head=("rule", "rows that break it", "share"),
        rows=tuple((rule, f"{count:,}", percent(count / rows)) for rule, count in violations.items()),
    )


def subgroups_table(schema: Schema, groups: Sequence[Subgroup]) -> Table:
    """The groups whose other columns differ most between the tables."""
    return Table(
        head=("group", "real", "synthetic", "mean distance", "sampling alone"),
        rows=tuple(
            (
                f"{group.attribute} = {schema.column(group.attribute).captions[group.code]}",
                percent(group.real),
                percent(group.synthetic),
                f"{group.error:.4f}",
                f"{group.floor:.4f}",
            )
            for group in groups[:MOST_LISTED]
        ),
    )


def scores_table(scores: Mapping[str, float], correlations: Sequence[Sequence[float]]) -> Table:
    """The summary scores, each with what a perfect table would have."""
    gaps = [abs(row[j]) for i, row in enumerate(correlations) for j in range(i)]
    rows = [(name, _score(value), _PERFECT[name]) for name, value in scores.items()]
    if gaps:
        rows.append(("mean difference of correlations", f"{sum(gaps) / len(gaps):.4f}", "0"))
        rows.append(("largest difference of correlations", f"{max(gaps):.4f}", "0"))
    return Table(head=("score", "value", "perfect"), rows=tuple(rows))


_PERFECT = {
    "workload error": "0",
    "k-marginal score": "1,000",
    "NIST clustering": "1,000,000",
    "NIST classification": "1,000,000",
    "NIST regression": "1,000,000",
    "propensity MSE": "0",
}


def closeness_table(near: Closeness) -> Table:
    """How near synthetic rows are to real ones, beside how near fresh real rows are."""
    return Table(
        head=("", "synthetic rows", "fresh real rows"),
        rows=(
            ("equal to a real row in every column", percent(near.same), percent(near.same_by_nature)),
            (
                "columns in which the nearest real row differs",
                f"{near.distance:.2f}",
                f"{near.distance_by_nature:.2f}",
            ),
        ),
    )


def percent(share: float) -> str:
    """A share as text, with as many digits as a reader needs."""
    return f"{share:.2%}" if share < 0.0995 else f"{share:.1%}"


def points(difference: float) -> str:
    """A difference of two shares in percentage points, with its sign."""
    return f"{difference * 100:+.2f}".replace("-", "−")


def _score(value: float) -> str:
    return f"{value:,.0f}" if value > 10 else f"{value:.4f}"
