"""What a release states about its privacy loss and its account: the guarantee, and the certificate with every spend.

Both are computed from the ledger's records and nothing else, so that anybody can add them up again.

The account is stated as of one record, the publication record, which the step `publish` writes before it computes
anything. The ledger is one chain, so of two releases that are published at the same time the later record counts the
earlier release, and the earlier record counts the later release as one under way. The record's number is part of the
signed manifest: a holder of the ledger computes the same numbers again, whatever was charged since.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from synth_core.errors import LedgerError
from synth_core.ledger.book import charged_records, cost_by_step, pure_loss
from synth_core.privacy.accounts import (
    Account,
    Record,
    Spend,
    State,
    Stratum,
    compose,
    pure_epsilon,
    refusals,
    snapshot_numbers,
    which_count,
)
from synth_core.privacy.budget import Mechanism, epsilon_of, group_mu2, mu2_of, mu_of, round_up
from synth_core.privacy.wording import exact_text, loss_text
from synth_core.release.manifest import BOUGHT, DIGITS, person_statement

FORMAT = 2
"""Version of the certificate's layout."""
TO_BE_FILLED = "(to be filled in by the publisher)"
"""What stands where only the publisher knows the answer."""

STEP = "publish"
"""The step whose notes in the ledger are publication records."""

DELIVERED = ("published", "finished")
"""Reasons with which a release is closed that gave its result away: published, or returned by a call of the API."""

PURE = "pure_epsilon"
"""The part of a guarantee that only a release has whose questions all lose nothing beyond an epsilon."""

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
    asked = max((record.mu2 for record in records if record.state is State.HELD), default=Fraction(0))
    turn = last_turn(records)
    given_up = turn is not None and turn.state is State.CLOSED and turn.reason not in DELIVERED
    return charged if given_up and not _statements(records) else max(asked, charged)


def last_turn(records: Sequence[Record]) -> Record | None:
    """The last record of a release that opened or ended its hold; None if there never was a hold."""
    return next((record for record in reversed(records) if record.state in (State.HELD, State.CLOSED)), None)


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
    own = group_by_release(seen)[seen[-1].dataset, seen[-1].release]
    steps = {step: mu2 for step, mu2 in cost_by_step(own).items() if step}
    spent = sum(steps.values(), Fraction(0))
    promised = max(promised_mu2(own), mu2_of(asked, account.delta))
    pure = pure_loss(own)
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
        **({} if pure is None else {PURE: pure}),
        "steps": {
            step: {"mu2": str(mu2), "share": float(mu2 / spent) if spent else 0.0} for step, mu2 in steps.items()
        },
        "account": _account(seen),
    }


def guarantee_problems(manifest: dict[str, Any], records: Sequence[Record]) -> list[str]:
    """Every way in which a manifest's guarantee is not what the ledger gives.

    Args:
        manifest: A manifest as it was published.
        records: All records of the ledger, oldest first.

    Returns:
        The differences in words; of a manifest of an older format only the costs of the steps are compared.
    """
    name, stated = manifest["release"], manifest["guarantee"]
    own = group_by_release(records)[manifest["dataset"], name]
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
        f"ledger: gives {given.get(key)!r} for {key}, the manifest says {stated.get(key)!r}"
        for key in [*given, *({PURE} & stated.keys() - given.keys())]
        if not _agree(given.get(key), stated.get(key))
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
    releases, delta = group_by_release(seen).values(), seen[-1].account.delta
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


def group_by_release(records: Sequence[Record]) -> defaultdict[tuple[str, str], list[Record]]:
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


