"""The chain's end in a small file of its own, by which a rolled-back ledger is recognised."""

from __future__ import annotations

import json
import os
from pathlib import Path
from threading import get_ident

from sqlalchemy.engine import URL

from synth_core.errors import LedgerError
from synth_core.privacy.ledger import Head
from synth_core.storage.ledger_database import database_file


def usual_head(url: URL) -> Path | None:
    """Where a ledger's head is kept unless another place is asked for; nowhere, for a ledger in memory."""
    file = database_file(url)
    if file:
        return file.with_name(f"{file.name}.head")
    named = os.environ.get("SYNTH_LEDGER_HEAD")
    return Path(named) if named and url.get_backend_name() == "postgresql" else None


def read_head(path: Path) -> Head:
    """The head kept in a file."""
    try:
        kept = json.loads(path.read_text())
        return Head(records=int(kept["records"]), hash=str(kept["hash"]))
    except FileNotFoundError:
        raise LedgerError(f"head file {path} is missing; restore it, or name another with --head") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise LedgerError(
            f"head file {path} cannot be read; restore it, or name another with --head"
        ) from None


def write_head(path: Path, head: Head) -> None:
    """Replace the kept head by a later one, in one step.

    Two processes may come here in the wrong order; the later head stays, so the file never goes back. It is not
    forced to the disk, for speed: after a power failure it may be older than the chain, or torn, never ahead.
    """
    try:
        if read_head(path).records >= head.records:
            return
    except LedgerError:
        pass  # there is none yet, or a power failure tore it: the chain itself is the source
    draft = path.with_name(f"{path.name}.{os.getpid()}-{get_ident()}")  # a process may hold several ledgers
    try:
        draft.write_text(head_text(head))
        draft.replace(path)
    except OSError:
        raise LedgerError(
            f"head file {path} cannot be written; make its folder writable and run again"
        ) from None


def head_text(head: Head) -> str:
    """The head as it is kept and shown."""
    return json.dumps({"records": head.records, "hash": head.hash}) + "\n"
