"""The one place where a workspace's ledger, releases and events are read for pages, metrics and alarms.

`look` records and reports when a cap or a limit is near, or the chain is broken.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

from synth_core.documents import read_json
from synth_core.errors import LedgerError, SpecError
from synth_core.events.journal import Event, Kind, append, read_from
from synth_core.events.notices import notify
from synth_core.events.tally import EventTally, LedgerTally
from synth_core.files import MAX_PUBLISHED
from synth_core.ledger.database import database_file, parse_url
from synth_core.ledger.sql import SqlLedger, ledger_url, open_ledger
from synth_core.names import NAME
from synth_core.privacy.accounts import Balance, Head, Record
from synth_core.privacy.budget import epsilon_of
from synth_core.privacy.wording import exact_text, left_text, loss_text
from synth_core.release.paths import ReleasePaths

FRESH = timedelta(minutes=1)
"""Time for which the result of a verification is shown again."""
PATIENCE = 100
"""Least ratio of the time between two verifications to the time that one takes."""

NEWEST = 50
"""Published releases that metrics speak of: a monitor that keeps series of all releases for ever is of no use."""
NOTHING = Head(records=0, hash="")
"""Where a look begins that has seen no record."""

T = TypeVar("T")

LEVELS = (0.95, 0.80)
"""Shares of the cap, in mu^2, at which people are called; each once for a cap."""

REFUSAL_LEVELS = (1.0, 0.5)
"""Shares of the limit of refusals at which people are called; each once for a limit."""


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
        self._verifying = timedelta(0)
        self._releases: tuple[SqlLedger | None, Head, dict[tuple[str, str], Any]] = (None, NOTHING, {})
        self._published: tuple[int, list[str]] = (0, [])
        self._events: tuple[int, list[Event]] = (0, [])
        self._entries: tuple[SqlLedger | None, LedgerTally] = (None, LedgerTally())
        self._counted: tuple[list[Event], EventTally] = ([], EventTally())
        self._lock = threading.Lock()

    @property
    def ledger(self) -> SqlLedger:
        """The ledger, opened anew if its file was replaced; unlike a release, someone who looks does not create one."""
        file = database_file(parse_url(self._url))
        identity = file.stat().st_ino if file and file.exists() else 0
        if self._opened is None or self._opened[0] != identity:
            self._opened = identity, open_ledger(self.workspace, self._url)
        return self._opened[1]

    def balances(self) -> list[Balance]:
        """All accounts with what they may spend, have spent and have set aside."""
        ledger = self.ledger
        return [ledger.balance(account.dataset) for account in ledger.accounts()]

    def by_release(self, make: Callable[[list[Record]], T]) -> dict[tuple[str, str], T]:
        """What is made of the records of each release, by data set and name; made anew only where there are new ones.

        An account's own records have the name "". The records of one release are in memory at a time, and none is kept.

        Args:
            make: Always the same function, which is called with all records of one release, oldest first.
        """
        with self._lock:
            ledger, seen, known = self._releases
            if ledger is not self.ledger or not self._goes_on(seen):
                ledger, seen, known = self.ledger, NOTHING, {}
            head = ledger.end()
            for dataset, release in ledger.releases_from(seen.records + 1) if head != seen else ():
                known[dataset, release] = make(ledger.records(dataset=dataset, release=release))
            self._releases = ledger, head, known
            return known

    def _goes_on(self, seen: Head) -> bool:
        """Whether the chain is still the one of which this record was seen."""
        last = self.ledger.records_from(seen.records, most=1) if seen.records else []
        return not seen.records or [(one.id, one.hash) for one in last] == [(seen.records, seen.hash)]

    def entries(self) -> dict[tuple[str, str], int]:
        """Number of spends and other entries by data set and state; only new records are read, and none is kept."""
        with self._lock:
            ledger, tally = self.ledger, self._entries[1]
            if self._entries[0] is not ledger or not tally.catch_up(ledger):
                tally = LedgerTally()
                tally.catch_up(ledger)
            self._entries = ledger, tally
            return {place: number for place, number in tally.entries.items() if number}

    def steps(self) -> EventTally:
        """How many steps finished, failed or were refused; only new events are counted."""
        events = self.events()
        with self._lock:
            known, tally = self._counted
            if known[:1] != events[:1] or tally.taken > len(events):
                tally = EventTally()
            tally.catch_up(events)
            self._counted = events[:1], tally
            return tally

    def chain_status(self, *, fresh: timedelta = FRESH) -> ChainStatus:
        """The last verification, or a new one if that is older than `fresh`.

        It re-hashes the whole chain. Unless `fresh` is 0, that takes at most a hundredth of the time, however long the
        chain is.
        """
        with self._lock:
            now = datetime.now(UTC)
            pause = max(fresh, PATIENCE * self._verifying) if fresh else fresh
            if self._status is None or now - self._status.checked >= pause:
                self._status = self._verified(now)
                self._verifying = datetime.now(UTC) - now
            return self._status

    def _verified(self, now: datetime) -> ChainStatus:
        problems = list(self.ledger.verify())
        try:
            head = self.ledger.head()
        except LedgerError as broken:
            return ChainStatus(records=0, head="", problems=(*problems, str(broken)), checked=now)
        return ChainStatus(records=head.records, head=head.hash, problems=tuple(problems), checked=now)

    def events(self) -> list[Event]:
        """The workspace's events, oldest first; what was read before is not read again."""
        with self._lock:
            end, new = read_from(self.workspace, self._events[0])
            if end < self._events[0]:
                self._events = end, new
            else:
                self._events[1].extend(new)
                self._events = end, self._events[1]
            return self._events[1]

    def paths(self, release: str) -> ReleasePaths:
        """Where a release's files are; a name that is none, such as one with a separator, is refused."""
        if not NAME.fullmatch(release):
            raise SpecError("that is not the name of a release; choose one from the list")
        return ReleasePaths(self.workspace, release)

    def manifest(self, release: str) -> dict[str, Any] | None:
        """The manifest of a published release; None before that."""
        paths = self.paths(release)
        if not paths.published:
            return None
        try:
            state = paths.manifest.stat()
            return _manifest(paths.manifest, state.st_ino, state.st_mtime_ns)
        except (OSError, ValueError):
            raise SpecError(f"the manifest of release {release!r} cannot be read; run: synth verify") from None

    def published(self) -> list[dict[str, Any]]:
        """The manifests of the releases that were published last, by name; one that cannot be read is passed over."""
        manifests = []
        for name in sorted(self._last_published()):
            try:
                manifests.append(self.manifest(name))
            except SpecError:
                continue
        return [manifest for manifest in manifests if manifest]

    def _last_published(self) -> list[str]:
        """Names of the newest releases; the folder is read again where a release was added to it or taken away."""
        public = self.workspace / "public"
        changed = public.stat().st_mtime_ns if public.is_dir() else 0
        if changed != self._published[0]:
            times = {path.parent.name: path.stat().st_mtime for path in public.glob("*/manifest.json")}
            self._published = changed, sorted(times, key=times.__getitem__)[-NEWEST:]
        return self._published[1]

    def rows(self, manifest: dict[str, Any]) -> int:
        """Number of synthetic records of a published release: a public number, read from the extract's footers."""
        paths = self.paths(manifest["release"])
        names: Iterable[str] = manifest["artifacts"]  # replicate tables and noisy answers are Parquet files too
        shards = tuple(name for name in names if name.startswith("extract/") and name.endswith(".parquet"))
        return _rows(paths.public, shards, manifest["digest"])


