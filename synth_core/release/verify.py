"""Check a published release, wherever its folder lies: signature, files, certificate and, if at hand, the ledger."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from sqlalchemy.exc import SQLAlchemyError

from synth_core.documents import parse_json, read_json
from synth_core.errors import LedgerError, PublishError, SpecError, SynthError
from synth_core.files import MAX_PUBLISHED, read_file
from synth_core.ledger.database import database_file, parse_url
from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.privacy.accounts import Record
from synth_core.release import manifest as manifests
from synth_core.release import signing
from synth_core.release.certificate import certificate_problems, guarantee_problems
from synth_core.release.household_check import check_shards, shard_files
from synth_core.release.paths import MANIFEST, PUBLIC_KEY, SIGNATURE, SIGNED, ReleasePaths
from synth_core.release.reuse import FrozenReuse, reuse_problems
from synth_core.schema.linked import LinkedSchema
from synth_core.settings import Settings

UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)
"""What reading a file of another shape than a manifest raises."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a verification looked at, or would have.

    Attributes:
        name: The thing: signature, files, tables, certificate or ledger.
        says: What agrees with what; of a thing that was not checked, why.
        problems: What disagrees, each beginning with the name of the file or thing.
        checked: Whether it was looked at.
    """

    name: str
    says: str
    problems: tuple[str, ...] = ()
    checked: bool = True

    @property
    def outcome(self) -> str:
        """The result in two words: agrees, DISAGREES or not checked."""
        if self.problems:
            return "DISAGREES"
        return "agrees" if self.checked else "not checked"

    @property
    def words(self) -> str:
        """What there is to say: the problems, or else what was checked or why it was not."""
        return "; ".join(self.problems) or self.says


@dataclass(frozen=True, slots=True)
class Verification:
    """Every check of one release.

    Attributes:
        checks: Signature, files, of two linked tables their links and rules, certificate and, where it was asked for,
            ledger, in this order.
        signer: Fingerprint of the key beside the manifest, "unknown" if there is none.
    """

    checks: tuple[Check, ...]
    signer: str

    @property
    def problems(self) -> tuple[str, ...]:
        """Everything that disagrees."""
        return tuple(problem for check in self.checks for problem in check.problems)

    @property
    def sound(self) -> bool:
        """Whether all that was checked agrees; it says nothing of what was not checked."""
        return not self.problems


def check_release(folder: Path, *, key: Path | None = None) -> Verification:
    """Check a published release: its folder, and the ledger if one is at hand.

    Args:
        folder: The release's folder; it may be a download that lies anywhere.
        key: File with the publisher's public key (PEM), obtained elsewhere than the folder.

    Returns:
        What was checked, with what result, and what was not checked and why.

    Raises:
        SpecError: The folder holds no manifest, or the key cannot be read.
    """
    found = check_folder(folder, key=_given_key(key) if key else _workspace_key(folder))
    try:
        ledger = _ledger_check(read_json(folder / MANIFEST, limit=MAX_PUBLISHED), folder)
    except UNREADABLE:
        ledger = Check("ledger", "the manifest cannot be read", checked=False)
    return Verification((*found.checks, ledger), found.signer)


def verify_release(folder: Path) -> list[str]:
    """Every problem that `check_release` finds; an empty list says that all that could be checked agrees."""
    return list(check_release(folder).problems)


def check_folder(folder: Path, *, key: signing.KnownKey | None = None) -> Verification:
    """Check what lies in the folder alone: signature, files and the certificate's sums.

    Args:
        folder: The release's folder.
        key: A key that is known to be the publisher's, if there is one.

    Returns:
        Three checks, four of linked tables; no ledger is looked for.

    Raises:
        SpecError: The folder holds no manifest.
    """
    try:
        content = read_file(folder / MANIFEST)
    except OSError:
        raise SpecError(f"{folder} holds no {MANIFEST}; name the folder of a published release") from None
    signature = _signature_check(content, folder, key)
    try:
        manifest = parse_json(content)
        tables = (_tables_check(manifest, folder),) if "tables" in manifest else ()
        checks = (signature, _files_check(manifest, folder), *tables, _certificate_check(manifest, folder))
    except UNREADABLE:
        files = Check("files", "", (f"{MANIFEST}: is not a manifest",))
        certificate = Check("certificate", "the manifest cannot be read", checked=False)
        checks = (signature, files, certificate)
    return Verification(checks, _signer(folder))


def _signer(folder: Path) -> str:
    try:
        return signing.fingerprint(read_file(folder / PUBLIC_KEY).decode())
    except (OSError, ValueError):
        return "unknown"


def _given_key(path: Path) -> signing.KnownKey:
    try:
        return signing.KnownKey(signing.canonical_pem(read_file(path).decode()), "the key that was given")
    except (OSError, ValueError):
        raise SpecError(f"--key {path} cannot be read as an Ed25519 public key in PEM; check the file") from None


def _workspace(folder: Path) -> Path | None:
    """The workspace in whose public zone the folder lies; None for a download."""
    workspace = folder.resolve().parents[1]
    paths = ReleasePaths(workspace, folder.resolve().name)
    known = (workspace / "confidential").is_dir() or paths.ledger.exists()
    return workspace if folder.resolve() == paths.public and known else None


def _workspace_key(folder: Path) -> signing.KnownKey | None:
    """The key with which the folder's workspace signs; a reviewer who may not read it compares fingerprints."""
    workspace = _workspace(folder)
    if workspace is None:
        return None
    path = signing.key_path(ReleasePaths(workspace, folder.name))
    if not os.access(path, os.R_OK):
        return None
    try:
        pem = signing.public_pem(signing.private_key(path, create=False))
    except PublishError as refusal:
        return signing.KnownKey("", str(refusal))
    return signing.KnownKey(pem, "the key of this workspace")


