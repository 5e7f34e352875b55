"""Compares two tables of one schema, whoever made them, and writes the internal report: `synth evaluate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from synth_core.evaluation import (
    CodedTable,
    Evaluation,
    compare_codes,
    declared_pay_gap,
    numeric_levels,
    rule_violations,
)
from synth_core.report.build import internal_report
from synth_core.schema import Schema
from synth_core.schema.codec import encode
from synth_core.synthesizers.base import Progress

if TYPE_CHECKING:
    import pandas as pd

Codes = NDArray[Any]


def compare_and_report(
    real: pd.DataFrame, synthetic: pd.DataFrame, schema: Schema, *, title: str, progress: Progress
) -> tuple[Evaluation, str]:
    """Compare a synthetic table with the real one.

    Args:
        real: the confidential table.
        synthetic: a table of the same columns, whoever made it.
        schema: the public declaration of both.
        title: heading of the report.
        progress: called with a line before each part.

    Returns:
        The true errors, and the internal report as HTML. Both belong to the confidential zone.
    """
    real_codes, codes = _codes(real, schema, source="REAL"), _codes(synthetic, schema, source="SYNTHETIC")
    synthetic_table = CodedTable.of(codes, schema.domain)
    evaluation = compare_codes(
        real_codes,
        codes,
        schema.domain,
        levels=numeric_levels(schema),
        pay_gap=declared_pay_gap(schema),
        violations=rule_violations(synthetic_table, schema),
        progress=lambda what, done, parts: progress(f"{what} ({done} of {parts})"),
    )
    report = internal_report(
        evaluation,
        schema=schema,
        title=title,
        guarantee=None,
        spends=[],
        real_one_way=one_way_counts(CodedTable.of(real_codes, schema.domain)),
        synthetic_one_way=one_way_counts(synthetic_table),
        facts={"Sampling": evaluation.sampling} if evaluation.sampling else None,
    )
    return evaluation, report


def one_way_counts(table: CodedTable) -> dict[str, NDArray[np.int64]]:
    """How often each code of each column occurs."""
    columns = table.tables([(name,) for name in table.domain])
    return dict(zip(table.domain, columns, strict=True))


def _codes(frame: pd.DataFrame, schema: Schema, *, source: str) -> Codes:
    columns = encode(frame, schema, source=source)
    return np.column_stack([columns[name] for name in schema.domain])