@lru_cache(maxsize=1024)
def _manifest(path: Path, _file: int, _written: int) -> dict[str, Any]:
    """File and time are part of the question, so that a manifest that was put back is read anew."""
    content: dict[str, Any] = read_json(path, limit=MAX_PUBLISHED)
    return content


@lru_cache(maxsize=1024)
def _rows(public: Path, shards: tuple[str, ...], _digest: str) -> int:
    """The digest is part of the question, so that a release published anew is counted anew."""
    import pyarrow.parquet as pq

    try:
        return sum(pq.read_metadata(public / name).num_rows for name in shards)
    except (OSError, ValueError):  # a damaged file is the business of `synth verify`
        return 0


def look(office: Office) -> list[Event]:
    """What is new since the last look, recorded in the event log and reported; safe to call as often as one likes."""
    known = office.events()
    status = office.chain_status(fresh=timedelta(0))
    news = _chain_news(status.problems, known)
    with suppress(LedgerError):  # a chain that cannot be folded is in the news already
        balances = office.balances()
        news += [*cap_news(balances, known), *refusal_news(balances, known)]
    _publish(office, news)
    return news


def look_at_refusals(office: Office) -> list[Event]:
    """The same for refusals alone, right after one was given; `look` finds what a crash kept this from telling."""
    news: list[Event] = []
    with suppress(LedgerError):
        news = refusal_news(office.balances(), office.events())
    _publish(office, news)
    return news


