"""Build a report: one self-contained HTML page that opens without network and prints well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import ArrayLike

from synth_core.evaluation.result import Evaluation
from synth_core.report import exhibits
from synth_core.report.guarantee import Guarantee, SpendLine
from synth_core.schema import Schema

__all__ = ["Guarantee", "SpendLine", "internal_report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One number to read first, with what it is and what to hold it against."""

    name: str
    value: str
    note: str


def internal_report(
    evaluation: Evaluation,
    *,
    schema: Schema,
    title: str,
    guarantee: Guarantee | None,
    spends: Sequence[SpendLine],
    real_one_way: Mapping[str, ArrayLike],
    synthetic_one_way: Mapping[str, ArrayLike],
    facts: Mapping[str, str] | None = None,
) -> str:
    """The report for the agency's own reviewers, with true errors; it belongs in the confidential zone.

    `real_one_way` and `synthetic_one_way` hold the counts of each column's codes; `facts` are shown under the
    title as they are (release, method, …). A table whose origin is not known has no guarantee to state, and the
    page leaves that section out. Equal arguments give equal bytes.
    """
    return _ENVIRONMENT.get_template("internal.html.j2").render(
        title=title,
        facts=dict(facts or {}),
        guarantee=guarantee,
        tiles=_tiles(evaluation, guarantee),
        budget=exhibits.budget_exhibit(spends, mu=guarantee.mu) if guarantee and spends else None,
        marginals=exhibits.marginals_exhibit(evaluation.marginals) if evaluation.marginals else None,
        pairs=exhibits.pairs_exhibit(evaluation.attributes, evaluation.pairs),
        predictions=exhibits.predictions_exhibit(evaluation.targets) if evaluation.targets else None,
        worst_cells=exhibits.worst_cells_table(schema, evaluation.worst_cells),
        worst_marginals=exhibits.worst_marginals_table(evaluation.marginals)
        if evaluation.marginals
        else None,
        rules=exhibits.rules_table(evaluation.violations, rows=evaluation.synthetic_rows),
        columns=exhibits.column_exhibits(
            schema, real_one_way, synthetic_one_way, reference_name="real", tvd=evaluation.one_way
        ),
        one_way=evaluation.one_way,
        rows={"real": evaluation.real_rows, "synthetic": evaluation.synthetic_rows},
    )


def _tiles(evaluation: Evaluation, guarantee: Guarantee | None) -> list[Tile]:
    tiles = []
    if guarantee:
        loss, slack = f"ε = {guarantee.epsilon:g}", scientific(guarantee.delta)
        tiles.append(Tile(name="Privacy loss", value=loss, note=f"at δ = {slack}, per {guarantee.unit}"))
    tiles += [
        Tile(
            name=f"Mean {errors.alpha}-way error",
            value=exhibits.percent(errors.tvd.mean),
            note=f"sampling alone {exhibits.percent(errors.floor)}, "
            f"independent columns {exhibits.percent(errors.independent)}",
        )
        for errors in evaluation.marginals
    ]
    if evaluation.targets:
        extra = float(np.mean([target.synthetic - target.real for target in evaluation.targets]))
        tiles.append(
            Tile(
                name="Prediction error",
                value=f"{exhibits.points(extra)} points",
                note="against training on real rows",
            )
        )
    if evaluation.violations:
        broken, rules = sum(evaluation.violations.values()), len(evaluation.violations)
        note = f"of {rules} rules, in {evaluation.synthetic_rows:,} rows"
        tiles.append(Tile(name="Rule violations", value=f"{broken:,}", note=note))
    return tiles


def scientific(value: float) -> str:
    """A small number as people write it: 1 × 10⁻⁵."""
    digits, exponent = f"{value:.2e}".split("e")
    power = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{float(digits):g} × 10{power}"


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("synth_core.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"scientific": scientific, "percent": exhibits.percent, "drawing": Markup}
    return environment


_ENVIRONMENT = _environment()
