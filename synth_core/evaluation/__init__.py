"""True errors of a synthetic table against the real one; everything here belongs to the confidential zone."""

from synth_core.evaluation.compare import (
    compare,
    compare_codes,
    declared_pay_gap,
    numeric_levels,
    rule_violations,
)
from synth_core.evaluation.nist import PayGap
from synth_core.evaluation.result import Closeness, Evaluation, MarginalErrors, Subgroup, TargetError

__all__ = [
    "Closeness",
    "Evaluation",
    "MarginalErrors",
    "PayGap",
    "Subgroup",
    "TargetError",
    "compare",
    "compare_codes",
    "declared_pay_gap",
    "numeric_levels",
    "rule_violations",
]
