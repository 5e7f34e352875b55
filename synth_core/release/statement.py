"""What a release states about its privacy loss and its account, computed from the ledger's records and nothing else.

The account is stated as of one record, the publication record, which the step `publish` writes before it computes
anything. The ledger is one chain, so of two releases that are published at the same time the later record counts the
earlier release, and the earlier record counts the later release as one under way. The record's number is part of the
signed manifest: whoever has the ledger computes the same numbers again, whatever was charged since.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from synth_core.privacy.accounts import Account, Record, State, compose, refusals
from synth_core.privacy.budget import epsilon_of, mu2_of, mu_of, round_up
from synth_core.release.manifest import cost_by_step

STEP = "publish"
"""The step whose notes in the ledger are publication records."""

DIGITS = 6
"""Digits after the decimal point with which losses are stored, rounded up."""

DELIVERED = ("published", "finished")
"""Reasons with which a release is closed that gave its result away: published, or returned by a call of the API."""

Guarantee = dict[str, Any]
"""The part of a manifest that states the promise."""


def stating_purpose(records: Sequence[Record]) -> str:
    """The purpose under which the next publication record of a release is noted; `records` are the release's own."""
    return f"account stated, {len(_statements(records)) + 1}"


def promised_mu2(records: Sequence[Record]) -> Fraction:
    """The price of a release: the larger of what it asked for and what it was charged.

    What an adaptive run happens to spend is not the parameter of the mechanism, which is what the release set aside. A
    release that was ended before it gave its result away counts with its charges.

    Args:
        records: The release's own records.

    Returns:
        Its price in mu^2.
    """
    charged = sum(cost_by_step(records).values(), Fraction(0))
    turns = [record for record in records if record.state in (State.HELD, State.CLOSED)]
    asked = max((record.mu2 for record in turns if record.state is State.HELD), default=Fraction(0))
    given_up = bool(turns) and turns[-1].state is State.CLOSED and turns[-1].reason not in DELIVERED
    return charged if given_up and not _statements(records) else max(asked, charged)


def guarantee(publication: int, asked: float, records: Sequence[Record]) -> Guarantee:
    """What a release promises, and what its account comes to at the publication record.

    Args:
        publication: The number of the release's publication record.
        asked: The epsilon that its spec asks for.
        records: All records of the ledger, oldest first.

    Returns:
        The statement as plain data; every loss is rounded up.
    """
    seen = _composed([record for record in records if record.id <= publication])
    account = seen[-1].account  # of the publication record itself
    own = _releases(seen)[seen[-1].dataset, seen[-1].release]
    steps = {step: mu2 for step, mu2 in cost_by_step(own).items() if step}
    spent = sum(steps.values(), Fraction(0))
    promised = max(promised_mu2(own), mu2_of(asked, account.delta))
    return {
        "variant": "Gaussian differential privacy, stated as (epsilon, delta)",
        "unit": account.unit,
        "neighbours": account.neighbours,
        "rows_per_unit": account.rows_per_unit,
        "epsilon": round_up(max(asked, epsilon_of(promised, account.delta)), DIGITS),
        "delta": account.delta,
        "mu": round_up(mu_of(promised), DIGITS),
        "epsilon_asked": asked,
        "epsilon_spent": round_up(epsilon_of(spent, account.delta), DIGITS),
        "mu_spent": round_up(mu_of(spent), DIGITS),
        "steps": {
            step: {"mu2": str(mu2), "share": float(mu2 / spent) if spent else 0.0}
            for step, mu2 in steps.items()
        },
        "account": _account(seen),
    }


def problems(manifest: dict[str, Any], records: Sequence[Record]) -> list[str]:
    """Every way in which a manifest's guarantee is not what the ledger gives.

    Args:
        manifest: A manifest as it was published.
        records: All records of the ledger, oldest first.

    Returns:
        The differences in words; of a manifest of an older format only the costs of the steps are compared.
    """
    name, stated = manifest["release"], manifest["guarantee"]
    own = _releases(records)[manifest["dataset"], name]
    costs = {step: mu2 for step, mu2 in cost_by_step(own).items() if step}
    claimed = {step: Fraction(cost["mu2"]) for step, cost in stated["steps"].items()}
    found = [
        f"ledger: step {step!r} cost mu^2 {costs.get(step, 0)}, the manifest says {claimed.get(step, 0)}"
        for step in sorted(costs.keys() | claimed.keys())
        if costs.get(step, 0) != claimed.get(step, 0)
    ]
    if found or "epsilon_spent" not in stated:
        return found
    number = manifest["provenance"]["ledger"]["records"]
    if number not in {record.id for record in _statements(own)}:
        return [f"ledger: record {number} is not one in which release {name!r} states its account"]
    given = guarantee(number, stated["epsilon_asked"], records)
    return [
        f"ledger: gives {given[key]!r} for {key}, the manifest says {stated.get(key)!r}"
        for key in given
        if not _agree(given[key], stated.get(key))
    ]


def _composed(records: Sequence[Record]) -> list[Record]:
    """Those of the last record's account, and of the accounts that were composed with it when it was written."""
    groups: dict[str, frozenset[str]] = {}
    for record in records:
        if record.state in (State.ACCOUNT, State.SHARED):
            compose(groups, record.account)
    together = groups[records[-1].dataset]
    return [record for record in records if record.dataset in together]


def _account(seen: Sequence[Record]) -> dict[str, Any]:
    """All releases together: what they promise, what they have spent, the cap in force, and refusals without noise."""
    releases, delta = _releases(seen).values(), seen[-1].account.delta
    promised = sum((promised_mu2(own) for own in releases), Fraction(0))
    spent = sum((mu2 for own in releases for mu2 in cost_by_step(own).values()), Fraction(0))
    accounts = {record.dataset: record.account for record in seen}
    cap = _lowest_cap(accounts.values(), delta)
    # Whatever releases asked for, the ledger has charged and set aside no more than the cap: a filter of that size.
    return {
        "epsilon": round_up(min(epsilon_of(promised, delta), cap), DIGITS),
        "epsilon_spent": round_up(epsilon_of(spent, delta), DIGITS),
        "epsilon_cap": cap,
        "refusals": refusals(seen),
        "together": sorted(accounts),
    }


def _lowest_cap(accounts: Iterable[Account], delta: float) -> float:
    """The tightest cap of composed accounts as an epsilon at `delta`: each has its cap at a delta of its own."""
    tightest = min(accounts, key=lambda account: mu2_of(account.cap_epsilon, account.delta))
    if tightest.delta == delta:
        return tightest.cap_epsilon
    return round_up(epsilon_of(mu2_of(tightest.cap_epsilon, tightest.delta), delta), DIGITS)


def _releases(records: Sequence[Record]) -> defaultdict[tuple[str, str], list[Record]]:
    """The records of each release, by data set and name."""
    releases: defaultdict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        releases[record.dataset, record.release].append(record)
    return releases


def _agree(given: object, stated: object) -> bool:
    """Whether two statements are the same; versions of the special functions may differ in the last digit."""
    if isinstance(given, dict) and isinstance(stated, dict):
        return given.keys() == stated.keys() and all(_agree(given[key], stated[key]) for key in given)
    if isinstance(given, float) and isinstance(stated, int | float):
        return abs(given - stated) < 1.5 * 10**-DIGITS if given > 10**-DIGITS else given == stated
    return given == stated


def _statements(records: Sequence[Record]) -> list[Record]:
    """The publication records among those of one release."""
    return [record for record in records if record.state is State.NOTED and record.step == STEP]
