"""True errors of a synthetic table against the real one; everything here belongs to the confidential zone."""

from synth_core.evaluation.classification import Closeness, TargetError
from synth_core.evaluation.marginals import MarginalErrors, Subgroup
from synth_core.evaluation.nist import PayGap
from synth_core.evaluation.tables import CodedTable
from synth_core.evaluation.true_errors import (
    Evaluation,
    compare,
    compare_codes,
    compare_tables,
    declared_area,
    declared_measures,
    declared_pay_gap,
    numeric_levels,
    rule_violations,
)

__all__ = [
    "Closeness",
    "CodedTable",
    "Evaluation",
    "MarginalErrors",
    "PayGap",
    "Subgroup",
    "TargetError",
    "compare",
    "compare_codes",
    "compare_tables",
    "declared_area",
    "declared_measures",
    "declared_pay_gap",
    "numeric_levels",
    "rule_violations",
]
