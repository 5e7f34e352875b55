"""Every true error of a synthetic table against the real one: the one call behind the evaluate step and analysts' work.

All of it is computed from confidential rows without noise: an `Evaluation` stays in the confidential zone.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from synth_core.arrays import one_thread
from synth_core.domain import Codes, Domain
from synth_core.errors import SourceError
from synth_core.evaluation.classification import (
    Closeness,
    TargetError,
    closeness,
    propensity_mse,
    split_rows,
    target_errors,
    usual_targets,
)
from synth_core.evaluation.distances import Cell, alpha_way
from synth_core.evaluation.marginals import (
    MarginalErrors,
    Subgroup,
    correlation_difference,
    marginal_errors,
    pair_tvd,
    subgroup_errors,
    workload_error,
    worst_cells,
)
from synth_core.evaluation.nist import (
    Levels,
    PayGap,
    classification_score,
    clustering_score,
    k_marginal_score,
    regression_score,
)
from synth_core.evaluation.tables import CodedTable
from synth_core.evaluation.values import ValueComparison, compare_values
from synth_core.markup import table_html
from synth_core.progress import live_progress
from synth_core.schema import Schema
from synth_core.schema.codec import check_frame, check_schema, encode_numbers, number_columns
from synth_core.schema.columns.inside import InsideBins, is_place

ROW_MEASURES = "SVM errors, propensity and closeness"
"""What is computed from single rows rather than from counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Every true error of a synthetic table; in `worst_cells`, left is real and right is synthetic.

    `scores` holds the summary scores by name (workload error, NIST scores, propensity); `correlations` the
    differences of Pearson correlations of codes, laid out like `pairs`;
    `values` is about the numbers themselves, not their bins. `judged_rows` is how many rows of the real and
    the synthetic table the measures over single rows (`ROW_MEASURES`) saw: all of them, or a random sample; a quick
    comparison has none of these measures, and 0 rows judged.
    """

    real_rows: int
    synthetic_rows: int
    judged_rows: tuple[int, int]
    one_way: dict[str, float]
    marginals: tuple[MarginalErrors, ...]
    pairs: tuple[tuple[float, ...], ...]
    worst_cells: tuple[Cell, ...]
    targets: tuple[TargetError, ...]
    violations: dict[str, int]
    subgroups: tuple[Subgroup, ...]
    correlations: tuple[tuple[float, ...], ...]
    scores: dict[str, float]
    closeness: Closeness | None = None
    values: ValueComparison = field(default_factory=ValueComparison)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The compared columns, in the order of the rows and columns of `pairs`."""
        return tuple(self.one_way)

    def marginal(self, alpha: int) -> MarginalErrors | None:
        """The errors over marginals of `alpha` attributes.

        Args:
            alpha: number of attributes.

        Returns:
            The errors; None where the tables have fewer attributes.
        """
        return next((errors for errors in self.marginals if errors.alpha == alpha), None)

    @property
    def sampling(self) -> str:
        """In words, what was not computed from all rows; empty where everything was."""
        notes = []
        if self.judged_rows not in ((0, 0), (self.real_rows, self.synthetic_rows)):
            real, synthetic = self.judged_rows
            notes.append(
                f"{ROW_MEASURES} computed on a random sample of {real:,} real and {synthetic:,} synthetic rows"
            )
        for errors in self.marginals:
            if errors.estimated:
                share = f"{errors.estimated} of {len(errors.values)} {errors.alpha}-way marginals"
                notes.append(f"{share} on a random part of their cells, counted over all rows")
        return "; ".join(notes)

    def _repr_html_(self) -> str:
        head = ("columns at a time", "mean error", "sampling alone", "columns made independent", "worst")
        rows = [
            (m.alpha, f"{m.tvd.mean:.2%}", f"{m.floor:.2%}", f"{m.independent:.2%}", f"{m.tvd.worst:.2%}")
            for m in self.marginals
        ]
        errors = table_html(rows, title="True errors: confidential, not to be published", head=head, note=self.sampling)
        scores = [(name, f"{value:,.4g}") for name, value in self.scores.items()]
        broken = [(f"rows that break {rule}", f"{count:,}") for rule, count in self.violations.items()]
        return errors + table_html([*scores, *broken], title="Scores")

    def to_json(self) -> str:
        """The evaluation as one JSON text; equal evaluations give equal texts."""
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Evaluation:
        """Read a stored evaluation.

        Args:
            text: what `to_json` returned.

        Returns:
            The evaluation.

        Raises:
            SourceError: the text is no stored evaluation.
        """
        try:
            return _EVALUATION.validate_json(text)
        except ValidationError:
            raise SourceError("the stored evaluation cannot be read; run the evaluate step again") from None


