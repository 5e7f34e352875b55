"""The durable ledger: budget reserved before data is read, one stored answer for a key, all in a hash chain."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Select, exists, select, text

from synth_core.errors import LedgerError
from synth_core.files import atomic_write, explain
from synth_core.ledger.chain import Chain, all_rows, hashes_at, last_record
from synth_core.ledger.database import database_file, parse_url
from synth_core.ledger.head import KEPT, head_places, kept_heads
from synth_core.ledger.rows import canonical, record_of, show_rows
from synth_core.ledger.tables import ANSWERS, ASKED, RECORDS
from synth_core.ledger.verbs import Fault, LedgerVerbs, no_fault
from synth_core.ledger.verify import problems
from synth_core.privacy.accounts import Head, Record
from synth_core.settings import Settings


def ledger_url(workspace: Path, url: str | None) -> str:
    """Where the ledger is: as asked, else as SYNTH_LEDGER_URL says, else a file in the workspace."""
    return url or Settings.from_environment().ledger_url or f"sqlite:///{workspace.resolve() / 'ledger.sqlite'}"


def open_ledger(
    workspace: Path | None,
    url: str | None = None,
    *,
    create: bool = False,
    compare: bool = True,
    dataset: str = "NAME",
) -> SqlLedger:
    """Open the ledger that pays for a workspace's releases; it must have every record that their manifests know.

    Args:
        workspace: the folder with the published releases; None takes the folder of the ledger that `url` names.
        url: another ledger than SYNTH_LEDGER_URL or the workspace's own file.
        create: make the ledger, and its folder, if there is none; without it a mistyped folder is noticed.
        compare: compare it with heads that are kept elsewhere; without, it is read as it is, also if rolled back.
        dataset: the account that is looked for; a refusal says how to declare it.

    Raises:
        LedgerError: there is no such ledger, or its folder cannot be made.
    """
    where = ledger_url(workspace or Path(), url)
    file = database_file(parse_url(where))
    home = workspace or (file.parent if file else None)
    folder = file.parent if file else home
    if create and folder:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LedgerError(f"{folder} cannot be created: {explain(error)}") from None
    elif file and not file.exists():
        raise LedgerError(
            f"there is no ledger at {file}; name its folder with --workspace or SYNTH_WORKSPACE, or its database with "
            f"SYNTH_LEDGER_URL, or declare the account first: synth ledger account {dataset} --epsilon CAP "
            f"--delta DELTA --largest-n N --workspace {home}"
        )
    return SqlLedger(where, workspace=home) if compare else SqlLedger(where, head_paths=())


class SqlLedger(LedgerVerbs):
    """A ledger in a file of SQLite or in PostgreSQL; safe among threads, processes and machines.

    `head_paths` are the files that keep the chain's head after each commit, `head_places` unless asked otherwise;
    without any, nothing is compared. Manifests of the `workspace` know heads too. `fault` is called with "verb:point"
    wherever a crash must do no harm. An instance may be pickled, as its URL, and used after a fork.
    """

    chain: Chain

    def __init__(
        self,
        url: str,
        *,
        head_paths: Sequence[Path] | None = None,
        workspace: Path | None = None,
        fault: Fault | None = None,
    ) -> None:
        parsed = parse_url(url)
        places = head_places(database_file(parsed), workspace) if head_paths is None else tuple(head_paths)
        self.chain = Chain(parsed, head_paths=places, workspace=workspace, fault=fault or no_fault)

    def __repr__(self) -> str:
        return f"SqlLedger({self.chain.url.render_as_string(hide_password=True)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        url = self.chain.url
        heads, workspace = self.chain.head_paths, self.chain.workspace
        return partial(SqlLedger, head_paths=heads, workspace=workspace), (url.render_as_string(hide_password=False),)

    def records(self, *, dataset: str | Collection[str] | None = None, release: str | None = None) -> list[Record]:
        """The chain, or the records of one or several data sets or of a release, oldest first."""
        query = select(RECORDS).order_by(RECORDS.c.id)
        if dataset is not None:
            names = [dataset] if isinstance(dataset, str) else list(dataset)
            query = query.where(RECORDS.c.dataset.in_(names))
        if release is not None:
            query = query.where(RECORDS.c.release == release)
        return self._read(query)

    def records_from(self, number: int, *, most: int | None = None) -> list[Record]:
        """The chain from the record of this number on; at most the first `most` of them."""
        return self._read(select(RECORDS).where(RECORDS.c.id >= number).order_by(RECORDS.c.id).limit(most))

    def end(self) -> Head:
        """The chain's end as it is stored, compared with nothing."""
        with self.chain.unchecked() as connection:
            last = last_record(connection)
            return Head(records=last, hash=hashes_at(connection, [last]).get(last, ""))

    def releases_from(self, number: int) -> list[tuple[str, str]]:
        """Data set and name of each release with a record of this number or a later one; "" for an account's own."""
        query = select(RECORDS.c.dataset, RECORDS.c.release).where(RECORDS.c.id >= number).distinct()
        with self.chain.unchecked() as connection:
            return [(row.dataset, row.release) for row in connection.execute(query)]

    def standing_from(self, number: int, *, most: int) -> list[Record]:
        """So many of the records from this number on that say where a spend stands, or that are no spends."""
        later = RECORDS.alias("later")
        of_it = (later.c.key == RECORDS.c.key, later.c.attempt == RECORDS.c.attempt, later.c.id > RECORDS.c.id)
        replaced = exists().where(*of_it, text(f"later.{ASKED}"))  # said in words, so that the index of attempts serves
        query = select(RECORDS).where(RECORDS.c.id >= number, ~replaced)
        return self._read(query.order_by(RECORDS.c.id).limit(most))

    def _read(self, query: Select[Any]) -> list[Record]:
        with self.chain.unchecked() as connection:
            return [record_of(dict(row)) for row in connection.execute(query).mappings()]

    def verify(self, head: Head | None = None) -> list[str]:
        """Everything that is wrong with the ledger, in words; an empty list means that it is as written.

        It is compared with a `head` that was kept elsewhere, the head files and the manifests of the workspace.
        """
        heads = self.chain.known_heads(anew=True)
        heads[KEPT] += [head] if head else []
        with self.chain.unchecked() as connection:
            found = kept_heads(self.chain.head_paths)[1] if last_record(connection) else []
            return found + problems(all_rows(connection, RECORDS), all_rows(connection, ANSWERS), heads)

    def objections(self) -> list[str]:
        """Why nothing can be spent from this ledger, in words; an empty list if it lacks no record that is known."""
        return self.chain.objections()

    def require_whole(self) -> None:
        """Look for records that are missing before anything is begun.

        Raises:
            LedgerError: the ledger was rolled back or rewritten, or has records but no head.
        """
        self.chain.write("require_whole", lambda _: None)

    def export(self, path: Path, *, internal: bool = False) -> None:
        """Write the whole chain as JSON lines, each with every column of its record.

        Args:
            path: The file to write.
            internal: Keep the digests of snapshots, which the hashes cover; such a file must not leave the agency.

        Raises:
            LedgerError: If the file cannot be written.
        """
        try:
            with self.chain.unchecked() as connection, atomic_write(path) as draft, draft.open("w") as lines:
                rows = all_rows(connection, RECORDS)
                lines.writelines(canonical(row) + "\n" for row in (rows if internal else show_rows(rows)))
        except OSError as error:
            raise LedgerError(f"{path} cannot be written: {explain(error)}") from None
