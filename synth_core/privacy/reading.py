"""The door for work on confidential records whose refusals can be seen: none is shown before it is counted.

A refusal that depends on records ("a value lies outside the bins") is an answer without noise: seventeen of them find
an exact maximum by halving. So each is a record of the account's ledger, written before its text leaves this module,
and there are only as many as the account allows. Where nothing was read (no room, a wrong spec) or no record decides (a
lost cluster), nothing is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from shlex import quote
from typing import TypeVar

from synth_core.errors import ClusterError, LedgerError, RefusalsExhausted, SynthError
from synth_core.privacy.accounts import Balance, Ledger, Runner
from synth_core.privacy.wall import wall

UNCOUNTED = (ClusterError, LedgerError)
"""Refusals that no record decides: the cluster was lost, or the ledger did not permit something."""

T = TypeVar("T")


def count_refusals(
    read: Callable[[], T], *, ledger: Ledger, dataset: str, release: str, step: str, runner: Runner
) -> T:
    """Read confidential records inside the wall; count a refusal and free the hold of a release that measured nothing.

    Args:
        read: the work; whatever it raises may depend on records.
        ledger: where refusals are counted.
        dataset: the account that allows them.
        release: the release that is refused; unless it was charged for something, its hold is closed.
        step: the step at work.
        runner: who runs it.

    Returns:
        What `read` returns.

    Raises:
        RefusalsExhausted: the account has given all the refusals it may; nothing was read, or its refusal is withheld.
        SynthError: the refusal of `read`, after it was counted.
    """
    refusal: SynthError
    try:
        require_refusals_left(ledger.balance(dataset))
        with wall():
            return read()
    except RefusalsExhausted as exhausted:
        refusal = exhausted
    except UNCOUNTED:
        raise
    except SynthError as error:
        refusal = error
    # Outside of the handlers: should the ledger fail here, its error must not carry the refusal as its context.
    if not isinstance(refusal, RefusalsExhausted):
        left = ledger.refuse(dataset, release, step=step, runner=runner)
        if left < 0:  # others were refused meanwhile
            refusal = _exhausted(ledger.balance(dataset))
    reason = f"step {step} was refused before anything was measured"
    ledger.close(dataset, release, reason=reason, runner=runner, only_unmeasured=True)
    raise refusal


def require_refusals_left(balance: Balance) -> None:
    """Refuse to read records of an account that has given all the refusals it may."""
    if balance.refusals >= balance.account.refusal_limit:
        raise _exhausted(balance)


def _exhausted(balance: Balance) -> RefusalsExhausted:
    name, limit = balance.account.dataset, balance.account.refusal_limit
    return RefusalsExhausted(
        f"dataset {name!r}: as many refusals as may ({limit}) have depended on its records; see what was asked with "
        f"`synth ledger show`, then allow more with: {limit_command(name, 2 * limit)}"
    )


def limit_command(dataset: str, limit: int) -> str:
    """The command that changes how many refusals may depend on an account's records."""
    return f"synth ledger refusals {quote(dataset)} --limit {limit} --reason TEXT"
