"""Reports people read: the internal one with true errors, the public one without; both made of the same parts."""

from synth_core.report.build import internal_report
from synth_core.report.guarantee import Guarantee, SpendLine
from synth_core.report.public import public_report

__all__ = ["Guarantee", "SpendLine", "internal_report", "public_report"]
