"""Puts a backup of a ledger back: what was spent after it is lost to the records, and charged all the same.

Answers that were published stay published, so the account must pay for them though nothing is known of them. Each
account gets one charge, a question that was begun and never answered, of what its people have lost since the backup at
most: what somebody states, which must cover the releases that were published since, or else all that the cap leaves.
The charge is part of the chain, so later statements about the account count it.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

from synth_core.documents import parse_json
from synth_core.errors import LedgerError
from synth_core.files import atomic_write, explain
from synth_core.ledger.database import copy_database, database_file, parse_url
from synth_core.ledger.head import head_places, head_text, published_heads
from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.privacy.accounts import Balance, Head, Runner, SpendRequest
from synth_core.privacy.answer_form import AnswerForm, Block, Kind, fingerprint
from synth_core.privacy.budget import MARGIN, Mechanism, mu2_of

LOST = "lost"
"""Folder of a workspace for releases that the restored ledger knows nothing of; no zone, since nothing reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What a restored ledger holds.

    Attributes:
        head: Its end, the charges for what is lost included.
        balances: Its accounts.
        moved: Names of the releases that were moved out of the public zone.
    """

    head: Head
    balances: list[Balance]
    moved: tuple[str, ...]


def restore_ledger(
    workspace: Path, backup: Path, *, lost: Mapping[str, float], reason: str, actor: str, url: str | None = None
) -> Restored:
    """Put a backup in the place of a workspace's ledger, and charge for what came after it.

    Everything is done to a copy, which takes the ledger's place at the end: refused or killed before, nothing changed.

    Args:
        workspace: The folder of the ledger and the zones.
        backup: A SQLite file that was the ledger once.
        lost: For a data set the largest epsilon that can have been spent since the backup. An account that is not named
            is charged all that its cap leaves.
        reason: Who decided it and why; it becomes part of the chain.
        actor: Who restores.
        url: Another ledger than SYNTH_LEDGER_URL or the workspace's own file.

    Returns:
        What the ledger holds now.

    Raises:
        LedgerError: The backup is not sound, an epsilon does not cover what was published since, or the ledger is no
            file.
    """
    place = database_file(parse_url(ledger_url(workspace, url)))
    if place is None:
        raise LedgerError("a ledger in PostgreSQL is restored by pg_restore; this is for a file of SQLite")
    if not reason.strip():
        raise LedgerError("a restored ledger needs a reason; say who decided what is taken for lost")
    try:
        with TemporaryDirectory(prefix=".restore-", dir=place.parent) as folder:
            copy = copy_database(backup, Path(folder))
            ledger = SqlLedger(f"sqlite:///{copy}", head_paths=(head := Path(folder) / "head",))
            _require_sound(ledger, backup, head)
            since = _published_since(workspace, ledger)
            _charge(ledger, _costs(workspace, since), lost=lost, reason=reason, actor=actor)
            balances, end = [ledger.balance(account.dataset) for account in ledger.accounts()], ledger.head()
            _put(copy, place, dict.fromkeys(head_places(place, workspace), end))
            _move(workspace, since)
    except OSError as error:
        raise LedgerError(f"{error.filename or backup}: {explain(error)}") from None
    return Restored(head=end, balances=balances, moved=since)


def _put(copy: Path, place: Path, heads: Mapping[Path, Head]) -> None:
    """Put a ledger and its heads where they belong; the journal of the one before is no part of it."""
    for journal in ("-wal", "-shm"):
        place.with_name(f"{place.name}{journal}").unlink(missing_ok=True)
    with (
        atomic_write(place) as draft,
        closing(sqlite3.connect(copy)) as made,
        closing(sqlite3.connect(draft)) as target,
    ):
        made.backup(target)
    for path, head in heads.items():
        with atomic_write(path) as draft:
            draft.write_text(head_text(head))


def _require_sound(ledger: SqlLedger, backup: Path, head: Path) -> None:
    """Refuse a backup that is no ledger, or was changed; its own end is taken for its head."""
    head.write_text(head_text(SqlLedger(str(ledger.chain.url), head_paths=()).head()))
    for problem in ledger.verify():
        raise LedgerError(f"{backup} cannot be restored: {problem}; use another backup")


def _published_since(workspace: Path, ledger: SqlLedger) -> tuple[str, ...]:
    """Names of the published releases whose manifests know a record that the backup does not have."""
    hashes = {record.id: record.hash for record in ledger.records()}
    heads = published_heads(workspace)
    return tuple(name for name, head in heads.items() if hashes.get(head.records) != head.hash)


def _costs(workspace: Path, releases: tuple[str, ...]) -> dict[str, Fraction]:
    """What the manifests of these releases say that they cost, by data set."""
    costs: defaultdict[str, Fraction] = defaultdict(Fraction)
    for name in releases:
        manifest = parse_json((workspace / "public" / name / "manifest.json").read_bytes())
        costs[manifest["dataset"]] += sum(Fraction(step["mu2"]) for step in manifest["guarantee"]["steps"].values())
    return dict(costs)


def _charge(
    ledger: SqlLedger, known: Mapping[str, Fraction], *, lost: Mapping[str, float], reason: str, actor: str
) -> None:
    """Begin one question of each account that is never answered, and so stays charged."""
    accounts = {account.dataset: account for account in ledger.accounts()}
    for name in {*known, *lost} - accounts.keys():
        raise LedgerError(f"the backup has no account of dataset {name!r}; declare it in a copy of the backup first")
    number = ledger.head().records
    for name, account in accounts.items():
        left = price = max(ledger.balance(name).remaining_mu2, Fraction(0))
        if name in lost:
            price = mu2_of(lost[name], account.delta) if lost[name] else Fraction(0)
        elif not left:
            continue  # closed by itself, or by an account that it shares rows with
        if left < known.get(name, 0):
            raise LedgerError(
                f"dataset {name!r}: releases published since cost more than the cap of the backup leaves; raise that "
                "cap in a copy of the backup, as it was raised before, and restore the copy"
            )
        if price < known.get(name, 0):
            raise LedgerError(f"dataset {name!r}: releases published since cost more than the epsilon stated as lost")
        if price > left:
            raise LedgerError(f"dataset {name!r}: more is stated as lost than the cap of the backup leaves; state less")
        if not price:
            continue
        scale = MARGIN**2 * account.rows_per_unit**2 / price
        request = SpendRequest(
            dataset=name,
            snapshot=f"lost, {name}",
            release=f"lost-after-{number}",
            step="restore",
            purpose=f"records after {number} are lost: {reason.strip()}",
            mechanism=Mechanism("discrete_gaussian", Fraction(1), scale, 1),
            form=AnswerForm(
                fingerprint=fingerprint("restore", [name, number]), blocks=(Block(kind=Kind.SCORES, shape=(1,)),)
            ),
            runner=Runner(actor=actor),
        )
        ledger.begin(ledger.reserve(request))


def _move(workspace: Path, releases: tuple[str, ...]) -> None:
    """Move releases out of the public zone: their manifests know records that are lost, and stop every spend."""
    for name in releases:
        target = workspace / LOST / name
        target.parent.mkdir(exist_ok=True)
        (workspace / "public" / name).rename(target)
