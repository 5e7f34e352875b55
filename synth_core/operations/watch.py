"""Looks after accounts and ledger between releases: records and tells when a cap is near or the chain is broken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from fractions import Fraction

from synth_core.errors import LedgerError
from synth_core.operations.events import Event, Kind, append
from synth_core.operations.notify import tell
from synth_core.operations.office import Office
from synth_core.privacy.budget import epsilon_of
from synth_core.privacy.ledger import Balance

LEVELS = (0.95, 0.80)
"""Shares of the cap, in mu^2, at which people are called; each once for a cap."""


def look(office: Office) -> list[Event]:
    """What is new since the last look, recorded in the event log and told; safe to call as often as one likes."""
    known = office.events()
    status = office.chain_status(fresh=timedelta(0))
    news = _chain_news(status.problems, known)
    with suppress(LedgerError):  # a chain that cannot be folded is in the news already
        news += cap_news(office.balances(), known)
    for event in news:
        append(office.workspace, event)
        tell(event)
    return news


def cap_news(balances: Iterable[Balance], known: Sequence[Event]) -> list[Event]:
    """Accounts that have reached a level of their cap for the first time."""
    news = []
    for balance in balances:
        level = next((level for level in LEVELS if committed_share(balance) >= level), None)
        if level is not None and not _told(balance, level, known):
            news.append(_cap_event(balance, level))
    return news


def committed_share(balance: Balance) -> float:
    """What is spent and set aside as a share of the cap, in mu^2, which adds up."""
    return float(1 - balance.remaining_mu2 / balance.cap_mu2)


def _told(balance: Balance, level: float, known: Sequence[Event]) -> bool:
    account = balance.account
    return any(
        event.kind is Kind.CAP
        and event.dataset == account.dataset
        and event.cap_epsilon == account.cap_epsilon
        and (event.level or 0) >= level
        for event in known
    )


def _cap_event(balance: Balance, level: float) -> Event:
    account = balance.account
    left = epsilon_of(max(balance.remaining_mu2, Fraction(0)), account.delta)
    return Event(
        kind=Kind.CAP,
        dataset=account.dataset,
        level=level,
        cap_epsilon=account.cap_epsilon,
        text=f"{committed_share(balance):.0%} of the cap of epsilon {account.cap_epsilon:g} "
        f"(delta {account.delta:g}) is spent or set aside; a release of up to epsilon {left:.2f} still fits",
    )


def _chain_news(problems: Sequence[str], known: Sequence[Event]) -> list[Event]:
    if not problems:
        return []
    text = f"{problems[0]} ({len(problems)} found); stop all releases and run: synth ledger verify"
    alarms = [event.text for event in known if event.kind is Kind.CHAIN]
    return [] if alarms[-1:] == [text] else [Event(kind=Kind.CHAIN, text=text)]
