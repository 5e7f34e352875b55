"""Which software made a release: versions, and digests by which another can tell whether theirs is the same."""

from __future__ import annotations

import hashlib
import platform
import sys
from functools import cache
from importlib.metadata import distributions, version
from pathlib import Path

from synth_core.files import sha256_file

LOCK = "requirements.lock"


def software() -> dict[str, str | None]:
    """Our version, Python's, a digest of all that is installed, and one of the lock it was installed from, if known."""
    lock = lock_file()
    return {
        "software": f"synth-core {version('synth-core')}",
        "python": platform.python_version(),
        "packages_digest": _packages_digest(),
        "lock_digest": None if lock is None else sha256_file(lock),
    }


@cache
def _packages_digest() -> str:
    """Computed once for a process: it reads the metadata of hundreds of packages."""
    installed = sorted(f"{found.name}=={found.version}" for found in distributions())
    return hashlib.sha256("\n".join(installed).encode()).hexdigest()


def lock_file() -> Path | None:
    """The lock in the root of this environment, where an image keeps it, or else the one of this checkout."""
    places = Path(sys.prefix) / LOCK, Path(__file__).resolve().parents[2] / LOCK
    return next((place for place in places if place.is_file()), None)
