"""Differentially private synthetic census extracts: the engine, the wall, and the steps of a release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from synth_core.api import Release, synthesize
    from synth_core.schema import Schema

__version__ = "0.1.0"
__all__ = ["Release", "Schema", "__version__", "synthesize"]


def __getattr__(name: str) -> Any:
    """Import the public names on first use, so that DAG files and `--help` stay light."""
    if name == "Schema":
        from synth_core.schema import Schema

        return Schema
    if name in ("Release", "synthesize"):
        from synth_core import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
