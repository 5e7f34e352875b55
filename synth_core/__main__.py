"""Entry point of `synth`, also where the packages of the command line are not installed."""

from __future__ import annotations

import atexit
import gc
import sys

from synth_core.errors import SynthError, needing


def main() -> None:
    """Run the command; a refusal is one line on the error stream and exit code 2."""
    # On its way out the interpreter would search thousands of modules for garbage: 1.4 s of a release.
    atexit.register(gc.freeze)
    try:
        with needing("cli"):
            from synth_core.cli import app
        app()
    except SynthError as refusal:
        sys.stderr.write(f"synth: {refusal}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
