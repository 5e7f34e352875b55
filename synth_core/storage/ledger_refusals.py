"""What the ledger says when it refuses: the thing, numbers that are public anyway, the command that helps."""

from __future__ import annotations

import math
from fractions import Fraction
from shlex import quote

from synth_core.errors import BudgetRefused, LedgerError, ReleaseEnded
from synth_core.privacy.budget import epsilon_of
from synth_core.privacy.ledger import Account, Reservation, SpendRequest, State
from synth_core.storage.ledger_book import FOLLOWS, Book


def require_sound(account: Account) -> None:
    """Refuse a declaration that no release could honour."""
    name = account.dataset
    if not name.strip():
        raise LedgerError("an account needs the name of its data set")
    if not 0 < account.delta < 1:
        raise LedgerError(f"dataset {name!r}: delta must lie strictly between 0 and 1")
    if not 0 < account.cap_epsilon < math.inf:
        raise LedgerError(f"dataset {name!r}: the cap on epsilon must be positive and finite")
    if account.rows_per_unit < 1:
        raise LedgerError(f"dataset {name!r}: rows per unit must be at least 1")
    if account.largest_n is None:
        return
    if account.largest_n < 1:
        raise LedgerError(f"dataset {name!r}: the public bound on the number of records must be at least 1")
    most = 1 / (10 * account.largest_n)
    if account.delta > most:
        raise LedgerError(
            f"dataset {name!r}: delta {account.delta:g} is too large for up to {account.largest_n} records; "
            f"use at most {most:.3g}"
        )


def account_in(book: Book, dataset: str) -> Account:
    """The data set's account as it is now; refused if it was never declared."""
    if dataset not in book.accounts:
        raise LedgerError(
            f"dataset {dataset!r} has no account; declare it with: "
            f"synth ledger account {quote(dataset)} --unit person --epsilon EPSILON --delta DELTA"
        )
    return book.accounts[dataset]


def require_room(book: Book, request: SpendRequest, mu2: Fraction, *, given_up: Fraction) -> None:
    """Refuse a spend that the account's cap has no room for, or that makes a release dearer than it said.

    Only attempts that were given up (`given_up` is the price of one that this spend replaces) may take a release above
    what it set aside: a changed program or plan that asks other questions under an old name must not.
    """
    release, left = book.release(request.dataset, request.release), book.remaining(request.dataset)
    foreseen = release.charged_with(request.stratum, mu2) - release.forfeited - given_up
    if release.limit and foreseen > release.limit:
        raise dearer_than_said(book.accounts[request.dataset], request, release.limit)
    needed = max(release.hold, release.charged_with(request.stratum, mu2)) - release.committed
    if needed > left:
        account, total = book.accounts[request.dataset], book.committed[request.dataset] + needed
        raise no_room(account, left=left, needed=needed, committed=total, what=f"step {request.step!r}")


def require_going_on(book: Book, request: SpendRequest) -> None:
    """Refuse a spend of somebody who was at work for the release when it was ended."""
    if book.release(request.dataset, request.release).ended_for(request.runner):
        raise ReleaseEnded(
            f"release {request.release!r} was ended while step {request.step!r} was at work; nothing more is charged: "
            "run the release again to resume it"
        )


def dearer_than_said(account: Account, request: SpendRequest, limit: Fraction) -> BudgetRefused:
    """The release asks for more than it set aside."""
    epsilon = epsilon_of(limit, account.delta)
    return BudgetRefused(
        f"release {request.release!r} has spent what it set aside (epsilon {epsilon:.4g}) and step {request.step!r} "
        "asks something new; if the program or the data changed since, use another release name"
    )


def require_order(book: Book, state: State, reservation: Reservation) -> None:
    """Refuse a change of state that the protocol does not know."""
    now = book.state(reservation.key, reservation.attempt)
    if now not in FOLLOWS[state]:
        is_in = f"is already {now.value}" if now else "does not exist"
        raise LedgerError(
            f"attempt {reservation.attempt} of answer {reservation.key[:12]} {is_in} and cannot become "
            f"{state.value}; run the step again to go on from what is stored"
        )


def other_declaration(known: Account, asked: Account) -> LedgerError:
    """The data set is declared already, otherwise."""
    names = ("unit", "neighbours", "delta", "rows_per_unit", "largest_n", "cap_epsilon")
    differing = [name for name in names if getattr(known, name) != getattr(asked, name)]
    values = ", ".join(f"{name} {getattr(known, name)}" for name in differing)
    remedy = "these are for life; leave the declaration as it is"
    if differing == ["cap_epsilon"]:
        remedy = f"change it with: {_cap_command(known, f'{asked.cap_epsilon:g}')}"
    return LedgerError(f"dataset {known.dataset!r} is already declared with {values}; {remedy}")


def no_room(
    account: Account, *, left: Fraction, needed: Fraction, committed: Fraction, what: str
) -> BudgetRefused:
    """The account's cap would be exceeded; `committed` is what a sufficient cap would have to cover."""
    delta = account.delta
    return BudgetRefused(
        f"dataset {account.dataset!r} has epsilon {_down(epsilon_of(max(left, Fraction(0)), delta))} "
        f"of {_down(account.cap_epsilon)} left (delta {delta:g}) "
        f"and {what} needs {_up(epsilon_of(needed, delta))}; lower epsilon, "
        f"or raise the cap with: {_cap_command(account, _up(epsilon_of(committed, delta)))}"
    )


def cap_too_low(account: Account, committed: Fraction) -> LedgerError:
    """A cap may come down only to what is spent and set aside already."""
    lowest = _up(epsilon_of(committed, account.delta))
    return LedgerError(
        f"dataset {account.dataset!r} has committed epsilon {lowest} already; "
        f"the cap cannot be lower: {_cap_command(account, lowest)}"
    )


def _cap_command(account: Account, epsilon: str) -> str:
    return f"synth ledger cap {quote(account.dataset)} --epsilon {epsilon} --reason TEXT"


# What is left is rounded down and what is needed up: a refusal never shows two equal numbers, and the cap it names
# is enough. The crumb keeps a number that is written with so few digits, such as 0.29, from losing its last one.
def _down(epsilon: float) -> str:
    digits = _digits(epsilon)
    return f"{math.floor(epsilon * 10**digits + 1e-9) / 10**digits:.{digits}f}"


def _up(epsilon: float) -> str:
    digits = _digits(epsilon)
    return f"{math.ceil(epsilon * 10**digits) / 10**digits:.{digits}f}"


def _digits(epsilon: float) -> int:
    return 2 if epsilon >= 0.1 else 4
