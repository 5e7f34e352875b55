"""Differentially private synthetic census extracts: the engine, the wall, and the steps of a release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from synth_core.api import synthesize
    from synth_core.evaluation import compare
    from synth_core.inference.published import load_release
    from synth_core.linked import LinkedRelease
    from synth_core.result import Release
    from synth_core.schema import LinkedSchema, Schema

__version__ = "0.1.0"
__all__ = [
    "LinkedRelease",
    "LinkedSchema",
    "Release",
    "Schema",
    "__version__",
    "compare",
    "load_release",
    "synthesize",
]


def __getattr__(name: str) -> Any:
    """Import the public names on first use, so that DAG files and `--help` stay light."""
    if name == "Schema":
        from synth_core.schema import Schema

        return Schema
    if name == "LinkedSchema":
        from synth_core.schema import LinkedSchema

        return LinkedSchema
    if name == "LinkedRelease":
        from synth_core.linked import LinkedRelease

        return LinkedRelease
    if name == "compare":
        from synth_core.errors import needing

        with needing("evaluation"):
            from synth_core.evaluation import compare

        return compare
    if name == "load_release":
        from synth_core.inference.published import load_release

        return load_release
    if name == "synthesize":
        from synth_core.api import synthesize

        return synthesize
    if name == "Release":
        from synth_core.result import Release

        return Release
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
