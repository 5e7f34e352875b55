"""Check a published release: signature, checksums, certificate and, where it is at hand, the ledger."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from synth_core.errors import LedgerError, PublishError, SpecError
from synth_core.privacy.ledger import Record
from synth_core.release import certificate as certificates
from synth_core.release import manifest as manifests
from synth_core.release import signing
from synth_core.release.paths import ReleasePaths
from synth_core.storage.sql_ledger import SqlLedger, ledger_url


def verify_release(public: Path) -> list[str]:
    """Every problem found, each beginning with the name of what is wrong; an empty list is a good release."""
    path = public / "manifest.json"
    try:
        content = path.read_bytes()
    except OSError:
        raise SpecError(f"{public} holds no manifest.json; name the folder of a published release") from None
    found = _signature_problems(content, _paths(public))
    try:
        manifest = json.loads(content)
        found += manifests.problems(manifest, public)
        found += _certificate_problems(manifest, public)
        return found + _ledger_problems(manifest, public)
    except (ValueError, KeyError, TypeError, AttributeError):
        return [*found, "manifest.json: is not a manifest"]


def signer(public: Path) -> str:
    """The fingerprint of the key beside the manifest, for people to compare with the agency's."""
    try:
        return signing.fingerprint(_paths(public).public_key.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "unknown"


def _paths(public: Path) -> ReleasePaths:
    folder = public.resolve()
    return ReleasePaths(folder.parents[1], folder.name)


def _signature_problems(content: bytes, paths: ReleasePaths) -> list[str]:
    texts = []
    for path in (paths.signature, paths.public_key):
        try:
            texts.append(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return [f"{path.name}: is missing or cannot be read"]
    signed, pem = texts
    found = []
    if not signing.signed_by(content, signed, pem):
        found.append("manifest.json: does not match its signature")
    secret = signing.key_path(paths)
    if os.access(secret, os.R_OK):  # a reviewer without access to the confidential zone compares fingerprints
        try:
            own = signing.public_pem(signing.private_key(secret, create=False))
        except PublishError as refusal:
            return [*found, str(refusal)]
        if own != pem:
            found.append(f"{paths.public_key.name}: is not the key of this workspace")
    return found


def _certificate_problems(manifest: dict[str, Any], public: Path) -> list[str]:
    try:
        certificate = json.loads((public / "certificate.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []  # its checksum has told already
    return certificates.problems(certificate, manifest)


def _ledger_problems(manifest: dict[str, Any], public: Path) -> list[str]:
    """The ledger's own faults, a step whose cost it states otherwise, and a record that is not the one signed over."""
    workspace = public.resolve().parents[1]
    url = ledger_url(workspace, None)
    if not (workspace / "ledger.sqlite").exists() and url.startswith("sqlite"):
        return []
    try:
        ledger = SqlLedger(url)
        found = [f"ledger: {problem}" for problem in [*ledger.verify(), *_file_problems(url)]]
        records = ledger.records()
    except (LedgerError, SQLAlchemyError, sqlite3.DatabaseError) as fault:
        reason = str(fault) if isinstance(fault, LedgerError) else "cannot be read"
        return [f"ledger: {reason}"]
    own = [r for r in records if r.dataset == manifest["dataset"] and r.release == manifest["release"]]
    found += [p for p in manifests.problems(manifest, public, records=own) if p.startswith("ledger:")]
    return found + _head_problems(manifest, records)


def _file_problems(url: str) -> list[str]:
    """What the records do not tell: indexes that disagree with them, tables or triggers declared otherwise."""
    prefix = "sqlite:///"
    if not url.startswith(prefix):
        return []
    with closing(sqlite3.connect(url.removeprefix(prefix))) as database:
        sound = [line for (line,) in database.execute("pragma integrity_check")] == ["ok"]
        declared = database.execute(_DECLARATIONS).fetchall()
    with TemporaryDirectory() as folder:
        fresh = Path(folder) / "fresh.sqlite"
        SqlLedger(f"{prefix}{fresh}").accounts()
        with closing(sqlite3.connect(fresh)) as database:
            expected = database.execute(_DECLARATIONS).fetchall()
    found = [] if sound else ["ledger.sqlite is damaged; restore it from a copy"]
    return found if declared == expected else [*found, "its tables or triggers are not as they were declared"]


_DECLARATIONS = "select type, name, tbl_name, sql from sqlite_master order by type, name"


def _head_problems(manifest: dict[str, Any], records: Sequence[Record]) -> list[str]:
    head = manifest["provenance"]["ledger"]
    at = next((record for record in records if record.id == head["records"]), None)
    if at is None:
        return [
            f"ledger: was rolled back behind record {head['records']}, which the manifest was signed over"
        ]
    if at.hash != head["hash"]:
        return [f"ledger: record {head['records']} is not the one that the manifest was signed over"]
    return []
