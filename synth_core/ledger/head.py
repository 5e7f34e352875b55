"""Where the chain's end is known outside of the database, by which a rolled-back ledger is recognised.

A head is kept in small files: beside a SQLite file, and in a second place that SYNTH_LEDGER_HEAD names, out of reach of
anyone who restores the ledger's folder. Every published manifest knows one too: the record up to which it was signed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from shlex import quote

from synth_core.documents import read_json
from synth_core.errors import LedgerError
from synth_core.files import MAX_PUBLISHED, explain, write_in_turn
from synth_core.privacy.accounts import Head
from synth_core.settings import Settings

KEPT = "the kept head"
"""How problems name a head that was kept in a file."""


def head_places(file: Path | None, workspace: Path | None = None) -> tuple[Path, ...]:
    """The files in which a ledger's head is kept.

    Args:
        file: the ledger's database, None for one in PostgreSQL.
        workspace: the folder whose releases it pays for; for PostgreSQL the head lies there unless SYNTH_LEDGER_HEAD
            names another file.

    Returns:
        All of them; none for a ledger in PostgreSQL without a workspace.
    """
    named = Settings.from_environment().ledger_head
    second = [Path(named)] if named else []
    if file:
        return (file.with_name(f"{file.name}.head"), *second)
    if not second and workspace is not None and workspace.is_dir():
        return (workspace / "ledger.head",)
    return tuple(second)


def published_heads(workspace: Path) -> dict[str, Head]:
    """For each published release of a workspace, by name, the head that its manifest was signed over.

    A manifest that cannot be read is left out, since `synth verify` reports it, and one without a signature was never
    published.
    """
    found = {}
    for path in sorted((workspace / "public").glob("*/manifest.json")):
        if not path.with_suffix(".sig").exists():
            continue
        try:
            manifest = read_json(path, limit=MAX_PUBLISHED)
            head = _head(manifest["provenance"]["ledger"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        found[path.parent.name] = head
    return found


def kept_heads(places: Iterable[Path]) -> tuple[list[Head], list[str]]:
    """The heads in these files, and for each file without one what is wrong with it."""
    heads, problems = [], []
    for path in places:
        try:
            heads.append(read_head(path))
        except LedgerError as problem:
            problems.append(str(problem))
    return heads, problems


def disagreements(known: Mapping[str, Iterable[Head]], *, last: int, hashes: Mapping[int, str]) -> list[str]:
    """What is wrong with a chain in which known records are not where they were.

    Args:
        known: the records that are known, by who knows them.
        last: the chain's last record.
        hashes: those that the chain has at the known records, as far as it is that long.

    Returns:
        The problems in words, each once; none if all the records are there.
    """
    found = []
    for source, heads in known.items():
        for head in heads:
            if head.records > last:
                found.append(f"the ledger was rolled back: it ends at record {last}, {source} at {head.records}")
            elif head.records and hashes.get(head.records) != head.hash:
                found.append(f"the ledger was rewritten: record {head.records} is not the one of {source}")
    return list(dict.fromkeys(found))


def read_head(path: Path) -> Head:
    """The head kept in a file.

    Raises:
        LedgerError: the file is missing or damaged; the text names the way out.
    """
    remedy = f"restore it, or, if you know that no record is missing, run: synth ledger head > {quote(str(path))}"
    try:
        return _head(read_json(path, limit=MAX_PUBLISHED))
    except FileNotFoundError:
        raise LedgerError(f"head file {path} is missing; {remedy}") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise LedgerError(f"head file {path} cannot be read; {remedy}") from None


def write_head(path: Path, head: Head) -> None:
    """Replace the kept head by a later one, in one step.

    Two processes may come here in the wrong order; the later head stays, so the file never goes back. It is not
    forced to the disk, for speed: after a power failure it may be older than the chain, or torn, never ahead.
    """

    def later() -> bytes | None:
        try:
            kept = read_head(path)
        except LedgerError:  # there is none yet, or a power failure tore it: the chain itself is the source
            return head_text(head).encode()
        return None if kept.records >= head.records else head_text(head).encode()

    try:
        write_in_turn(path, later)
    except OSError as error:
        raise LedgerError(f"head file {path} cannot be written: {explain(error)}") from None


def head_text(head: Head) -> str:
    """The head as it is kept and shown."""
    return json.dumps({"records": head.records, "hash": head.hash}) + "\n"


def _head(written: dict[str, object]) -> Head:
    return Head(records=int(str(written["records"])), hash=str(written["hash"]))
