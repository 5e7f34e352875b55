"""What the ledger says when it refuses: the thing, numbers that are public anyway, the command that helps."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from shlex import quote

from synth_core.errors import BudgetRefused, LedgerError, ReleaseEnded, SharedRows, SpecError
from synth_core.ledger.book import FOLLOWS, Book, cap_mu2
from synth_core.names import check_name, check_unit
from synth_core.privacy.accounts import Account, Reservation, SpendRequest, State
from synth_core.privacy.budget import check_delta, epsilon_of
from synth_core.privacy.reading import limit_command
from synth_core.privacy.wording import exact_text, left_figure, loss_figure, loss_text


def require_sound(account: Account) -> None:
    """Refuse a declaration that no release could honour."""
    name = account.dataset
    if not 0 < account.delta < 1:
        raise LedgerError(f"dataset {name!r}: delta must lie strictly between 0 and 1")
    if not 0 < account.cap_epsilon < math.inf:
        raise LedgerError(f"dataset {name!r}: the cap on epsilon must be positive and finite")
    if account.rows_per_unit < 1:
        raise LedgerError(f"dataset {name!r}: rows per unit must be at least 1")
    if account.refusal_limit < 1:
        raise LedgerError(f"dataset {name!r}: the limit of refusals must be at least 1")


def require_names(account: Account) -> None:
    """Refuse a new account whose data set or unit could be taken for another; those of earlier versions stay."""
    for what, text, check in (("dataset", account.dataset, check_name), ("unit", account.unit, check_unit)):
        try:
            check(text)
        except ValueError as wrong:
            raise LedgerError(f"{what} {text!r}: {wrong}") from None


def require_small_delta(account: Account, reason: str) -> None:
    """Refuse a new account whose delta is too large for its records, unless a reason is recorded."""
    if account.largest_n is None:
        return  # the doors ask for it; `synth doctor` and `synth plan` warn of accounts without it
    try:
        check_delta(account.delta, account.largest_n, reason)
    except SpecError as refusal:
        raise LedgerError(f"dataset {account.dataset!r}: {refusal}") from None


def account_in(book: Book, dataset: str) -> Account:
    """The data set's account as it is now; refused if it was never declared."""
    if dataset not in book.accounts:
        raise LedgerError(
            f"dataset {dataset!r} has no account; declare it with: "
            f"synth ledger account {quote(dataset)} --unit person --epsilon EPSILON --delta DELTA --largest-n N"
        )
    return book.accounts[dataset]


def require_same_people(book: Book, account: Account) -> None:
    """Refuse to compose accounts that are not declared, or that protect another unit: their prices do not add up."""
    if account.dataset in account.shares_rows_with:
        raise LedgerError(f"dataset {account.dataset!r} cannot share rows with itself; name another account")
    for other in map(partial(account_in, book), account.shares_rows_with):
        if (other.unit, other.neighbours) != (account.unit, account.neighbours):
            raise LedgerError(
                f"dataset {account.dataset!r} protects one {account.unit} and {other.dataset!r} one {other.unit}; "
                "only accounts with one unit can be composed: release these rows from one account"
            )


def require_room_together(book: Book, dataset: str, *, new: bool) -> None:
    """Refuse to compose accounts that have committed more than one of their caps allows."""
    if book.remaining(dataset) >= 0:
        return
    account, committed = book.tightest(dataset), book.committed_together(dataset)
    names = ", ".join(repr(member.dataset) for member in book.together(dataset))
    epsilon = loss_figure(epsilon_of(committed, account.delta))
    remedy = (
        f"declare it with --epsilon {epsilon} or more"
        if new and account.dataset == dataset
        else _remedy(book, dataset, committed, besides="")
    )
    raise LedgerError(
        f"datasets {names} have together committed epsilon {epsilon}, and the cap of {account.dataset!r} is "
        f"{left_figure(account.cap_epsilon)} (delta {exact_text(account.delta)}); {remedy}"
    )


def require_own_rows(book: Book, dataset: str, fingerprint: str) -> None:
    """Refuse a file or a snapshot that belongs to another account: its people would have two budgets."""
    owner = book.owner(fingerprint, dataset)
    if owner is not None:
        raise SharedRows(
            f"dataset {dataset!r} may not read these rows: they belong to dataset {owner!r}; release them from that "
            f"account, or compose both with: synth ledger account {quote(dataset)} --shares-rows-with {quote(owner)}"
        )


