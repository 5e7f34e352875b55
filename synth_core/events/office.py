"""The one place where a workspace's ledger, releases and events are read for pages, metrics and alarms."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from synth_core.errors import LedgerError, SpecError
from synth_core.events.journal import Event, read
from synth_core.ledger.database import database_file, parse_url
from synth_core.ledger.sql import SqlLedger, ledger_url, open_ledger
from synth_core.privacy.accounts import Balance
from synth_core.release.paths import ReleasePaths
from synth_core.release.spec import NAME

FRESH = timedelta(minutes=1)
"""For so long the result of a verification is shown again: it re-hashes the whole chain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainStatus:
    """Whether the ledger is as it was written, and when that was last checked."""

    records: int
    head: str
    problems: tuple[str, ...]
    checked: datetime

    @property
    def sound(self) -> bool:
        """Whether nothing was found."""
        return not self.problems


class Office:
    """A workspace opened for reading; it keeps the ledger's book and the last verification between requests."""

    def __init__(self, workspace: Path, *, url: str | None = None) -> None:
        self.workspace = workspace
        self._url = ledger_url(workspace, url)
        self._opened: tuple[int, SqlLedger] | None = None
        self._status: ChainStatus | None = None
        self._lock = threading.Lock()

    @property
    def ledger(self) -> SqlLedger:
        """The ledger, opened anew if its file was replaced; unlike a release, someone who looks does not create one."""
        file = database_file(parse_url(self._url))
        if file and not file.exists():
            raise LedgerError(
                "there is no ledger yet; declare an account with: synth ledger account, "
                "or set SYNTH_WORKSPACE or SYNTH_LEDGER_URL"
            )
        identity = file.stat().st_ino if file else 0
        if self._opened is None or self._opened[0] != identity:
            self._opened = identity, open_ledger(self.workspace, self._url)
        return self._opened[1]

    def balances(self) -> list[Balance]:
        """All accounts with what they may spend, have spent and have set aside."""
        ledger = self.ledger
        return [ledger.balance(account.dataset) for account in ledger.accounts()]

    def chain_status(self, *, fresh: timedelta = FRESH) -> ChainStatus:
        """The last verification, or a new one if that is older than `fresh`."""
        with self._lock:
            now = datetime.now(UTC)
            if self._status is None or now - self._status.checked >= fresh:
                self._status = self._verified(now)
            return self._status

    def _verified(self, now: datetime) -> ChainStatus:
        problems = list(self.ledger.verify())
        try:
            head = self.ledger.head()
        except LedgerError as broken:
            return ChainStatus(records=0, head="", problems=(*problems, str(broken)), checked=now)
        return ChainStatus(records=head.records, head=head.hash, problems=tuple(problems), checked=now)

    def events(self) -> list[Event]:
        """The workspace's events, oldest first."""
        return read(self.workspace)

    def paths(self, release: str) -> ReleasePaths:
        """Where a release's files are; a name that is none, such as one with a separator, is refused."""
        if not NAME.match(release):
            raise SpecError("that is not the name of a release; choose one from the list")
        return ReleasePaths(self.workspace, release)

    def manifest(self, release: str) -> dict[str, Any] | None:
        """The manifest of a published release; None before that."""
        paths = self.paths(release)
        if not paths.published:
            return None
        try:
            content: dict[str, Any] = json.loads(paths.manifest.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise SpecError(
                f"the manifest of release {release!r} cannot be read; run: synth verify"
            ) from None
        return content

    def published(self) -> list[dict[str, Any]]:
        """The manifests of all published releases, by name; one that cannot be read is passed over."""
        found = sorted((self.workspace / "public").glob("*/manifest.json"))
        manifests = []
        for path in found:
            try:
                manifests.append(self.manifest(path.parent.name))
            except SpecError:
                continue
        return [manifest for manifest in manifests if manifest]

    def rows(self, manifest: dict[str, Any]) -> int:
        """Number of synthetic records of a published release: a public number, read from the extract's footers."""
        paths = self.paths(manifest["release"])
        shards = tuple(name for name in manifest["artifacts"] if name.endswith(".parquet"))
        return _rows(paths.public, shards, manifest["digest"])


@lru_cache(maxsize=1024)
def _rows(public: Path, shards: tuple[str, ...], _digest: str) -> int:
    """The digest is part of the question, so that a release published anew is counted anew."""
    import pyarrow.parquet as pq

    try:
        return sum(pq.read_metadata(public / name).num_rows for name in shards)
    except OSError:
        return 0
