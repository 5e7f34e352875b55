"""Entry point of `synth`, also where the packages of the command line are not installed."""

from __future__ import annotations

import atexit
import gc
import signal
import sys
from typing import NoReturn

from synth_core.errors import SynthError, needing
from synth_core.files import naming_files


def main() -> None:
    """Run the command; a refusal is one line on the error stream and exit code 2.

    SIGTERM ends it like any other exit, so that temporary files are removed.
    """
    signal.signal(signal.SIGTERM, _end)
    # On its way out the interpreter would search thousands of modules for garbage: 1.4 s of a release.
    atexit.register(gc.freeze)
    try:
        with needing("cli"):
            from synth_core.cli import app
        with naming_files():
            app()
    except SynthError as refusal:
        sys.stderr.write(f"synth: {refusal}\n")
        sys.exit(2)


def _end(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
