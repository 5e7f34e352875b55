"""The manifest: what was released, what it cost in privacy, and the checksum of every published file."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from synth_core.privacy.budget import epsilon_of
from synth_core.privacy.ledger import CHARGED, Account, Record, State, Stratum
from synth_core.release.spec import ReleaseSpec
from synth_core.schema import Schema
from synth_core.storage.files import atomic_write, sha256_file

FORMAT = 2

DECLARED, BOUGHT = "declared in the public schema", "private quantiles, bought"
"""Where a column's codes come from."""


def charged_records(records: Sequence[Record]) -> list[Record]:
    """The latest record of each attempt that counts against the account."""
    latest: dict[tuple[str, int], Record] = {}
    for record in sorted(records, key=lambda record: record.id):
        if record.key and record.state in CHARGED | {State.REFUNDED}:
            latest[record.key, record.attempt] = record
    return [record for record in latest.values() if record.state in CHARGED]


def counted_records(records: Sequence[Record]) -> list[Record]:
    """The charged records of a release whose prices add up to its own.

    Parts of one partition compose in parallel, so of each partition the records of its dearest part count and no
    others; records about all of the data always do. Their sum is what the ledger charges for the release.
    """
    charged = charged_records(records)
    dearest = dearest_parts((record.stratum, record.mu2) for record in charged)
    return [record for record in charged if record.stratum is None or record.stratum in dearest]


def dearest_parts(spends: Iterable[tuple[Stratum | None, Fraction]]) -> set[Stratum]:
    """Of each partition the part that was charged most, the first by name among equals."""
    sums: dict[Stratum, Fraction] = defaultdict(Fraction)
    for stratum, mu2 in spends:
        if stratum is not None:
            sums[stratum] += mu2
    dearest: dict[str, Stratum] = {}
    for stratum in sorted(sums, key=lambda stratum: (-sums[stratum], stratum.part)):
        dearest.setdefault(stratum.partition, stratum)
    return set(dearest.values())


def cost_by_step(records: Sequence[Record]) -> dict[str, Fraction]:
    """mu^2 of each step of a release, of which the sum is the release's own."""
    costs: dict[str, Fraction] = {record.step: Fraction(0) for record in records}
    for record in counted_records(records):
        costs[record.step] += record.mu2
    return costs


def build(
    *,
    spec: ReleaseSpec,
    account: Account,
    snapshot: str,
    schema: Schema,
    records: Sequence[Record],
    cliques: Sequence[Sequence[str]],
    quality: dict[str, Any],
    previous: dict[str, Any] | None,
) -> dict[str, Any]:
    """The manifest of a release, still without its artifacts; `records` are all of the data set's."""
    return {
        "format": FORMAT,
        "release": spec.release,
        "dataset": spec.dataset,
        "source_digest": snapshot,
        "schema_digest": schema.digest(),
        "guarantee": _guarantee(spec, account, records),
        "domain": {
            column.name: {
                "kind": column.kind,
                "codes": column.size,
                "origin": BOUGHT if column.name in schema.buying else DECLARED,
                "unseen": column.unseen,
                "nullable": column.nullable,
            }
            for column in schema.columns
        },
        "method": {"name": spec.method, "preset": spec.preset, "options": spec.options},
        "strata": spec.strata.model_dump(mode="json") if spec.strata else None,
        "rows": spec.rows,
        "seed": spec.seed,
        "cliques": [list(clique) for clique in cliques],
        "quality": quality,
        "previous": None if previous is None else {key: previous[key] for key in ("release", "digest")},
    }


def complete(
    manifest: dict[str, Any], *, public: Path, artifacts: Sequence[Path], provenance: dict[str, Any]
) -> dict[str, Any]:
    """The manifest with checksums; `digest` covers all but the provenance, which differs from run to run."""
    sums = {str(path.relative_to(public)): sha256_file(path) for path in sorted(artifacts)}
    content = {**manifest, "artifacts": sums}
    return {**content, "digest": digest_of(content), "provenance": provenance}


