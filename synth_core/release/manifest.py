"""The manifest: what was released, what it cost in privacy, and the checksum of every published file."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from synth_core.privacy.budget import epsilon_of, parallel_mu2
from synth_core.privacy.ledger import CHARGED, Account, Record, State
from synth_core.release.spec import ReleaseSpec
from synth_core.storage.files import atomic_write, sha256_file

FORMAT = 1


def charged_records(records: Sequence[Record]) -> list[Record]:
    """The latest record of each attempt that counts against the account."""
    latest: dict[tuple[str, int], Record] = {}
    for record in sorted(records, key=lambda record: record.id):
        if record.key and record.state in CHARGED | {State.REFUNDED}:
            latest[record.key, record.attempt] = record
    return [record for record in latest.values() if record.state in CHARGED]


def cost_by_step(records: Sequence[Record]) -> dict[str, Fraction]:
    """mu^2 of each step; strata of one partition compose in parallel."""
    plain: dict[str, Fraction] = defaultdict(Fraction)
    parts: dict[tuple[str, str], dict[str, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for record in records:
        plain[record.step] += Fraction(0)
    for record in charged_records(records):
        if record.stratum is None:
            plain[record.step] += record.mu2
        else:
            parts[record.step, record.stratum.partition][record.stratum.part] += record.mu2
    for (step, _), sums in parts.items():
        plain[step] += parallel_mu2(sums)
    return dict(plain)


def build(
    *,
    spec: ReleaseSpec,
    account: Account,
    snapshot: str,
    schema_digest: str,
    records: Sequence[Record],
    public: Path,
    artifacts: Sequence[Path],
    cliques: Sequence[Sequence[str]],
    provenance: dict[str, Any],
) -> dict[str, Any]:
    """The manifest of a release; `digest` covers everything but the provenance, which differs from run to run."""
    steps = {step: mu2 for step, mu2 in cost_by_step(records).items() if step}
    total = sum(steps.values(), Fraction(0))
    content: dict[str, Any] = {
        "format": FORMAT,
        "release": spec.release,
        "dataset": spec.dataset,
        "source_digest": snapshot,
        "schema_digest": schema_digest,
        "guarantee": {
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
        },
        "method": {"name": spec.method, "preset": spec.preset, "options": spec.options},
        "rows": spec.rows,
        "seed": spec.seed,
        "cliques": [list(clique) for clique in cliques],
        "artifacts": {str(path.relative_to(public)): sha256_file(path) for path in sorted(artifacts)},
    }
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