def _signature_check(content: bytes, folder: Path, known: signing.KnownKey | None) -> Check:
    texts = []
    for name in (SIGNATURE, PUBLIC_KEY):
        try:
            texts.append(read_file(folder / name).decode())
        except (OSError, ValueError):
            return Check("signature", "", (f"{name}: is missing or cannot be read",))
    signed, pem = texts
    found = [] if signing.is_signed_by(content, signed, pem) else [f"{MANIFEST}: does not match its signature"]
    if known is None:
        says = (
            f"{MANIFEST} is signed by the key in this folder, {_signer(folder)}, which proves nothing about who "
            "signed; get the publisher's key elsewhere and give it with --key"
        )
        return Check("signature", says, tuple(found))
    if not known.pem:
        found.append(known.name)
    elif known.pem != pem:
        found.append(f"{PUBLIC_KEY}: is not {known.name}")
    return Check("signature", f"{MANIFEST} is signed by {known.name}, {_signer(folder)}", tuple(found))


def _files_check(manifest: dict[str, Any], folder: Path) -> Check:
    names = set(manifest["artifacts"])
    outside = [name for name in names if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts]
    if outside:
        return Check("files", "", (f"{MANIFEST}: lists {outside[0]!r}, which is no file of the folder",))
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    others = sorted(there - names - {*SIGNED})
    try:
        found = manifests.problems(manifest, folder)
    except OSError:
        found = ["files: some may not be read; ask the owner of the folder for access"]
    # Readers of the table read every file in its folder; all of them pass hidden ones over.
    extra = [
        name
        for name in others
        if name.startswith(("extract/", "extract-csv/", "replicates/")) and not Path(name).name.startswith(".")
    ]
    found += [f"{name}: is not listed in the manifest" for name in extra]
    says = f"{len(names)} files, each with the checksum that the manifest states"
    if others:
        says += f"; {len(others)} more in the folder are no part of the release"
    return Check("files", says, tuple(found))


def _tables_check(manifest: dict[str, Any], folder: Path) -> Check:
    """Whether every person has a household, every household its people, and no household breaks a rule."""
    try:
        schema = LinkedSchema.load(folder / "schema.yaml")
        seen = check_shards(shard_files(folder / "extract"), schema=schema)
    except (SynthError, pa.ArrowException, OSError, *UNREADABLE):
        return Check("tables", "", ("extract: the linked tables cannot be read as the schema declares them",))
    found, stated = seen.problems, manifest["tables"]
    for name, rows in (("household", seen.households), ("person", seen.people)):
        if not found and rows != stated[name]:
            found.append(f"extract/{name}: has {rows:,} rows, the manifest says {stated[name]:,}")
    found += [f"extract: {number:,} break the rule {rule!r}" for rule, number in seen.broken.items() if number]
    says = f"{seen.households:,} households and {seen.people:,} people: everybody has a household of at most "
    says += f"{schema.largest} people, and none of {len(seen.broken)} rules is broken"
    return Check("tables", says, tuple(found))


