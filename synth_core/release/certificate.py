"""The privacy certificate: what a release promises and every spend behind it, so that anybody can add it up again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from synth_core.errors import LedgerError
from synth_core.privacy.accounts import Record, Stratum
from synth_core.privacy.budget import Mechanism, epsilon_of, group_mu2, mu2_of, mu_of
from synth_core.privacy.composition import Spend, snapshot_numbers, which_count
from synth_core.privacy.wording import exact_text, loss_text
from synth_core.release.manifest import BOUGHT, charged_records

FORMAT = 2
TO_BE_FILLED = "(to be filled in by the publisher)"


def certificate(manifest: dict[str, Any], records: Sequence[Record]) -> dict[str, Any]:
    """The guarantee of a manifest's release with every charged question, in the order in which they were asked.

    Snapshots are numbered: prices add up over them, and their digests would tell whether two releases saw equal rows.
    """
    charged = charged_records(records)
    numbers = snapshot_numbers(record.snapshot for record in charged)
    keys = ("release", "dataset", "schema_digest", "guarantee", "domain", "method")
    return {
        "format": FORMAT,
        **{key: manifest[key] for key in keys},
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


def problems(certificate: dict[str, Any], manifest: dict[str, Any]) -> list[str]:
    """Every way in which the certificate's spends do not add up to what certificate and manifest state."""
    found = []
    if any(certificate.get(key) != manifest.get(key) for key in ("release", "dataset", "guarantee")):
        found.append("certificate.json: states another guarantee than the manifest")
    rows = manifest["guarantee"]["rows_per_unit"]
    steps: list[str] = []
    spends: list[Spend] = []
    try:
        for number, spend in enumerate(certificate["spends"], start=1):
            price = group_mu2(Mechanism.from_json(spend["mechanism"]).mu2(), rows)
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
    return found + _understated(manifest["guarantee"], sum(sums.values(), Fraction(0)))


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
                "description": f"Synthetic records over {len(manifest['domain'])} declared columns.",
                "publication_date": TO_BE_FILLED,
            },
            "dp_flavor": {
                "name": "Approximate DP",
                "description": "Gaussian differential privacy, stated as (epsilon, delta).",
            },
            "privacy_loss": _privacy_loss(manifest["guarantee"]),
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
    return (
        f", the bins of {', '.join(names)} from noisy histograms that are part of the price" if names else ""
    )


def _stratum(written: list[str] | None) -> Stratum | None:
    return None if written is None else Stratum(partition=written[0], part=written[1])


def _privacy_loss(guarantee: dict[str, Any]) -> dict[str, Any]:
    split = ", ".join(
        f"{step} {cost['share']:.1%}" for step, cost in guarantee["steps"].items() if cost["share"]
    )
    return {
        "privacy_unit": guarantee["unit"],
        "privacy_unit_description": f"Neighbours: {guarantee['neighbours']}. At most "
        f"{guarantee['rows_per_unit']} record(s) of one {guarantee['unit']}.",
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