def certificate(
    manifest: dict[str, Any], records: Sequence[Record], reused: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """The guarantee of a manifest's release with every charged question, in the order in which they were asked.

    Snapshots are numbered: prices add up over them, and their digests would reveal whether two releases saw equal rows.
    Public information that went into the release is named. `reused` are the answers of earlier releases that it was
    built on, which these have paid for.
    """
    charged = charged_records(records)
    numbers = snapshot_numbers(record.snapshot for record in charged)
    public = {"public_information": manifest["public_information"]} if "public_information" in manifest else {}
    linked = ("tables",) if "tables" in manifest else ()
    keys = ("release", "dataset", "schema_digest", "guarantee", "domain", "method", *linked)
    return {
        "format": FORMAT,
        **{key: manifest[key] for key in keys},
        **public,
        **({"reused": list(reused)} if reused else {}),
        "spends": [
            {
                "step": record.step,
                "purpose": record.purpose,
                "snapshot": number,
                "stratum": [record.stratum.partition, record.stratum.part] if record.stratum else None,
                "mechanism": record.mechanism.to_json(),
                "mu2": str(record.mu2),
            }
            for record, number in zip(charged, numbers, strict=True)
        ],
    }


def certificate_problems(certificate: dict[str, Any], manifest: dict[str, Any]) -> list[str]:
    """Every way in which the certificate's spends do not add up to what certificate and manifest state."""
    found = []
    if any(certificate.get(key) != manifest.get(key) for key in ("release", "dataset", "guarantee")):
        found.append("certificate.json: states another guarantee than the manifest")
    found += _person_problems(certificate, manifest)
    rows = manifest["guarantee"]["rows_per_unit"]
    steps: list[str] = []
    spends: list[Spend] = []
    asked: list[Mechanism] = []
    try:
        for number, spend in enumerate(certificate["spends"], start=1):
            asked.append(Mechanism.from_json(spend["mechanism"]))
            price = group_mu2(asked[-1].mu2(), rows)
            # Prices of choices come from special functions, whose last digits differ among versions.
            if abs(price - Fraction(spend["mu2"])) > price / 10**9:
                found.append(f"certificate.json: spend {number} is not the price of its mechanism")
            steps.append(spend["step"])
            spends.append((str(spend.get("snapshot", 1)), _stratum(spend["stratum"]), Fraction(spend["mu2"])))
    except (KeyError, IndexError, TypeError, ValueError, ZeroDivisionError, LedgerError):
        return [*found, "certificate.json: its spends cannot be read"]
    sums: dict[str, Fraction] = defaultdict(Fraction)
    for step, (_, _, mu2), counts in zip(steps, spends, which_count(spends), strict=True):
        sums[step] += mu2 * counts
    for step, stated in manifest["guarantee"]["steps"].items():
        if sums[step] != Fraction(stated["mu2"]):
            found.append(f"certificate.json: the spends of step {step!r} do not add up to the manifest's")
    losses = [(snapshot, stratum, one) for (snapshot, stratum, _), one in zip(spends, asked, strict=True)]
    pure, stated = pure_epsilon(losses, rows), manifest["guarantee"].get(PURE)
    if stated is not None and (pure is None or stated < pure):
        found.append("certificate.json: states a smaller epsilon without a delta than its spends add up to")
    return found + _understated(manifest["guarantee"], sum(sums.values(), Fraction(0)))


def _person_problems(certificate: dict[str, Any], manifest: dict[str, Any]) -> list[str]:
    """What is said of one person of linked tables, and does not follow from the guarantee."""
    if "tables" not in manifest:
        return []
    stated, follows = manifest["tables"]["one_person"], person_statement(manifest["guarantee"])
    if certificate.get("tables") == manifest["tables"] and _agree(follows, stated):
        return []
    return ["certificate.json: what it states of one person does not follow from the guarantee"]


def _understated(guarantee: dict[str, Any], spent: Fraction) -> list[str]:
    """Numbers of the guarantee that are smaller than what was spent, or than each other, allows."""
    if "epsilon_spent" not in guarantee:  # a release of an older format
        return []
    worth = epsilon_of(spent, guarantee["delta"])
    needed = {
        "epsilon_spent": worth,
        "epsilon": max(guarantee["epsilon_spent"], guarantee["epsilon_asked"]),
        "mu_spent": mu_of(spent),
        "mu": max(guarantee["mu_spent"], mu_of(mu2_of(guarantee["epsilon_asked"], guarantee["delta"]))),
    }
    smaller = [name for name, least in needed.items() if guarantee[name] < least * (1 - 1e-9)]
    account = guarantee["account"]
    if account["epsilon"] < max(account["epsilon_spent"], guarantee["epsilon"]) * (1 - 1e-9):
        smaller.append("account")
    return [f"certificate.json: states a smaller {name} than its spends are worth" for name in smaller]


def deployment(manifest: dict[str, Any]) -> dict[str, Any]:
    """The release as an entry of the differential-privacy deployments registry (tier 3 until it was reviewed).

    What only the publisher knows is marked; what the release knows is filled in.
    """
    method, release, dataset = manifest["method"], manifest["release"], manifest["dataset"]
    return {
        "url_slug": f"{dataset}-{release}",
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "product": {
                "name": f"{dataset}: synthetic extract {release}",
                "data_curators": [TO_BE_FILLED],
                "intended_use": TO_BE_FILLED,
                "data_product_type": "Synthetic data",
                "data_product_region": TO_BE_FILLED,
                "description": f"{_kind_of_records(manifest)} over {len(manifest['domain'])} declared columns.",
                "publication_date": TO_BE_FILLED,
            },
            "dp_flavor": {
                "name": "Approximate DP",
                "description": "Gaussian differential privacy, stated as (epsilon, delta).",
            },
            "privacy_loss": _privacy_loss(manifest["guarantee"], manifest.get("tables")),
            "model": {
                "model_name": "Central",
                "release_type": "Multiple releases from one account",
                "access_type": "Non-interactive",
            },
            "implementation": {
                "pre_processing_eda_hyperparameter_tuning": "Columns, values and bins come from a public schema"
                f"{_bought_bins(manifest['domain'])}. Tuning of parameters: {TO_BE_FILLED}",
                "mechanisms": f"{method['name']}, preset {method['preset']}: discrete Gaussian noise on counts and "
                "scores, exponential mechanism for choices.",
                "justification": TO_BE_FILLED,
            },
            "resources": {"sources": TO_BE_FILLED, "registry_authors": [TO_BE_FILLED]},
        },
    }