def _certificate_check(manifest: dict[str, Any], folder: Path) -> Check:
    try:
        certificate = read_json(folder / "certificate.json", limit=MAX_PUBLISHED)
        spends = len(certificate["spends"])
    except (OSError, *UNREADABLE):
        return Check("certificate", "certificate.json cannot be read", checked=False)
    says = f"its {spends} spends have the prices of their mechanisms and add up to what the manifest states"
    return Check("certificate", says, tuple(certificate_problems(certificate, manifest)))


def _ledger_check(manifest: dict[str, Any], folder: Path) -> Check:
    """The ledger's own faults, a step whose cost it states otherwise, and a record that is not the one signed over."""
    workspace, named = _workspace(folder), Settings.from_environment().ledger_url
    if workspace is None and not named:
        says = "the folder lies in no workspace, and SYNTH_LEDGER_URL names no ledger"
        return Check("ledger", says, checked=False)
    url = ledger_url(workspace or folder, None)
    try:
        file = database_file(parse_url(url))
        if file is not None and not file.exists():
            return Check("ledger", "", (f"ledger: {file} is missing; restore it, or check SYNTH_LEDGER_URL",))
        if file is not None and not os.access(file, os.R_OK):
            return Check("ledger", f"{file} may not be read by you", checked=False)
        ledger = SqlLedger(url)
        found = [f"ledger: {problem}" for problem in [*ledger.verify(), *_file_problems(ledger.chain.file)]]
        records = ledger.records()
    except (LedgerError, SQLAlchemyError, sqlite3.DatabaseError) as fault:
        reason = str(fault) if isinstance(fault, LedgerError) else "cannot be read"
        return Check("ledger", "", (f"ledger: {reason}",))
    dataset = manifest["dataset"]
    if workspace is None and not found and all(record.dataset != dataset for record in records):
        says = f"the ledger that SYNTH_LEDGER_URL names has no account of data set {dataset!r}"
        return Check("ledger", says, checked=False)
    found += _head_problems(manifest, records) or guarantee_problems(manifest, records)
    if manifest.get("reused"):
        found += reuse_problems(FrozenReuse.load(folder / "reuse.json"), manifest, records)
    says = (
        f"its chain of {len(records)} records is as it was written, gives the same guarantee, "
        "and has the record that the manifest was signed over"
    )
    return Check("ledger", says, tuple(found))


def _file_problems(file: Path | None) -> list[str]:
    """What the records do not show: indexes that disagree with them, tables or triggers declared otherwise."""
    if file is None:
        return []
    with closing(sqlite3.connect(file)) as database:
        sound = [line for (line,) in database.execute("pragma integrity_check")] == ["ok"]
        declared = database.execute(_DECLARATIONS).fetchall()
    found = [] if sound else [f"{file.name} is damaged; restore it from a copy"]
    if declared != _expected_declarations():
        found.append("its tables or triggers are not as they were declared")
    return found


@cache
def _expected_declarations() -> list[tuple[str, ...]]:
    """Those of a ledger that this program has just made."""
    with TemporaryDirectory() as folder:
        fresh = Path(folder) / "fresh.sqlite"
        SqlLedger(f"sqlite:///{fresh}", head_paths=()).accounts()
        with closing(sqlite3.connect(fresh)) as database:
            return database.execute(_DECLARATIONS).fetchall()


_DECLARATIONS = "select type, name, tbl_name, sql from sqlite_master order by type, name"


def _head_problems(manifest: dict[str, Any], records: Sequence[Record]) -> list[str]:
    head = manifest["provenance"]["ledger"]
    at = next((record for record in records if record.id == head["records"]), None)
    if at is None:
        return [f"ledger: was rolled back behind record {head['records']}, which the manifest was signed over"]
    if at.hash != head["hash"]:
        return [f"ledger: record {head['records']} is not the one that the manifest was signed over"]
    return []
