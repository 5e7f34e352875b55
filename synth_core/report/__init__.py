"""Reports people read: the internal one with true errors, made of parts a public one can reuse."""

from synth_core.report.build import Guarantee, SpendLine, internal_report

__all__ = ["Guarantee", "SpendLine", "internal_report"]
