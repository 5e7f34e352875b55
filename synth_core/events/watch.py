"""Looks after accounts and ledger: records and tells when a cap or a limit is near or the chain is broken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from fractions import Fraction
from shlex import quote

from synth_core.errors import LedgerError
from synth_core.events.journal import Event, Kind, append
from synth_core.events.notices import tell
from synth_core.events.office import Office
from synth_core.privacy.accounts import Balance
from synth_core.privacy.budget import epsilon_of
from synth_core.privacy.wording import exact_text, left_text, loss_text

LEVELS = (0.95, 0.80)
"""Shares of the cap, in mu^2, at which people are called; each once for a cap."""


REFUSAL_LEVELS = (1.0, 0.5)
"""Shares of the limit of refusals at which people are called; each once for a limit."""


def look(office: Office) -> list[Event]:
    """What is new since the last look, recorded in the event log and told; safe to call as often as one likes."""
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
        tell(event)


def refusal_news(balances: Iterable[Balance], known: Sequence[Event]) -> list[Event]:
    """Accounts that have reached a level of their limit of refusals for the first time."""
    news = []
    for balance in balances:
        name, given, limit = balance.account.dataset, balance.refusals, balance.account.refusal_limit
        level = next((level for level in REFUSAL_LEVELS if given >= level * limit), None)
        told = [
            event.level or 0
            for event in known
            if event.kind is Kind.LIMIT and (event.dataset, event.limit) == (name, limit)
        ]
        if level is not None and max(told, default=0) < level:
            text = (
                f"{given} of at most {limit} refusals have depended on the records of {name!r}, and each tells "
                f"something of them without noise; see who asked: synth ledger show --dataset {quote(name)} --last 0"
            )
            news.append(Event(kind=Kind.LIMIT, dataset=name, level=level, limit=limit, text=text))
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
        text=f"{loss_text(100 * committed_share(balance), 0)}% of the cap of epsilon "
        f"{exact_text(account.cap_epsilon)} (delta {exact_text(account.delta)}) is spent or set aside; "
        f"a release of up to epsilon {left_text(left, 2)} still fits",
    )


def _chain_news(problems: Sequence[str], known: Sequence[Event]) -> list[Event]:
    if not problems:
        return []
    text = f"{problems[0]} ({len(problems)} found); stop all releases and run: synth ledger verify"
    alarms = [event.text for event in known if event.kind is Kind.CHAIN]
    return [] if alarms[-1:] == [text] else [Event(kind=Kind.CHAIN, text=text)]
