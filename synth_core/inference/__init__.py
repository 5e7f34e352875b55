"""What a release's model says of any table, and how far that may be from the truth."""

from synth_core.inference.combining import Combined, combine

__all__ = ["Combined", "combine"]
