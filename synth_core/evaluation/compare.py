"""Compare a real and a synthetic table: the one call behind the evaluate step and the analysts' API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from synth_core.domain import Domain
from synth_core.errors import SourceError
from synth_core.evaluation.classification import Spread, one_by_one, split, target_errors, usual_targets
from synth_core.evaluation.closeness import closeness, propensity_mse
from synth_core.evaluation.distances import Codes, alpha_way
from synth_core.evaluation.marginals import marginal_errors
from synth_core.evaluation.nist import (
    Levels,
    PayGap,
    classification_score,
    clustering_score,
    regression_score,
)
from synth_core.evaluation.pairs import correlation_difference, pair_tvd, worst_cells
from synth_core.evaluation.result import Evaluation
from synth_core.evaluation.subgroups import subgroup_errors
from synth_core.evaluation.tables import CodedTable
from synth_core.evaluation.workload import workload_error
from synth_core.schema import Categorical, Schema
from synth_core.schema.codec import encode

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what was just finished, how many parts are done, and of how many."""

ALPHAS = (1, 2, 3, 4, 5, 6)
_FEWEST_REAL_ROWS = 3


def compare(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    schema: Schema,
    *,
    targets: Sequence[str] | None = None,
    pay_gap: PayGap | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Every true error of a synthetic table against the real one, both in the schema's own values.

    A value outside the schema is refused with the table and the column it is in. With `pay_gap`, or where the schema
    says which columns are area, group and income, these are given the NIST regression score too. The result is
    confidential.
    """
    domain = schema.domain
    real_codes = _encoded(real, schema, source="real table")
    synthetic_codes = _encoded(synthetic, schema, source="synthetic table")
    return compare_codes(
        real_codes,
        synthetic_codes,
        domain,
        targets=targets,
        levels=numeric_levels(schema),
        pay_gap=pay_gap or declared_pay_gap(schema),
        violations=rule_violations(CodedTable.of(synthetic_codes, domain), schema),
        progress=progress,
    )


def compare_codes(real: Codes, synthetic: Codes, domain: Domain, **asked: Any) -> Evaluation:
    """Every true error of a synthetic table of codes in memory; `asked` as for `compare_tables`."""
    _check(real, domain, table="real", fewest=_FEWEST_REAL_ROWS)
    _check(synthetic, domain, table="synthetic", fewest=1)
    return compare_tables(CodedTable.of(real, domain), CodedTable.of(synthetic, domain), **asked)


def compare_tables(
    real: CodedTable,
    synthetic: CodedTable,
    *,
    targets: Sequence[str] | None = None,
    levels: Levels | None = None,
    pay_gap: PayGap | None = None,
    violations: Mapping[str, int] | None = None,
    spread: Spread = one_by_one,
    progress: Progress | None = None,
) -> Evaluation:
    """Every true error of a synthetic table of any size.

    What counts tell is computed from all rows; what single rows tell, from a random sample where there are many.
    `violations` comes from `rule_violations` and `levels`, which names the ordered columns, from `numeric_levels`.
    """
    _check_rows(real.rows, table="real", fewest=_FEWEST_REAL_ROWS)
    _check_rows(synthetic.rows, table="synthetic", fewest=1)
    domain = real.domain
    chosen = usual_targets(domain) if targets is None else domain.clique(targets)
    advance = _counter(progress, total=len(ALPHAS) + 3)

    pairs = pair_tvd(real, synthetic)
    worst = worst_cells(real, synthetic, cliques=alpha_way(domain, min(2, len(domain))))
    advance("pairs of columns")
    marginals = []
    for alpha in ALPHAS:
        marginals.append(marginal_errors(real, synthetic, alpha=alpha))
        advance(f"{alpha}-way marginals")
    scores = _scores(real, synthetic, levels=levels or {}, pay_gap=pay_gap) | _k_marginal(pairs)
    subgroups, near = subgroup_errors(real, synthetic), closeness(real.sample, synthetic.sample)
    advance("subgroups and scores")
    svm = target_errors(split(real.sample, synthetic.sample), domain, targets=chosen, spread=spread)
    advance("predictions")
    return Evaluation(
        real_rows=real.rows,
        synthetic_rows=synthetic.rows,
        judged_rows=(len(real.sample), len(synthetic.sample)),
        one_way=dict(zip(domain, np.diagonal(pairs).tolist(), strict=True)),
        marginals=tuple(errors for errors in marginals if errors),
        pairs=_rows(pairs),
        worst_cells=worst,
        targets=svm,
        violations=dict(violations or {}),
        subgroups=subgroups,
        correlations=_rows(correlation_difference(real, synthetic)),
        scores=scores,
        closeness=near,
    )


def numeric_levels(schema: Schema) -> dict[str, NDArray[np.float64]]:
    """For each numeric column the middle of every bin, and NaN for the codes that are no number."""
    levels = {}
    for column in schema.columns:
        if not isinstance(column, Categorical):
            edges = np.asarray(column.edges, dtype=np.float64)
            levels[column.name] = np.full(column.size, np.nan)
            levels[column.name][: column.declared] = (edges[:-1] + edges[1:]) / 2
    return levels


def declared_pay_gap(schema: Schema) -> PayGap | None:
    """The columns with the roles area, group and income, if the schema has all three."""
    named = {column.role: column.name for column in schema.columns if column.role is not None}
    return PayGap(**named) if len(named) == len(fields(PayGap)) else None


def _scores(
    real: CodedTable, synthetic: CodedTable, *, levels: Levels, pay_gap: PayGap | None
) -> dict[str, float]:
    """The summary scores by name, without those the tables do not allow."""
    found = {
        "workload error": workload_error(real, synthetic, ordered=levels),
        "NIST clustering": clustering_score(real, synthetic),
        "NIST classification": classification_score(real, synthetic, levels=levels),
        "NIST regression": regression_score(real, synthetic, levels=levels, roles=pay_gap)
        if pay_gap
        else None,
        "propensity MSE": propensity_mse(real.sample, synthetic.sample),
    }
    return {name: value for name, value in found.items() if value is not None}


def _k_marginal(pairs: NDArray[np.float64]) -> dict[str, float]:
    """SDNist's score: 1,000 times one minus the mean TVD of all pairs, if there are pairs."""
    above = pairs[np.triu_indices(len(pairs), 1)]
    return {"k-marginal score": 1000 * (1 - float(above.mean()))} if above.size else {}


def _rows(matrix: NDArray[np.float64]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in matrix.tolist())


def rule_violations(table: CodedTable, schema: Schema) -> dict[str, int]:
    """For each rule of the schema, how many rows of the table break it."""
    return table.breaking([rule.name for rule in schema.rules]) if schema.rules else {}


def _encoded(frame: pd.DataFrame, schema: Schema, *, source: str) -> Codes:
    columns: Mapping[str, Any] = encode(frame, schema, source=source)
    return np.column_stack([columns[name] for name in schema.domain])


def _check(codes: Codes, domain: Domain, *, table: str, fewest: int) -> None:
    if codes.ndim != 2 or codes.shape[1] != len(domain):
        raise SourceError(
            f"the {table} table needs one column for each of the schema's columns, in their order"
        )
    _check_rows(len(codes), table=table, fewest=fewest)
    for name, size, column in zip(domain.attributes, domain.sizes, codes.T, strict=True):
        if column.min() < 0 or column.max() >= size:
            raise SourceError(
                f"the {table} table, column {name!r}: a code is outside the domain; encode it by this schema"
            )


def _check_rows(rows: int, *, table: str, fewest: int) -> None:
    if rows < fewest:
        raise SourceError(f"the {table} table has too few rows to compare; give at least {fewest}")


def _counter(progress: Progress | None, *, total: int) -> Callable[[str], None]:
    done = 0

    def advance(finished: str) -> None:
        nonlocal done
        done += 1
        if progress:
            progress(finished, done, total)

    return advance