def _bought_bins(domain: dict[str, Any]) -> str:
    names = [name for name, column in domain.items() if column["origin"] == BOUGHT]
    return f", the bins of {', '.join(names)} from noisy histograms that are part of the price" if names else ""


def _stratum(written: list[str] | None) -> Stratum | None:
    return None if written is None else Stratum(partition=written[0], part=written[1])


def _kind_of_records(manifest: dict[str, Any]) -> str:
    linked = "Synthetic households and their people, in two linked tables,"
    return linked if "tables" in manifest else "Synthetic records"


def _privacy_loss(guarantee: dict[str, Any], tables: dict[str, Any] | None) -> dict[str, Any]:
    most = f"At most {guarantee['rows_per_unit']} record(s) of one {guarantee['unit']}."
    if tables:
        person = tables["one_person"]
        most = (
            f"A household with all its people, of whom at most {tables['largest']} are used. For one person: epsilon "
            f"{loss_text(person['epsilon'])} at the same delta. {person['says']}"
        )
    split = ", ".join(f"{step} {cost['share']:.1%}" for step, cost in guarantee["steps"].items() if cost["share"])
    return {
        "privacy_unit": guarantee["unit"],
        "privacy_unit_description": f"Neighbours: {guarantee['neighbours']}. {most}",
        "privacy_parameters": {
            "epsilon": guarantee["epsilon"],
            "delta": guarantee["delta"],
            "mu": guarantee["mu"],
        },
        "privacy_parameters_description": f"Spent: epsilon {guarantee['epsilon_spent']}. Shares of the spent mu^2: "
        f"{split}. {account_sentence(guarantee['account'], symbol='epsilon')}",
    }


def account_sentence(account: dict[str, float], *, symbol: str) -> str:
    """What all releases of the data set come to, in words that stay true whatever is released later.

    Args:
        account: The account in a manifest's guarantee.
        symbol: How epsilon is written.

    Returns:
        Two sentences; neither promises a cap, which people may raise.
    """
    return (
        f"When this release was published, all releases of this data set together, this one and those under way "
        f"included, came to {symbol} = {loss_text(account['epsilon'])} (spent by then: {symbol} = "
        f"{loss_text(account['epsilon_spent'])}). The cap was {symbol} = {exact_text(account['epsilon_cap'])}; "
        "who raises it, and why, is recorded in the ledger."
    )
