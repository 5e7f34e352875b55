"""The parts of a report's page: tiles, tables, the guarantee, and the template that makes one HTML file of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from synth_core.domain import pick_varied
from synth_core.errors import needing
from synth_core.privacy.wording import loss_text, scientific

if TYPE_CHECKING:  # the budget's pages render with this module and read no rows
    from jinja2 import Environment

    from synth_core.evaluation.classification import Closeness
    from synth_core.evaluation.distances import Cell
    from synth_core.evaluation.marginals import MarginalErrors, Subgroup
    from synth_core.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One number to read first, with what it is and what to hold it against."""

    name: str
    value: str
    note: str


def page(template: str, **content: Any) -> str:
    """Fill a template and list its sections; equal content gives equal bytes."""
    return _with_contents(_environment().get_template(template).render(**content))


CONTENTS = "<!-- contents -->"
"""Where a page's list of contents goes."""
_HEADING = re.compile(r"<h2>([^<]+)</h2>")


def _with_contents(html: str) -> str:
    """The page with a name for each section and a list of them; what others wrote is escaped and has no headings."""
    titles = list(dict.fromkeys(_HEADING.findall(html)))
    names = {title: f"part-{number}" for number, title in enumerate(titles, start=1)}
    links = "".join(f'<li><a href="#{name}">{title}</a></li>' for title, name in names.items())
    named = _HEADING.sub(lambda found: f'<h2 id="{names[found[1]]}">{found[1]}</h2>', html)
    return named.replace(CONTENTS, f'<nav class="contents" aria-label="Contents"><ul>{links}</ul></nav>', 1)


def privacy_tile(guarantee: Guarantee) -> Tile:
    """The privacy loss, to be read first of all."""
    note = f"at δ = {scientific(guarantee.delta)}, per {guarantee.unit}"
    return Tile(name="Privacy loss", value=f"ε = {loss_text(guarantee.epsilon)}", note=note)


def template_environment(package: str, filters: Mapping[str, Callable[..., Any]]) -> Environment:
    """Templates of a package, escaped by default and strict about what they may name.

    Args:
        package: the package whose folder `templates` holds them.
        filters: filters the templates may use, by name.

    Returns:
        The environment that renders them.
    """
    with needing("report"):
        from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(package, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    return environment


MAX_LISTED = 10
"""Upper limit of the rows of a table that lists the worst."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Numbers as text, the first `words` cells of each row being words, its name above all."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1


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
    sorted_by_distance = sorted(zip(largest.values, largest.cliques, strict=True), reverse=True)
    ranked = pick_varied(sorted_by_distance, lambda found: found[1], count=MAX_LISTED)
    return Table(
        head=("columns", "distance"),
        rows=tuple((" × ".join(clique), percent(value)) for value, clique in ranked),
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
                percent(group.error),
                percent(group.floor),
            )
            for group in pick_varied(groups, lambda group: (group.attribute,), count=MAX_LISTED)
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
    return f"{share:.{2 if abs(share) < 0.0995 else 1}%}".replace("-", "−")


def points(difference: float) -> str:
    """A difference of two shares in percentage points, with its sign; one that is written as 0 has none."""
    return signed_text(100 * difference, 2)


def signed_text(value: float, digits: int) -> str:
    """A number with its sign and this many decimals; one that is written as 0 has no sign."""
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text if text.strip("+−0.") else text[1:]


def _score(value: float) -> str:
    return f"{value:,.0f}" if value > 10 else f"{value:.4f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """The promise of one release: its unit, its neighbours, and the privacy loss in three currencies.

    epsilon, mu: The larger of what the release asked for and what it was charged.
    spent: The epsilon that its charges are worth.
    pure: The epsilon that bounds the answers without a delta; None where a question had noise that needs one.
    """

    unit: str
    neighbours: str
    epsilon: float
    delta: float
    mu: float
    spent: float
    pure: float | None = None

    @property
    def largest_factor(self) -> float:
        """By how much at most one record changes the chance of any conclusion an observer may draw: e^epsilon."""
        return math.exp(self.epsilon)

    @property
    def best_guess(self) -> float:
        """Largest chance to guess rightly whether one record was there, starting from even odds: Phi(mu/2).

        Two neighbours under mu-GDP are no easier to tell apart than N(0,1) and N(mu,1), whose best test errs
        with probability Phi(-mu/2) on either side (Dong, Roth and Su, Gaussian differential privacy).
        """
        return NormalDist().cdf(self.mu / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendLine:
    """One line of the ledger as a report shows it; `mu2` is what it charges, 0 if it was free or refunded."""

    step: str
    purpose: str
    mechanism: str
    queries: int
    scale: float | None
    mu2: float
    state: str


@cache
def _environment() -> Environment:
    with needing("report"):
        from markupsafe import Markup

    return template_environment(
        "synth_core.report",
        {"scientific": scientific, "loss": loss_text, "percent": percent, "drawing": Markup},
    )
