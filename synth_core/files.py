"""Files that are either whole or absent, and their checksums."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Give a temporary path to write; it takes the real name when the block ends, and vanishes if it fails.

    The temporary file lies beside the real one (a rename is atomic only within a file system) and keeps its
    suffix, because some writers choose or append a format by it. File and directory are flushed to the disk,
    so after a power failure the name holds the old content or the new, never a part.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.stem}-{secrets.token_hex(4)}{target.suffix}")
    try:
        yield temporary
        flush_to_disk(temporary)
        temporary.replace(target)
        flush_to_disk(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file that is whole or absent, in UTF-8."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def flush_to_disk(path: Path) -> None:
    """Make a file's content, or a directory's entries, survive a power failure."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256_file(path: str | Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
