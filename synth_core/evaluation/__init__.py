"""True errors of a synthetic table against the real one; everything here belongs to the confidential zone."""

from synth_core.evaluation.compare import compare, compare_codes, rule_violations
from synth_core.evaluation.result import Evaluation, MarginalErrors, TargetError

__all__ = ["Evaluation", "MarginalErrors", "TargetError", "compare", "compare_codes", "rule_violations"]