_EVALUATION = TypeAdapter(Evaluation)

PartProgress: TypeAlias = Callable[[str, int, int], None]
"""Called with what was just finished, how many parts are done, and of how many."""

ALPHAS = (1, 2, 3, 4, 5, 6)
"""Numbers of attributes of the marginals that are compared."""
QUICK_ALPHAS = (1, 2, 3)
"""Numbers of attributes of the marginals that a quick comparison compares."""


def compare(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    schema: Schema,
    *,
    targets: Sequence[str] | None = None,
    pay_gap: PayGap | None = None,
    progress: PartProgress | None = None,
) -> Evaluation:
    """Compare a synthetic table with the real one.

        >>> import pandas as pd
        >>> from synth_core import Schema, compare
        >>> schema = Schema.from_sizes({"a": 2, "b": 3})
        >>> real = pd.DataFrame({"a": [0, 1] * 60, "b": [0, 1, 2] * 40})
        >>> found = compare(real, real.assign(a=0), schema, targets=[])
        >>> found.one_way
        {'a': 0.5, 'b': 0.0}
        >>> round(found.scores["k-marginal score"])
        500

    Args:
        real: the confidential table, in the schema's own values.
        synthetic: a table of the same columns.
        schema: the public declaration of both.
        targets: columns to predict from the others; all with 2 to 64 codes unless named.
        pay_gap: columns of the NIST regression score; those with the roles area, group and income unless named.
        progress: called with what was just finished, how many parts are done, and of how many; left out, a bar is shown
            in a notebook and on a terminal.

    Returns:
        Every true error; it is confidential.

    Raises:
        SourceError: a table has no rows, or a value that is not declared; the text names table and column.
    """
    check_schema(schema)
    check_frame(real, source="real table")
    check_frame(synthetic, source="synthetic table")
    with live_progress("Comparing", wanted=progress is None) as advance:
        real_table = encode_table(real, schema, source="real table")
        synthetic_table = encode_table(synthetic, schema.as_decoded, source="synthetic table")
        return compare_tables(
            real_table,
            synthetic_table,
            targets=targets,
            violations=rule_violations(synthetic_table, schema) | broken_comparisons(synthetic, schema),
            progress=progress or (lambda what, done, parts: advance(what, done / parts)),
            **declared_measures(schema) | ({"pay_gap": pay_gap} if pay_gap else {}),
        )


def compare_codes(real: Codes, synthetic: Codes, domain: Domain, **asked: Any) -> Evaluation:
    """Compare two tables of codes in memory.

    Args:
        real: codes of the confidential table, a row for each record, a column for each attribute.
        synthetic: codes of the synthetic table.
        domain: the attributes and their sizes.
        asked: keyword arguments of `compare_tables`.

    Returns:
        Every true error; it is confidential.

    Raises:
        SourceError: a table has no rows, or a code outside the domain.
    """
    _check(real, domain, table="real")
    _check(synthetic, domain, table="synthetic")
    return compare_tables(CodedTable.of(real, domain), CodedTable.of(synthetic, domain), **asked)