def _publish(office: Office, news: Sequence[Event]) -> None:
    for event in news:
        append(office.workspace, event)
        notify(event)


def refusal_news(balances: Iterable[Balance], known: Sequence[Event]) -> list[Event]:
    """Accounts that have reached a level of their limit of refusals for the first time."""
    news = []
    for balance in balances:
        name, given, limit = balance.account.dataset, balance.refusals, balance.account.refusal_limit
        same = [one for one in known if one.kind is Kind.LIMIT and (one.dataset, one.limit) == (name, limit)]
        if level := _new_level(REFUSAL_LEVELS, given / limit if limit else 1.0, same):
            text = (
                f"{given} of at most {limit} refusals have depended on the records of {name!r}, and each reveals "
                f"something of them without noise; see who asked: synth ledger show --dataset {quote(name)} --last 0"
            )
            news.append(Event(kind=Kind.LIMIT, dataset=name, level=level, limit=limit, text=text))
    return news


def cap_news(balances: Iterable[Balance], known: Sequence[Event]) -> list[Event]:
    """Accounts that have reached a level of their cap for the first time."""
    news = []
    for balance in balances:
        name, cap, delta = balance.account.dataset, balance.account.cap_epsilon, balance.account.delta
        same = [one for one in known if one.kind is Kind.CAP and (one.dataset, one.cap_epsilon) == (name, cap)]
        if level := _new_level(LEVELS, committed_share(balance), same):
            left = epsilon_of(max(balance.remaining_mu2, Fraction(0)), delta)
            text = (
                f"{loss_text(100 * committed_share(balance), 0)}% of the cap of epsilon {exact_text(cap)} "
                f"(delta {exact_text(delta)}) is spent or set aside; a release of up to epsilon {left_text(left, 2)} "
                "still fits"
            )
            news.append(Event(kind=Kind.CAP, dataset=name, level=level, cap_epsilon=cap, text=text))
    return news


def _new_level(levels: Sequence[float], share: float, known: Sequence[Event]) -> float | None:
    """The highest level that a share has reached; None if there is none, or people were called for it."""
    reached = next((level for level in levels if share >= level), None)
    called = max((event.level or 0 for event in known), default=0)
    return reached if reached is not None and called < reached else None


def committed_share(balance: Balance) -> float:
    """What is spent and set aside as a share of the cap, in mu^2, which adds up."""
    return float(1 - balance.remaining_mu2 / balance.cap_mu2)


def _chain_news(problems: Sequence[str], known: Sequence[Event]) -> list[Event]:
    if not problems:
        return []
    text = f"{problems[0]} ({len(problems)} found); stop all releases and run: synth ledger verify"
    alarms = [event.text for event in known if event.kind is Kind.CHAIN]
    return [] if alarms[-1:] == [text] else [Event(kind=Kind.CHAIN, text=text)]