def digest_of(content: dict[str, Any]) -> str:
    """SHA-256 of the canonical JSON of a manifest's content."""
    content = {key: value for key, value in content.items() if key not in ("digest", "provenance")}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def write(manifest: dict[str, Any], path: Path) -> None:
    """Write the manifest for people and programs to read."""
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def previous_manifest(public_zone: Path, *, dataset: str, release: str) -> dict[str, Any] | None:
    """The manifest with which a release is compared: the newest published one of another release of the data set.

    A release that was published before keeps the one it was compared with then, whatever has come since.
    """
    manifests = {}
    for path in sorted(public_zone.glob("*/manifest.json")):
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if found["dataset"] == dataset:
                manifests[found["release"]] = (str(found["provenance"]["published_at"]), found)
        except (OSError, ValueError, KeyError, TypeError):
            continue  # a damaged manifest is the business of `synth verify`, and no yardstick
    if release in manifests:
        before = manifests[release][1].get("previous")
        return manifests[before["release"]][1] if before and before["release"] in manifests else None
    return max(manifests.values(), key=lambda item: item[0])[1] if manifests else None


def problems(manifest: dict[str, Any], public: Path, *, records: Sequence[Record] | None = None) -> list[str]:
    """Every way in which the manifest disagrees with itself, with the published files or with the ledger."""
    found = []
    if manifest.get("digest") != digest_of(manifest):
        found.append("manifest.json: its content does not match its digest")
    for name, digest in manifest.get("artifacts", {}).items():
        path = public / name
        if not path.is_file():
            found.append(f"{name}: is missing")
        elif sha256_file(path) != digest:
            found.append(f"{name}: does not match its checksum")
    if records is not None:
        steps = {step: str(mu2) for step, mu2 in cost_by_step(records).items() if step}
        stated = {step: cost["mu2"] for step, cost in manifest["guarantee"]["steps"].items()}
        found += [
            f"ledger: step {step!r} cost mu^2 {steps.get(step, '0')}, the manifest says {stated.get(step, '0')}"
            for step in sorted(steps.keys() | stated.keys())
            if Fraction(steps.get(step, "0")) != Fraction(stated.get(step, "0"))
        ]
    return found


def _guarantee(spec: ReleaseSpec, account: Account, records: Sequence[Record]) -> dict[str, Any]:
    own = [record for record in records if record.release == spec.release]
    steps = {step: mu2 for step, mu2 in cost_by_step(own).items() if step}
    total = sum(steps.values(), Fraction(0))
    before = _charged_before(records, own)
    return {
        "variant": "Gaussian differential privacy, stated as (epsilon, delta)",
        "unit": account.unit,
        "neighbours": account.neighbours,
        "rows_per_unit": account.rows_per_unit,
        "epsilon": round(epsilon_of(total, account.delta), 6),
        "epsilon_asked": spec.epsilon,
        "delta": account.delta,
        "mu": float(total) ** 0.5,
        "steps": {
            step: {"mu2": str(mu2), "share": float(mu2 / total) if total else 0.0}
            for step, mu2 in steps.items()
        },
        "account": {
            "epsilon_before": round(epsilon_of(before, account.delta), 6),
            "epsilon_after": round(epsilon_of(before + total, account.delta), 6),
            "epsilon_cap": account.cap_epsilon,
        },
    }


def _charged_before(records: Sequence[Record], own: Sequence[Record]) -> Fraction:
    """What other releases had been charged when this one began: a number that later releases do not change."""
    began = min((record.id for record in own), default=0)
    earlier = [record for record in records if record.id < began]
    releases = {record.release for record in earlier}
    costs = (
        cost_by_step([record for record in earlier if record.release == release]) for release in releases
    )
    return sum((mu2 for cost in costs for mu2 in cost.values()), Fraction(0))
