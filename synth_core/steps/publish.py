"""Step 7: check that ledger, artifacts and manifest agree, and sign the release off; only public files are read."""

from __future__ import annotations

import json
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from synth_core.errors import PublishError
from synth_core.evaluation import Evaluation
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.release import manifest as manifests
from synth_core.release.paths import ReleasePaths
from synth_core.release.spec import ReleaseSpec
from synth_core.steps.compare import headline
from synth_core.steps.context import StepRun


def publish(run: StepRun) -> Path:
    """Write the manifest, verify it against the ledger and the files, and close the release's hold."""
    spec, paths = run.spec, run.paths
    run.note("publish")
    missing = [number for number in range(spec.shards) if not paths.shard(number).is_file()]
    if missing:
        raise PublishError(
            f"release {spec.release!r}: shard {missing[0]} is missing; run the step `sample` again"
        )
    for problem in run.ledger.verify():
        raise PublishError(f"release {spec.release!r} is not published: {problem}")
    records = run.ledger.records(dataset=spec.dataset, release=spec.release)
    built = manifests.build(
        spec=spec,
        account=run.ledger.balance(spec.dataset).account,
        snapshot=run.snapshot.digest,
        schema_digest=run.schema.digest(),
        records=records,
        public=paths.public,
        artifacts=[
            *(paths.schema, paths.scores, paths.structure, paths.model),
            *(paths.shard(number) for number in range(spec.shards)),
        ],
        cliques=MarkovRandomField.load(paths.model).cliques,
        provenance={
            "published_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "software": f"synth-core {version('synth-core')}",
            "python": platform.python_version(),
            "dag": run.runner.dag,
            "run": run.runner.run,
        },
    )
    for problem in manifests.problems(built, paths.public, records=records):
        raise PublishError(f"release {spec.release!r} is not published: {problem}")
    manifests.write(built, paths.manifest)
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
        "report": str(paths.internal_report),
        "ledger": str(paths.ledger),
        "epsilon": manifest["guarantee"]["epsilon"],
        "delta": manifest["guarantee"]["delta"],
        "digest": manifest["digest"],
        "quality": headline(evaluation),
    }