def require_room(book: Book, request: SpendRequest, mu2: Fraction, *, given_up: Fraction) -> None:
    """Refuse a spend that the account's cap has no room for, or that makes a release dearer than it said.

    Only attempts that were given up (`given_up` is the price of one that this spend replaces) may take a release above
    what it set aside: a changed program or plan that asks other questions under an old name must not.
    """
    release, left = book.release(request.dataset, request.release), book.remaining(request.dataset)
    charged = release.charges.mu2_with(request.snapshot, request.stratum, mu2)
    foreseen = charged - release.forfeited - given_up
    if release.limit and foreseen > release.limit:
        epsilon = loss_text(epsilon_of(release.limit, book.accounts[request.dataset].delta))
        raise BudgetRefused(
            f"release {request.release!r} has spent what it set aside (epsilon {epsilon}) and step {request.step!r} "
            "asks something new; if the program or the data changed since, use another release name"
        )
    needed = max(release.hold, charged) - release.committed
    if needed > left:
        what = f"step {request.step!r}"
        raise no_room(book, request.dataset, request.release, left=left, needed=needed, what=what)


def require_going_on(book: Book, request: SpendRequest) -> None:
    """Refuse a spend for a closed release.

    Args:
        book: the account's records, added up.
        request: the spend, with its runner.

    Raises:
        ReleaseEnded: the release was closed after this runner started.
    """
    if book.release(request.dataset, request.release).ended_for(request.runner):
        raise ReleaseEnded(
            f"release {request.release!r} was ended while step {request.step!r} was at work; nothing more is charged: "
            "run the release again to resume it"
        )


def require_form(book: Book, request: SpendRequest) -> None:
    """Refuse a question that does not say what it asks; those that a version without forms has begun go on."""
    if request.form is None and request.key not in book.latest:
        raise LedgerError(
            f"step {request.step!r} does not say what it asks for {request.purpose!r}; give the request a form"
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
    names = ("unit", "neighbours", "delta", "rows_per_unit", "largest_n", "cap_epsilon", "refusal_limit")
    differing = [name for name in names if getattr(known, name) != getattr(asked, name)]
    values = ", ".join(f"{name} {getattr(known, name)}" for name in differing)
    remedy = "these are for life; leave the declaration as it is"
    if differing == ["cap_epsilon"]:
        remedy = f"change it with: {_cap_command(known, exact_text(asked.cap_epsilon))}"
    elif differing == ["refusal_limit"]:
        remedy = f"change it with: {limit_command(known.dataset, asked.refusal_limit)}"
    return LedgerError(f"dataset {known.dataset!r} is already declared with {values}; {remedy}")


def no_room(book: Book, dataset: str, release: str, *, left: Fraction, needed: Fraction, what: str) -> BudgetRefused:
    """The cap of the account, or of one that holds rows of the same people, would be exceeded."""
    account = book.tightest(dataset)
    delta, enough = account.delta, cap_mu2(account) - left + needed
    same = "" if account.dataset == dataset else f", which shares rows with {dataset!r},"
    return BudgetRefused(
        f"dataset {account.dataset!r}{same} has epsilon {left_figure(epsilon_of(max(left, Fraction(0)), delta))} "
        f"of {left_figure(account.cap_epsilon)} left (delta {exact_text(delta)}) and {what} needs "
        f"{loss_figure(epsilon_of(needed, delta))}; lower epsilon, or {_remedy(book, dataset, enough, besides=release)}"
    )


def _remedy(book: Book, dataset: str, enough: Fraction, *, besides: str) -> str:
    """What makes room: the end of a release that holds more than it uses; without one, a cap that covers `enough`."""
    account, held = book.tightest(dataset), book.open_holds(dataset, besides=besides)
    if not held:
        return f"raise the cap with: {_cap_command(account, loss_figure(epsilon_of(enough, account.delta)))}"
    (name, unused), more = held[0], len(held) - 1
    others = f" and {more} more (see: synth ledger show)" if more else ""
    return (
        f"wait for release {name!r}{others}, which holds epsilon {left_figure(epsilon_of(unused, account.delta))} that "
        f"it has not used; if it failed, end it with: synth cancel {quote(name)} --reason TEXT --workspace DIR"
    )


def cap_too_low(account: Account, committed: Fraction) -> LedgerError:
    """A cap may come down only to what is spent and set aside already."""
    lowest = loss_figure(epsilon_of(committed, account.delta))
    return LedgerError(
        f"dataset {account.dataset!r} has committed epsilon {lowest} already; "
        f"the cap cannot be lower: {_cap_command(account, lowest)}"
    )


def _cap_command(account: Account, epsilon: str) -> str:
    return f"synth ledger cap {quote(account.dataset)} --epsilon {epsilon} --reason TEXT"