@one_thread
def compare_tables(
    real: CodedTable,
    synthetic: CodedTable,
    *,
    targets: Sequence[str] | None = None,
    levels: Levels | None = None,
    numbers: Sequence[InsideBins] = (),
    pay_gap: PayGap | None = None,
    area: str | None = None,
    violations: Mapping[str, int] | None = None,
    quick: bool = False,
    progress: PartProgress | None = None,
) -> Evaluation:
    """Compare two tables of any size.

    Measures of counts use all rows; measures of single rows use a random sample where there are many.

    Args:
        real: the confidential table.
        synthetic: the synthetic table over the same domain.
        targets: columns to predict from the others; all with 2 to 64 codes unless named.
        levels: the number each code stands for, by ordered column (`numeric_levels`).
        numbers: columns whose numbers are compared too; the tables hold their places (`encode_table`).
        pay_gap: columns of the NIST regression score; without them there is none.
        area: column of places (`declared_area`), in each of which the k-marginal score compares pairs.
        violations: rows that break each rule (`rule_violations`).
        quick: leave out marginals of more than three attributes, and all measures of single rows.
        progress: called with what was just finished, how many parts are done, and of how many.

    Returns:
        Every true error; it is confidential.

    Raises:
        SourceError: a table has no rows.
    """
    for name, table in (("real", real), ("synthetic", synthetic)):
        if not table.rows:
            raise SourceError(f"the {name} table has no rows to compare; check where they come from")
    domain, alphas = real.domain, QUICK_ALPHAS if quick else ALPHAS
    done = itertools.count(1)

    def advance(finished: str) -> None:
        if progress:
            progress(finished, next(done), len(alphas) + 2 + (not quick))

    pairs = pair_tvd(real, synthetic)
    worst = worst_cells(real, synthetic, cliques=alpha_way(domain, min(2, len(domain))))
    advance("pairs of columns")
    for table in (real, synthetic):
        table.expect([clique for alpha in alphas for clique in alpha_way(domain, alpha)])
    marginals = []
    for alpha in reversed(alphas):  # the larger first: sums of theirs are the smaller
        marginals.append(marginal_errors(real, synthetic, alpha=alpha))
        advance(f"{alpha}-way marginals")
    scores = _scores(real, synthetic, levels=levels or {}, pay_gap=pay_gap, area=area)
    subgroups = subgroup_errors(real, synthetic)
    advance("subgroups and scores")
    by_row = {} if quick else _by_row(real, synthetic, targets=targets)
    scores |= by_row.pop("scores", {})
    if not quick:
        advance("predictions")
    return Evaluation(
        real_rows=real.rows,
        synthetic_rows=synthetic.rows,
        one_way=dict(zip(domain, np.diagonal(pairs).tolist(), strict=True)),
        marginals=tuple(errors for errors in reversed(marginals) if errors),
        pairs=_rows(pairs),
        worst_cells=worst,
        violations=dict(violations or {}),
        subgroups=subgroups,
        correlations=_rows(correlation_difference(real, synthetic)),
        scores=scores,
        values=compare_values(real, synthetic, numbers),
        **{"judged_rows": (0, 0), "targets": ()} | by_row,
    )


def _by_row(real: CodedTable, synthetic: CodedTable, *, targets: Sequence[str] | None) -> dict[str, Any]:
    """The measures of single rows (`ROW_MEASURES`), by the names of an evaluation's fields."""
    domain, samples = real.domain, (real.sample, synthetic.sample)
    chosen = usual_targets(domain) if targets is None else domain.clique(targets)
    return {
        "judged_rows": (len(samples[0]), len(samples[1])),
        "closeness": closeness(*samples),
        "scores": {"propensity MSE": propensity_mse(*samples)},
        "targets": target_errors(split_rows(*samples), domain, targets=chosen, cluster=real.cluster),
    }


def declared_measures(schema: Schema) -> dict[str, Any]:
    """What a schema says that measures need.

    Args:
        schema: the public declaration.

    Returns:
        The keyword arguments `levels`, `numbers`, `pay_gap` and `area` of `compare_tables`.
    """
    return {
        "levels": numeric_levels(schema),
        "numbers": number_columns(schema),
        "pay_gap": declared_pay_gap(schema),
        "area": declared_area(schema),
    }


