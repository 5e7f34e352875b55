"""True errors of a synthetic table against the real one; everything here belongs to the confidential zone."""

from synth_core.evaluation.compare import (
    compare,
    compare_codes,
    compare_tables,
    declared_pay_gap,
    numeric_levels,
    rule_violations,
)
from synth_core.evaluation.nist import PayGap
from synth_core.evaluation.result import Closeness, Evaluation, MarginalErrors, Subgroup, TargetError
from synth_core.evaluation.tables import CodedTable

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
    "declared_pay_gap",
    "numeric_levels",
    "rule_violations",
]
