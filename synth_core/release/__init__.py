"""What a release is: the spec a person writes, where files lie, the manifest."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from synth_core.release.budget import ReleaseBudget, divide_budget
    from synth_core.release.schedule import Schedule
    from synth_core.release.spec import ReleaseSpec
    from synth_core.release.strata import Strata
    from synth_core.release.verify import Check, Verification, check_release

__all__ = [
    "Check",
    "ReleaseBudget",
    "ReleaseSpec",
    "Schedule",
    "Strata",
    "Verification",
    "check_release",
    "divide_budget",
]

_PLACES = ("spec", "schedule", "strata", "budget", "verify")


def __getattr__(name: str) -> Any:
    """Import the public names on first use: DAG files read specs, and need neither a ledger nor keys for that."""
    if name in __all__:
        for place in _PLACES:
            module = importlib.import_module(f"synth_core.release.{place}")
            if name in vars(module):
                return vars(module)[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
