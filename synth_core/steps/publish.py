"""Step 7: check that ledger, artifacts and manifest agree, sign, and publish; only public files are read."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from synth_core.errors import PublishError
from synth_core.evaluation import Evaluation
from synth_core.evaluation.public import PublicQuality
from synth_core.release import certificate as certificates
from synth_core.release import manifest as manifests
from synth_core.release import signing
from synth_core.release.paths import ReleasePaths
from synth_core.release.software import software
from synth_core.release.spec import ReleaseSpec
from synth_core.report import public_report
from synth_core.report.public_exhibits import mean_distances
from synth_core.steps import stratified
from synth_core.steps.approval import Decision, require_approval
from synth_core.steps.compare import headline
from synth_core.steps.context import StepRun
from synth_core.steps.evaluate import spend_lines
from synth_core.storage.files import atomic_write
from synth_core.synthesizers.saved import load_model


def publish(run: StepRun) -> Path:
    """Write report, certificate and manifest, verify them against the ledger and the files, sign, close the hold."""
    spec, paths = run.spec, run.paths
    approval = require_approval(run)
    run.note("publish")
    for problem in run.ledger.verify():
        raise PublishError(f"release {spec.release!r} is not published: {problem}")
    artifacts = _artifacts(run)
    records = run.ledger.records(dataset=spec.dataset)
    own = [record for record in records if record.release == spec.release]
    model = load_model(paths.model)
    quality = _lawful_quality(run)
    previous = manifests.previous_manifest(paths.public.parent, dataset=spec.dataset, release=spec.release)
    built = manifests.build(
        spec=spec,
        account=run.account,
        snapshot=run.snapshot.digest,
        schema=run.schema,
        records=records,
        cliques=model.cliques,
        quality=_quality_in_short(quality),
        previous=previous,
    )
    certificate = certificates.certificate(built, own)
    report = public_report(
        built, quality, schema=run.schema, tree=model.tree, spends=spend_lines(own), previous=previous
    )
    _write(paths.certificate, json.dumps(certificate, indent=1) + "\n")
    _write(
        paths.deployment,
        yaml.safe_dump(certificates.deployment(built), sort_keys=False, allow_unicode=True, width=110),
    )
    _write(paths.public_report, report)
    complete = manifests.complete(
        built, public=paths.public, artifacts=artifacts, provenance=_provenance(run, approval)
    )
    found = manifests.problems(complete, paths.public, records=own)
    for problem in [*found, *certificates.problems(certificate, complete)]:
        raise PublishError(f"release {spec.release!r} is not published: {problem}")
    _sign(complete, paths)
    run.ledger.close(spec.dataset, spec.release, reason="published", runner=run.runner)
    return paths.manifest


def summarise(address: str) -> dict[str, Any]:
    """Addresses of the published files and headline numbers of the internal evaluation."""
    paths = ReleasePaths.of_address(address)
    spec = ReleaseSpec.load(paths.spec)
    manifest = json.loads(paths.manifest.read_text(encoding="utf-8"))
    evaluation = Evaluation.from_json(paths.evaluation.read_text(encoding="utf-8"))
    return {
        "release": spec.release,
        "extract": str(paths.extract),
        "manifest": str(paths.manifest),
        "public report": str(paths.public_report),
        "report": str(paths.internal_report),
        "ledger": str(paths.ledger),
        "epsilon": manifest["guarantee"]["epsilon"],
        "delta": manifest["guarantee"]["delta"],
        "digest": manifest["digest"],
        "quality": headline(evaluation),
    }


def _artifacts(run: StepRun) -> list[Path]:
    """All files of the release but manifest and signature; one that another step should have written is refused."""
    spec, paths = run.spec, run.paths
    missing = [
        number
        for number in range(spec.shards)
        if not paths.shard(number).is_file()
        or (spec.csv and not paths.shard(number).with_suffix(".csv").is_file())
    ]
    if missing:
        raise PublishError(
            f"release {spec.release!r}: shard {missing[0]} is missing; run the step `sample` again"
        )
    if not paths.quality.is_file():
        raise PublishError(f"release {spec.release!r}: its quality is missing; run the step `evaluate` again")
    return [
        *(paths.schema, paths.scores, paths.structure, paths.model, paths.quality),
        *stratified.artifacts(run),
        *(paths.public_report, paths.certificate, paths.deployment),
        *paths.shards(spec.shards, csv=spec.csv),
    ]


def _lawful_quality(run: StepRun) -> PublicQuality:
    """The public quality of a table in which no row breaks a rule; another one is refused."""
    quality = PublicQuality.from_json(run.paths.quality.read_text(encoding="utf-8"))
    for rule, rows in quality.violations.items():
        if rows:
            raise PublishError(
                f"release {run.spec.release!r} is not published: {rows:,} synthetic rows break rule {rule!r}; "
                "run the steps from `fit` on again"
            )
    return quality


def _quality_in_short(quality: PublicQuality) -> dict[str, Any]:
    short: dict[str, Any] = {
        "origin": "noisy answers" if not quality.bought else "noisy answers, and errors bought with noise",
        "noisy_total": quality.total,
        "synthetic_rows": quality.rows,
        "measured_marginals": len(quality.measured),
        "bought": [
            {"alpha": e.alpha, "mean": e.mean, "margin": e.margin, "marginals": e.marginals}
            for e in quality.bought
        ],
        "rule_violations": quality.violations,
    }
    if quality.measured:
        distance, noise = mean_distances(quality.measured)
        short |= {"distance_from_answers": distance, "distance_of_noise_alone": noise}
    return short


def _provenance(run: StepRun, approval: Decision | None) -> dict[str, Any]:
    """Who approved and published when, with which code, on which ledger; all that differs from run to run is here."""
    head = run.ledger.head()
    return {
        "published_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **software(),
        "dag": run.runner.dag,
        "run": run.runner.run,
        "approval": {"by": approval.by, "at": approval.at.isoformat(timespec="seconds")}
        if approval
        else None,
        "ledger": {"records": head.records, "hash": head.hash},
    }


def _sign(manifest: dict[str, Any], paths: ReleasePaths) -> None:
    """Write the manifest with its signature; in between, the old signature is gone rather than wrong."""
    key = signing.private_key(signing.key_path(paths), create=True)
    paths.signature.unlink(missing_ok=True)
    manifests.write(manifest, paths.manifest)
    _write(paths.public_key, signing.public_pem(key))
    _write(paths.signature, signing.signature(paths.manifest.read_bytes(), key))


def _write(path: Path, text: str) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
