"""What the pages show: accounts, releases and runs, put together from ledger, manifests and events."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from synth_core.errors import SpecError
from synth_core.events.journal import Event, Kind
from synth_core.events.office import Office, committed_share
from synth_core.ledger.book import cost_by_step, forecast
from synth_core.ledger.groups import group_records, latest_records
from synth_core.privacy.accounts import Account, Balance, Record, State
from synth_core.privacy.budget import epsilon_of, mu_of
from synth_core.release import signing
from synth_core.release.certificate import last_turn, promised_mu2
from synth_core.release.paths import ReleasePaths

T = TypeVar("T")

SPENDING_STEPS = ("score", "select", "fit", "evaluate")
"""Steps that may ask the curator, in the order in which charts stack them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseLine:
    """A release in one line: what it cost, where it stands, who ran it."""

    name: str
    account: Account
    steps: dict[str, Fraction]
    promised_mu2: Fraction  # the larger of what it asked for and what it was charged
    share: float  # of the account's cap, in mu^2
    state: str  # published, under way or ended
    reason: str  # why it ended
    began: datetime
    asked: datetime | None  # when it first reserved a spend
    runs: tuple[tuple[str, str], ...]  # (DAG, run), each once, in order; empty if run by hand

    @property
    def mu2(self) -> Fraction:
        """What all steps together were charged."""
        return sum(self.steps.values(), Fraction(0))

    @property
    def epsilon(self) -> float:
        """What the release promises by itself."""
        return epsilon_of(self.promised_mu2, self.account.delta)

    @property
    def spent(self) -> float:
        """The epsilon that its charges are worth."""
        return epsilon_of(self.mu2, self.account.delta)

    @property
    def mu(self) -> float:
        """The promise in the ledger's currency."""
        return mu_of(self.promised_mu2)

    @property
    def spends(self) -> list[tuple[str, float]]:
        """What each step cost, in mu^2, in the order of the pipeline; steps that cost nothing are left out."""
        ordered = dict.fromkeys([*SPENDING_STEPS, *sorted(self.steps)])
        return [(step, float(self.steps[step])) for step in ordered if self.steps.get(step)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountView:
    """An account with its balance, its forecast and its releases, newest first."""

    balance: Balance
    forecast: str | None
    releases: list[ReleaseLine]
    history: list[Record]  # declaration and changes of the cap, newest first
    course: list[tuple[datetime, float, float]]  # time, committed mu^2, cap mu^2

    @property
    def account(self) -> Account:
        """The declaration."""
        return self.balance.account

    @property
    def committed(self) -> float:
        """Share of the cap that is spent or set aside."""
        return committed_share(self.balance)

    @property
    def spent(self) -> float:
        """Share of the cap that is spent."""
        return float(self.balance.charged_mu2 / self.balance.cap_mu2)

    @property
    def others(self) -> list[str]:
        """Accounts that hold rows of the same people."""
        return [name for name in self.balance.together if name != self.account.dataset]

    def epsilon(self, part: str) -> float:
        """What a part of the balance (charged, held, remaining) is worth by itself."""
        return epsilon_of(max(getattr(self.balance, f"{part}_mu2"), 0), self.account.delta)


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A published file with the checksum that the manifest states."""

    name: str
    checksum: str
    size: int | None  # in bytes; None if the file is not there


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseView:
    """A release in full."""

    line: ReleaseLine
    manifest: dict[str, Any] | None
    rows: int | None
    artifacts: list[Artifact]
    signer: str  # fingerprint of the key beside the manifest
    timings: list[Event]
    troubles: list[Event]
    has_report: bool
    has_explorer: bool
    has_internal_report: bool

    @property
    def shards(self) -> int:
        """Number of files that the synthetic table is split into."""
        return sum(artifact.name.endswith(".parquet") for artifact in self.artifacts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """What lists and charts need of the records of a release, or of those of an account itself: little of each."""

    line: ReleaseLine | None  # None for an account's own records
    last: int  # number of the last record
    lines: int  # of the records page
    spends: int  # and other entries, each in the state it is in
    steps: frozenset[str]
    states: frozenset[str]
    runs: frozenset[tuple[str, str]]
    caps: tuple[Record, ...]
    points: tuple[tuple[int, datetime, float, float], ...]  # record, time, committed mu^2, cap mu^2


POINTS = 100
"""About how many points of a release the course of its account has while there are few releases."""


def digest(records: Sequence[Record]) -> Digest:
    """Sum up all records of a release, or all of an account's own."""
    entries = latest_records(records)
    return Digest(
        line=_line(records) if records[0].release else None,
        last=records[-1].id,
        lines=len(group_records(entries)),
        spends=len(entries),
        steps=frozenset(record.step for record in entries),
        states=frozenset(record.state.value for record in entries),
        runs=frozenset((record.runner.dag, record.runner.run) for record in entries),
        caps=tuple(record for record in records if record.state in (State.ACCOUNT, State.CAP)),
        points=tuple(_thinned([_point(record) for record in records], POINTS)),
    )


def account_view(office: Office, dataset: str) -> AccountView:
    """One account."""
    balance = office.ledger.balance(dataset)
    own = [known for (name, _), known in office.by_release(digest).items() if name == dataset]
    lines = _newest_first(own)
    spent = sorted((line.asked, line.mu2) for line in lines if line.asked and line.mu2)
    return AccountView(
        balance=balance,
        forecast=forecast(spent, balance),
        releases=lines,
        history=[record for known in own for record in known.caps][::-1],
        course=_course(own),
    )


def account_views(office: Office) -> list[AccountView]:
    """All accounts, those with the least room first."""
    views = [account_view(office, account.dataset) for account in office.ledger.accounts()]
    return sorted(views, key=lambda view: (-view.committed, view.account.dataset))


def release_lines(office: Office, *, dag: str = "", run: str | None = None) -> list[ReleaseLine]:
    """All releases, or those that a DAG or one run of it has spent for, newest first."""
    return _newest_first(
        known
        for known in office.by_release(digest).values()
        if not dag or any(its == dag and run in (None, one) for its, one in known.runs)
    )


def _newest_first(digests: Iterable[Digest]) -> list[ReleaseLine]:
    return sorted((one.line for one in digests if one.line), key=lambda line: line.began, reverse=True)


def release_view(office: Office, release: str) -> ReleaseView:
    """One release."""
    paths, manifest = office.paths(release), office.manifest(release)
    records = office.ledger.records(release=release)
    if not records:
        raise SpecError("the ledger knows no release of that name; choose one from the list")
    events = [event for event in office.events() if event.release == release]
    return ReleaseView(
        line=_line(records),
        manifest=manifest,
        rows=office.rows(manifest) if manifest else None,
        artifacts=_artifacts(paths.public, manifest),
        signer=_signer(paths) if manifest else "",
        timings=[event for event in events if event.kind is Kind.STEP],
        troubles=[event for event in events if event.kind is not Kind.STEP][::-1],
        has_report=bool(manifest) and os.access(paths.public_report, os.R_OK),
        has_explorer=bool(manifest) and os.access(paths.explorer, os.R_OK),
        has_internal_report=os.access(paths.internal_report, os.R_OK),
    )


def _line(records: Sequence[Record]) -> ReleaseLine:
    """The line of the release that all these records belong to."""
    account, steps = records[-1].account, {step: mu2 for step, mu2 in cost_by_step(records).items() if step}
    state, reason = _state(records)
    runs = dict.fromkeys((record.runner.dag, record.runner.run) for record in records if record.runner.run)
    return ReleaseLine(
        name=records[0].release,
        account=account,
        steps=steps,
        promised_mu2=promised_mu2(records),
        share=float(sum(steps.values(), Fraction(0)) / records[-1].cap_mu2),
        state=state,
        reason=reason,
        began=records[0].at,
        asked=next((record.at for record in records if record.state is State.RESERVED), None),
        runs=tuple(runs),
    )


def _state(records: Sequence[Record]) -> tuple[str, str]:
    """Where the release stands, by its last hold or the end of it."""
    turn = last_turn(records)
    if turn is None or turn.state is State.HELD:
        return "under way", ""
    return ("published", "") if turn.reason == "published" else ("ended", turn.reason)


def _course(digests: Sequence[Digest]) -> list[tuple[datetime, float, float]]:
    """How the account went, as far as points are kept, and as it is now: of many releases each has but few."""
    few = max(1, 10 * POINTS // max(1, len(digests)))
    points = [point[1:] for point in sorted(point for one in digests for point in _thinned(one.points, few))]
    return [*points, (datetime.now(UTC), *points[-1][1:])] if points else []


def _point(record: Record) -> tuple[int, datetime, float, float]:
    return record.id, record.at, float(record.cap_mu2 - record.remaining_mu2), float(record.cap_mu2)


def _thinned(points: Sequence[T], number: int) -> Sequence[T]:
    """About `number` of the points, evenly spaced, the last one always among them."""
    return points if len(points) <= number else [*points[: -1 : -(-len(points) // number)], points[-1]]


def _artifacts(public: Path, manifest: dict[str, Any] | None) -> list[Artifact]:
    return [
        Artifact(name=name, checksum=checksum, size=_size(public / name))
        for name, checksum in (manifest or {}).get("artifacts", {}).items()
    ]


def _signer(paths: ReleasePaths) -> str:
    try:
        return signing.fingerprint(paths.public_key.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
