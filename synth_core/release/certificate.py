"""The privacy certificate: what a release promises and every spend behind it, so that anybody can add it up again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from synth_core.errors import LedgerError
from synth_core.privacy.budget import Mechanism, group_mu2
from synth_core.privacy.ledger import Record, Stratum
from synth_core.release.manifest import BOUGHT, charged_records, dearest_parts

FORMAT = 1
TO_BE_FILLED = "(to be filled in by the publisher)"


def certificate(manifest: dict[str, Any], records: Sequence[Record]) -> dict[str, Any]:
    """The guarantee of a manifest's release with every charged question, in the order in which they were asked."""
    keys = ("release", "dataset", "source_digest", "schema_digest", "guarantee", "domain", "method")
    return {
        "format": FORMAT,
        **{key: manifest[key] for key in keys},
        "spends": [
            {
                "step": record.step,
                "purpose": record.purpose,
                "stratum": [record.stratum.partition, record.stratum.part] if record.stratum else None,
                "mechanism": record.mechanism.to_json(),
                "mu2": str(record.mu2),
            }
            for record in charged_records(records)
        ],
    }


def problems(certificate: dict[str, Any], manifest: dict[str, Any]) -> list[str]:
    """Every way in which the certificate's spends do not add up to what certificate and manifest state."""
    found = []
    if any(certificate.get(key) != manifest.get(key) for key in ("release", "dataset", "guarantee")):
        found.append("certificate.json: states another guarantee than the manifest")
    rows = manifest["guarantee"]["rows_per_unit"]
    spends: list[tuple[str, Stratum | None, Fraction]] = []
    try:
        for number, spend in enumerate(certificate["spends"], start=1):
            price = group_mu2(Mechanism.from_json(spend["mechanism"]).mu2(), rows)
            # Prices of choices come from special functions, whose last digits differ among versions.
            if abs(price - Fraction(spend["mu2"])) > price / 10**9:
                found.append(f"certificate.json: spend {number} is not the price of its mechanism")
            spends.append((spend["step"], _stratum(spend["stratum"]), Fraction(spend["mu2"])))
    except (KeyError, IndexError, TypeError, ValueError, ZeroDivisionError, LedgerError):
        return [*found, "certificate.json: its spends cannot be read"]
    dearest = dearest_parts((stratum, mu2) for _, stratum, mu2 in spends)
    sums: dict[str, Fraction] = defaultdict(Fraction)
    for step, stratum, mu2 in spends:
        if stratum is None or stratum in dearest:
            sums[step] += mu2
    for step, stated in manifest["guarantee"]["steps"].items():
        if sums[step] != Fraction(stated["mu2"]):
            found.append(f"certificate.json: the spends of step {step!r} do not add up to the manifest's")
    return found


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
                "release_type": "Multiple releases under one cap",
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
    account = guarantee["account"]
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
        "privacy_parameters_description": f"Shares of mu^2: {split}. All releases of this data set, this "
        f"one included: epsilon {account['epsilon_after']:.3g} of at most {account['epsilon_cap']:g}.",
    }
