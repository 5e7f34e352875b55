"""Puts a backup of a ledger back: what was spent after it is lost to the records, and charged all the same.

Answers that were published stay published, so the account must pay for them though nothing is known of them. Each
account gets one charge, a question that was begun and never answered, of what its people have lost since the backup at
most: what somebody states, which must cover the releases that were published since, or else all that the cap leaves.
The charge is part of the chain, so later statements about the account count it.

Everything is done to a copy in a file of SQLite, whatever the databases are, and put in place at the end. On PostgreSQL
a backup is a database that holds it, because that is what pg_restore makes: often the ledger's own.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import Connection, Table, delete, insert, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import ProgrammingError

from synth_core.documents import read_json
from synth_core.errors import LedgerError
from synth_core.files import MAX_PUBLISHED, atomic_write, explain
from synth_core.ledger.chain import PORTION, all_rows, hashes_at
from synth_core.ledger.database import Database, copy_database, database_file, parse_url
from synth_core.ledger.head import head_places, head_text, kept_heads, published_heads
from synth_core.ledger.rows import Row
from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.ledger.tables import ANSWERS, RECORDS
from synth_core.ledger.verbs import no_fault
from synth_core.privacy.accounts import Balance, Head, Runner, SpendRequest
from synth_core.privacy.answer_form import AnswerForm, AnswerKind, Block, fingerprint
from synth_core.privacy.budget import MARGIN, Mechanism, mu2_of

LOST = "lost"
"""Folder of a workspace for releases that the restored ledger knows nothing of; no zone, since nothing reads it."""
STEP, LOST_AFTER = "restore", "lost-after-"
"""The step of a charge for what is lost, and how its release's name begins, before the last record that is not."""


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
    workspace: Path, backup: Path | str, *, lost: Mapping[str, float], reason: str, actor: str, url: str | None = None
) -> Restored:
    """Put a backup in the place of a workspace's ledger, and charge for what came after it.

    Refused or killed before the end, nothing changed; killed at the end, it is done again.

    Args:
        workspace: The folder of the ledger and the zones.
        backup: A SQLite file that was the ledger once, or the URL of a database that holds it: for a ledger in
            PostgreSQL the database into which a dump was restored, its own or another.
        lost: For a data set the largest epsilon that can have been spent since the backup. An account that is not named
            is charged all that its cap leaves.
        reason: Who decided it and why; it becomes part of the chain.
        actor: Who restores.
        url: Another ledger than SYNTH_LEDGER_URL or the workspace's own file.

    Returns:
        What the ledger holds now.

    Raises:
        LedgerError: The backup is not sound, an epsilon does not cover what was published since, or the database's role
            may not replace what is there.
    """
    where = parse_url(ledger_url(workspace, url))
    place = database_file(where)
    if not reason.strip():
        raise LedgerError("a restored ledger needs a reason; say who decided what is taken for lost")
    heads = head_places(place, workspace)
    try:
        with TemporaryDirectory(prefix=".restore-", dir=place.parent if place else workspace) as folder:
            copy = _copied(backup, Path(folder))
            ledger = SqlLedger(f"sqlite:///{copy}", head_paths=(head := Path(folder) / "head",))
            _require_sound(ledger, _named(backup), head)
            since = _published_since(workspace, ledger)
            if not (ledger.head() in kept_heads(heads)[0] and _has_charged(ledger, since)):
                _charge(ledger, _costs(workspace, since), since, lost=lost, reason=reason, actor=actor)
            balances, end = [ledger.balance(account.dataset) for account in ledger.accounts()], ledger.head()
            if place:
                _put(copy, place, dict.fromkeys(heads, end))
            else:
                _send(ledger, where, dict.fromkeys(heads, end))
            _move(workspace, tuple(since))
    except OSError as error:
        raise LedgerError(f"{error.filename or _named(backup)}: {explain(error)}") from None
    return Restored(head=end, balances=balances, moved=tuple(since))


def _named(backup: Path | str) -> str:
    """The backup as problems name it: without a password."""
    return parse_url(str(backup)).render_as_string(hide_password=True) if "://" in str(backup) else str(backup)


def _copied(backup: Path | str, folder: Path) -> Path:
    """The backup as a file of SQLite in a folder."""
    where = parse_url(str(backup)) if "://" in str(backup) else None
    file = Path(backup) if where is None else database_file(where)
    if file:
        return copy_database(file, folder)
    copy = folder / "ledger.sqlite"
    source, target = SqlLedger(str(backup), head_paths=()), Database(parse_url(f"sqlite:///{copy}"), fault=no_fault)
    with source.chain.unchecked() as read:

        def work(connection: Connection) -> None:
            for table in (RECORDS, ANSWERS):
                _append(connection, table, all_rows(read, table))

        target.write(work, fault=no_fault)
    return copy


def _append(connection: Connection, table: Table, rows: Iterator[Row]) -> None:
    while portion := [_plain(row) for row in islice(rows, PORTION)]:
        connection.execute(insert(table), portion)


