"""The internal report: true errors for the agency's own reviewers, on one self-contained page.

`compare_and_report` compares two tables of one schema, from any source: `synth evaluate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from synth_core.evaluation import CodedTable, Evaluation, compare_tables, declared_measures, rule_violations
from synth_core.evaluation.true_errors import broken_comparisons, encode_table
from synth_core.evaluation.values import ValueComparison
from synth_core.report import exhibits
from synth_core.report import values as value_exhibits
from synth_core.report.page import (
    Guarantee,
    SpendLine,
    Tile,
    closeness_table,
    page,
    percent,
    points,
    privacy_tile,
    rules_table,
    scores_table,
    subgroups_table,
    worst_cells_table,
    worst_marginals_table,
)
from synth_core.schema import Schema
from synth_core.synthesizers.base import Progress

if TYPE_CHECKING:
    import pandas as pd

HEADLINE_ALPHAS = (2, 3, 5)
"""The marginals whose mean error is shown first."""


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
    return page(
        "internal.html.j2",
        title=title,
        facts=dict(facts or {}),
        guarantee=guarantee,
        headline=headline(evaluation, schema),
        tiles=_tiles(evaluation, guarantee),
        budget=exhibits.budget_exhibit(spends, mu=guarantee.mu) if guarantee and spends else None,
        marginals=exhibits.marginals_exhibit(evaluation.marginals) if evaluation.marginals else None,
        pairs=exhibits.pairs_exhibit(evaluation.attributes, evaluation.pairs),
        predictions=exhibits.predictions_exhibit(evaluation.targets) if evaluation.targets else None,
        worst_cells=worst_cells_table(schema, evaluation.worst_cells),
        worst_marginals=worst_marginals_table(evaluation.marginals) if evaluation.marginals else None,
        subgroups=subgroups_table(schema, evaluation.subgroups),
        scores=scores_table(evaluation.scores, evaluation.correlations),
        closeness=closeness_table(evaluation.closeness) if evaluation.closeness else None,
        suspicious=evaluation.closeness is not None and evaluation.closeness.suspicious,
        rules=rules_table(evaluation.violations, rows=evaluation.synthetic_rows),
        columns=exhibits.column_exhibits(
            schema.columns,
            {name: np.asarray(counts) / evaluation.real_rows for name, counts in real_one_way.items()},
            {name: np.asarray(counts) / evaluation.synthetic_rows for name, counts in synthetic_one_way.items()},
            reference_name="real",
            tvd=evaluation.one_way,
        ),
        **_values(evaluation.values, schema),
        one_way=evaluation.one_way,
        rows={"real": evaluation.real_rows, "synthetic": evaluation.synthetic_rows},
    )


def headline(evaluation: Evaluation, schema: Schema) -> str:
    """How close the tables are and where they are not, in a few sentences."""
    said = []
    if pairs := evaluation.marginal(2):
        said.append(
            f"A table of counts over two columns is off by {percent(pairs.tvd.mean)} of the records on average, where "
            f"a fresh sample of real rows would be off by {percent(pairs.floor)}, and columns made independent by "
            f"{percent(pairs.independent)}."
        )
        distance, worst = max(zip(pairs.values, pairs.cliques, strict=True))
        said.append(f"The worst pair is {' × '.join(worst)}, {percent(distance)}.")
    if evaluation.subgroups:
        group = evaluation.subgroups[0]
        caption = schema.column(group.attribute).captions[group.code]
        said.append(f"It serves those with {group.attribute} = {caption} worst: {percent(group.error)} on average.")
    if evaluation.targets:
        extra = float(np.mean([target.synthetic - target.real for target in evaluation.targets]))
        said.append(f"Classifiers that learn from it are wrong {_how_often(extra)} from real rows.")
    broken = sum(evaluation.violations.values())
    if evaluation.violations:
        said.append(f"{broken:,} of its rows break a declared rule." if broken else "No row breaks a declared rule.")
    return " ".join(said)


def _how_often(extra: float) -> str:
    """How much more often somebody is wrong, as a share, in words."""
    by = f"{abs(100 * extra):.2f}"
    if not float(by):
        return "as often as"
    return f"{by} points {'more' if extra > 0 else 'less'} often than"


def _values(values: ValueComparison, schema: Schema) -> dict[str, Any]:
    """What the page shows of numbers; nothing without a column of numbers."""
    if not values.columns:
        return {"means": None}
    return {
        "means": value_exhibits.means_table(values),
        "quantiles": value_exhibits.value_exhibits(values),
        "group_means": value_exhibits.groups_table(values, schema),
        "value_correlations": value_exhibits.correlations_table(values),
    }


def _tiles(evaluation: Evaluation, guarantee: Guarantee | None) -> list[Tile]:
    tiles = [privacy_tile(guarantee)] if guarantee else []
    tiles += [
        Tile(
            name=f"Mean {errors.alpha}-way error",
            value=percent(errors.tvd.mean),
            note=f"sampling alone {percent(errors.floor)}, independent columns {percent(errors.independent)}",
        )
        for errors in evaluation.marginals
        if errors.alpha in HEADLINE_ALPHAS
    ]
    if evaluation.targets:
        extra = float(np.mean([target.synthetic - target.real for target in evaluation.targets]))
        tiles.append(
            Tile(
                name="Prediction error",
                value=f"{points(extra)} points",
                note="against training on real rows",
            )
        )
    if evaluation.violations:
        broken, rules = sum(evaluation.violations.values()), len(evaluation.violations)
        note = f"of {rules} rules, in {evaluation.synthetic_rows:,} rows"
        tiles.append(Tile(name="Rule violations", value=f"{broken:,}", note=note))
    return tiles


def compare_and_report(
    real: pd.DataFrame, synthetic: pd.DataFrame, schema: Schema, *, title: str, progress: Progress
) -> tuple[Evaluation, str]:
    """Compare a synthetic table with the real one.

    Args:
        real: the confidential table.
        synthetic: a table of the same columns, from any source.
        schema: the public declaration of both.
        title: heading of the report.
        progress: called with a line before each part.

    Returns:
        The true errors, and the internal report as HTML. Both belong to the confidential zone.
    """
    real_table, synthetic_table = (
        encode_table(real, schema, source="REAL"),
        encode_table(synthetic, schema.as_decoded, source="SYNTHETIC"),
    )
    evaluation = compare_tables(
        real_table,
        synthetic_table,
        violations=rule_violations(synthetic_table, schema) | broken_comparisons(synthetic, schema),
        progress=lambda what, done, parts: progress(f"{what} ({done} of {parts})"),
        **declared_measures(schema),
    )
    report = internal_report(
        evaluation,
        schema=schema,
        title=title,
        guarantee=None,
        spends=[],
        real_one_way=one_way_counts(real_table),
        synthetic_one_way=one_way_counts(synthetic_table),
        facts={"Sampling": evaluation.sampling} if evaluation.sampling else None,
    )
    return evaluation, report


def one_way_counts(table: CodedTable) -> dict[str, NDArray[np.int64]]:
    """How often each code of each column occurs."""
    columns = table.tables([(name,) for name in table.domain])
    return dict(zip(table.domain, columns, strict=True))