def numeric_levels(schema: Schema) -> dict[str, NDArray[np.float64]]:
    """The number that each code of each numeric column stands for.

    Args:
        schema: the public declaration.

    Returns:
        For each numeric column the middle of every bin, and NaN for the codes that are no number.
    """
    return {c.name: levels for c in schema.columns if (levels := c.levels) is not None}


def declared_pay_gap(schema: Schema) -> PayGap | None:
    """The columns of the NIST regression score.

    Args:
        schema: the public declaration.

    Returns:
        The columns with the roles area, group and income; None unless the schema has all three.
    """
    named = {column.role: column.name for column in schema.columns if column.role is not None}
    return PayGap(**named) if len(named) == len(fields(PayGap)) else None


def declared_area(schema: Schema) -> str | None:
    """The column of places.

    Args:
        schema: the public declaration.

    Returns:
        The column with the role area; None without one.
    """
    return next((column.name for column in schema.columns if column.role == "area"), None)


def _scores(
    real: CodedTable, synthetic: CodedTable, *, levels: Levels, pay_gap: PayGap | None, area: str | None
) -> dict[str, float]:
    """The summary scores by name, without those the tables do not allow."""
    found = {
        "workload error": workload_error(real, synthetic, ordered=levels),
        "NIST clustering": clustering_score(real, synthetic),
        "NIST classification": classification_score(real, synthetic, levels=levels),
        "NIST regression": regression_score(real, synthetic, levels=levels, roles=pay_gap) if pay_gap else None,
        "k-marginal score": k_marginal_score(real, synthetic, area=area),
    }
    return {name: value for name, value in found.items() if value is not None}


def _rows(matrix: NDArray[np.float64]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in matrix.tolist())


def rule_violations(table: CodedTable, schema: Schema) -> dict[str, int]:
    """Count the rows that break a rule.

    Args:
        table: a table over the schema's domain.
        schema: the public declaration, with its rules.

    Returns:
        For each rule by name, how many rows of the table break it.
    """
    return table.breaking([rule.name for rule in schema.rules]) if schema.rules else {}


def broken_comparisons(frame: pd.DataFrame, schema: Schema) -> dict[str, int]:
    """Count the rows of a frame that break a rule about numbers.

    Args:
        frame: the table, in the schema's own values.
        schema: the public declaration, with its rules.

    Returns:
        For each such rule by name, how many rows break it.
    """
    names = [rule.name for group in schema.value_groups for rule in group.rules]
    broken = schema.violations(frame) if names else {}
    return {name: int(broken[name].sum()) for name in names}


def encode_table(frame: pd.DataFrame, schema: Schema, *, source: str) -> CodedTable:
    """The rows of a table as codes, in the schema's order, and where in their bins its numbers lie.

    Args:
        frame: the table, in the schema's own values.
        schema: the public declaration of its columns.
        source: what a refusal calls the table.

    Returns:
        The table.

    Raises:
        SourceError: a column is missing, or a value is not declared; the text names the column.
    """
    found = encode_numbers(frame, schema, source=source)
    codes = np.column_stack([own for name, own in found.items() if not is_place(name)])
    return CodedTable.of(codes, schema.domain, beside={name: own for name, own in found.items() if is_place(name)})


def _check(codes: Codes, domain: Domain, *, table: str) -> None:
    if codes.ndim != 2 or codes.shape[1] != len(domain):
        raise SourceError(f"the {table} table needs one column for each of the schema's columns, in their order")
    for name, size, column in zip(domain.attributes, domain.sizes, codes.T, strict=True):
        if len(column) and (column.min() < 0 or column.max() >= size):
            raise SourceError(
                f"the {table} table, column {name!r}: a code is outside the domain; encode it by this schema"
            )