def _plain(row: Row) -> Row:
    """A row whose answer is bytes, whatever a driver makes of it."""
    return row | {"vector": bytes(row["vector"])} if "vector" in row else row


def _send(ledger: SqlLedger, where: URL, heads: Mapping[Path, Head]) -> None:
    """Make a database hold what a ledger holds, in one transaction, and keep its end.

    Where it holds the beginning of that, the rest is appended, which every role may that releases run under. Heads are
    kept before the commit: a chain that is behind its head is restored again, one ahead of it would be charged twice.
    """
    before = {path: path.read_bytes() for path in heads if path.exists()}

    def work(connection: Connection) -> None:
        with ledger.chain.unchecked() as copy:
            rest = {table: _rest(all_rows(copy, table), all_rows(connection, table)) for table in (RECORDS, ANSWERS)}
            with nullcontext() if all(rest.values()) else _emptied(connection):
                for table, rows in rest.items():
                    _append(connection, table, rows if rows and all(rest.values()) else all_rows(copy, table))
        _keep(heads)

    try:
        Database(where, fault=no_fault).write(work, fault=no_fault)
    except BaseException:
        for path, content in before.items():
            with atomic_write(path) as draft:
                draft.write_bytes(content)
        raise


def _rest(rows: Iterator[Row], first: Iterator[Row]) -> Iterator[Row] | None:
    """What is left of the rows after others that they begin with; None if they do not."""
    for row in first:
        if _plain(row) != next(rows, None):
            return None
    return rows


@contextmanager
def _emptied(connection: Connection) -> Iterator[None]:
    """A block in which tables that only grow have been emptied, and may be filled; their owner alone may do that."""
    tables = (RECORDS, ANSWERS)
    try:
        for table in tables:
            connection.execute(text(f"ALTER TABLE {table.name} DISABLE TRIGGER USER"))
    except ProgrammingError:
        raise LedgerError(
            "the ledger's database holds other records than the backup, and only the owner of its tables may replace "
            "them; name that role in --ledger, or restore the backup there first"
        ) from None
    for table in tables:
        connection.execute(delete(table))
    yield
    for table in tables:
        connection.execute(text(f"ALTER TABLE {table.name} ENABLE TRIGGER USER"))


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
    _keep(heads)


def _keep(heads: Mapping[Path, Head]) -> None:
    for path, head in heads.items():
        with atomic_write(path) as draft:
            draft.write_text(head_text(head))


def _require_sound(ledger: SqlLedger, backup: str, head: Path) -> None:
    """Refuse a backup that is no ledger, or was changed; its own end is taken for its head."""
    head.write_text(head_text(SqlLedger(str(ledger.chain.url), head_paths=()).head()))
    for problem in ledger.verify():
        raise LedgerError(f"{backup} cannot be restored: {problem}; use another backup")


def _published_since(workspace: Path, ledger: SqlLedger) -> dict[str, Head]:
    """The published releases whose manifests know a record that the backup does not have, with that record."""
    heads = published_heads(workspace)
    with ledger.chain.unchecked() as connection:
        hashes = hashes_at(connection, {head.records for head in heads.values()})
    return {name: head for name, head in heads.items() if hashes.get(head.records) != head.hash}


def _costs(workspace: Path, releases: Iterable[str]) -> dict[str, Fraction]:
    """What the manifests of these releases say that they cost, by data set."""
    costs: defaultdict[str, Fraction] = defaultdict(Fraction)
    for name in releases:
        manifest = read_json(workspace / "public" / name / "manifest.json", limit=MAX_PUBLISHED)
        costs[manifest["dataset"]] += sum(Fraction(step["mu2"]) for step in manifest["guarantee"]["steps"].values())
    return dict(costs)


def _has_charged(ledger: SqlLedger, since: Mapping[str, Head]) -> bool:
    """Whether the ledger ends with the charges for these very releases, which were not moved: it was killed then."""
    last = ledger.head().records
    record = ledger.records_from(last)[0] if since and last else None
    if record is None or record.step != STEP or record.form is None:
        return False
    number = int(record.release.removeprefix(LOST_AFTER))
    return record.form.fingerprint == _fingerprint(record.dataset, number, since)


def _fingerprint(dataset: str, number: int, since: Mapping[str, Head]) -> str:
    """What a charge is for: all after this record, these releases included."""
    return fingerprint(STEP, [dataset, number, *sorted(head.hash for head in since.values())])


def _charge(
    ledger: SqlLedger,
    known: Mapping[str, Fraction],
    since: Mapping[str, Head],
    *,
    lost: Mapping[str, float],
    reason: str,
    actor: str,
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
            release=f"{LOST_AFTER}{number}",
            step=STEP,
            purpose=f"records after {number} are lost: {reason.strip()}",
            mechanism=Mechanism("discrete_gaussian", Fraction(1), scale, 1),
            form=AnswerForm(
                fingerprint=_fingerprint(name, number, since), blocks=(Block(kind=AnswerKind.SCORES, shape=(1,)),)
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
