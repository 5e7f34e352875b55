"""Step 7: check that ledger, artifacts and manifest agree, sign, and publish; only public files are read.

The release is signed where it was written, in its draft, and published by a rename of that folder. On a POSIX file
system (local disks, NFS, CephFS) the rename happens or does not; a mounted object store copies file by file, so
the public zone may not be one.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from synth_core.errors import PublishError, SynthError
from synth_core.evaluation.public import PublicQuality
from synth_core.files import close_to_others, flush_to_disk, read_file, sha256_file, write_text
from synth_core.inference.replicates import Replicates
from synth_core.inference.uncertain import interval_statement
from synth_core.ledger.sql import SqlLedger
from synth_core.models.households import HouseholdModel
from synth_core.models.mixture import load_model
from synth_core.privacy.accounts import Record, State
from synth_core.release import certificate as certificates
from synth_core.release import manifest as manifests
from synth_core.release import signing
from synth_core.release.manifest import LinkedFacts
from synth_core.release.paths import PUBLIC_KEY, SIGNATURE, SIGNED, ReleasePaths
from synth_core.release.prior import say_prior
from synth_core.release.reuse import say_reuse
from synth_core.release.spec import ReleaseSpec
from synth_core.release.verify import Verification, check_folder
from synth_core.report.changes import Previous
from synth_core.report.households import HouseholdSection, public_section
from synth_core.report.public import mean_distances, public_report
from synth_core.schema.linked import load_schema, planned_schema
from synth_core.steps.approval import Decision, require_approval, require_unchanged
from synth_core.steps.context import PUBLISHED, StepRun
from synth_core.steps.evaluate import spend_lines
from synth_core.steps.households import some_published
from synth_core.synthesizers.base import load_scores


def publish(run: StepRun) -> Path:
    """Complete and sign the draft, verify it, and give it its public name: one rename, which is the publication.

    Killed before the rename, the release is a draft as before, and publishing starts again. Killed after it, the
    release is published, and a rerun only checks it and ends its hold. What was published is never written again.

    Args:
        run: The release, evaluated and, where its spec asks for that, approved.

    Returns:
        The address of the published manifest.

    Raises:
        PublishError: A file is missing, differs from what was approved, breaks a rule, or disagrees with ledger or
            signature; or the release was published before and its files have changed since.
    """
    with _alone(run.paths):
        if not run.paths.published:
            _complete_draft(run)
            _require_sound(run, "is not published", check_folder(run.paths.draft))
            _rename(run.paths)
        else:
            _require_sound(run, "was published, and has changed since", check_folder(run.paths.public))
        run.end(PUBLISHED)
    return run.paths.manifest


def is_settled(paths: ReleasePaths, spec: ReleaseSpec, ledger: SqlLedger) -> bool:
    """Whether nothing is left to be done: the release is published, its hold has ended, and its files verify."""
    turn = certificates.last_turn(ledger.records(dataset=spec.dataset, release=spec.release))
    ended = turn is None or turn.state is State.CLOSED
    return paths.published and ended and check_folder(paths.public).sound


def summarise(address: str) -> dict[str, Any]:
    """Addresses of the published files, the guarantee, and the public quality; no true error is among it.

    Raises:
        PublishError: The release is not published.
    """
    paths = ReleasePaths.of_address(address)
    if not paths.published:
        raise PublishError(f"release {paths.release!r} is not published yet; run it to its end")
    manifest = json.loads(paths.manifest.read_text(encoding="utf-8"))
    return {
        "release": paths.release,
        "extract": str(paths.extract),
        "manifest": str(paths.manifest),
        "public report": str(paths.public_report),
        "page of tables": str(paths.explorer) if paths.explorer.exists() else "none",
        "internal report": str(paths.internal_report) if paths.internal_report.exists() else "none",
        "ledger": str(paths.ledger),
        "epsilon": manifest["guarantee"]["epsilon"],
        "delta": manifest["guarantee"]["delta"],
        "digest": manifest["digest"],
        "quality": _quality_in_words(manifest["quality"]),
    }


def _complete_draft(run: StepRun) -> None:
    """Write what publication adds to the draft, the signature last, and remove what no step has listed."""
    spec, paths = run.spec, run.paths
    approval = require_approval(run)
    for problem in run.ledger.verify():
        raise PublishError(f"release {spec.release!r} is not published: {problem}")
    artifacts = _artifacts(run)
    publication = _state_account(run)
    records = run.ledger.records()
    built = _write_documents(run, certificates.guarantee(publication.id, spec.epsilon, records))
    complete = manifests.complete(
        built, public=paths.draft, artifacts=artifacts, provenance=_provenance(run, approval, publication)
    )
    for problem in certificates.guarantee_problems(complete, records):
        raise PublishError(f"release {spec.release!r} is not published: {problem}")
    require_unchanged(run, approval, complete["artifacts"])
    _sign(complete, paths)
    _remove_others(paths.draft, keep={*complete["artifacts"], *SIGNED})


def _state_account(run: StepRun) -> Record:
    """Write the publication record, as of which the account is stated.

    A draft that was interrupted before it was published gets another one, because others may have spent in between.
    """
    purpose = certificates.stating_purpose(run.records())
    run.note(certificates.STEP, purpose)
    return next(record for record in run.records() if record.purpose == purpose)


def _write_documents(run: StepRun, guarantee: certificates.Guarantee) -> dict[str, Any]:
    """Write certificate, registry entry and report; returns the manifest that they state, without artifacts."""
    spec, paths, own = run.spec, run.paths, run.records()
    model = HouseholdModel.load(paths.model) if spec.linked else load_model(paths.model)
    quality = _lawful_quality(run)
    before = _previous(paths, spec)
    previous = before.manifest if before else None
    scores = load_scores(paths.scores) if spec.reuse or spec.prior else None
    built = manifests.build(
        spec=spec,
        guarantee=guarantee,
        schema=run.schema,
        cliques=model.cliques,
        quality=_quality_in_short(quality),
        previous=previous,
        reused=say_reuse(run.reused, scores.set_aside if scores else ()),
        prior=say_prior(run.prior, used=scores is not None and scores.reference is not None),
        linked=LinkedFacts(run.linked, quality.rows, quality.people) if spec.linked else None,
    )
    answers = [asdict(answer) for answer in run.reused.answers]
    certificate, entry = certificates.certificate(built, own, answers), certificates.deployment(built)
    if spec.refits:
        certificate["intervals"] = interval_statement(len(Replicates.load(paths.replicates)))
    report = public_report(
        built,
        quality,
        schema=run.schema,
        tree=model.tree,
        spends=spend_lines(own),
        previous=before,
        households=_households(run, model, quality),
    )
    write_text(paths.certificate, json.dumps(certificate, indent=1) + "\n")
    write_text(paths.deployment, yaml.safe_dump(entry, sort_keys=False, allow_unicode=True, width=110))
    write_text(paths.public_report, report)
    return built


def _households(run: StepRun, model: object, quality: PublicQuality) -> HouseholdSection | None:
    """What the public report says of households and their people; nothing of one table."""
    if not isinstance(model, HouseholdModel):
        return None
    broken = {rule.name: quality.violations[rule.name] for rule in run.linked.together}
    published = some_published(run.paths, run.linked)
    return public_section(run.linked, published, model, broken=broken, counts=(quality.rows, quality.people))


def _previous(paths: ReleasePaths, spec: ReleaseSpec) -> Previous | None:
    """What the release before has published; of damaged files of it nothing is known."""
    zone = paths.public.parent
    manifest = manifests.previous_manifest(zone, dataset=spec.dataset, release=spec.release)
    if manifest is None:
        return None
    files = ReleasePaths(paths.workspace, manifest["release"])
    try:
        for path in (files.quality, files.schema):
            if sha256_file(files.public / path.name) != manifest["artifacts"][path.name]:
                raise ValueError(path.name)
        quality = PublicQuality.from_json(read_file(files.public / files.quality.name))
        schema = planned_schema(load_schema(files.public / files.schema.name))
    except (OSError, ValueError, KeyError, SynthError):
        return Previous(manifest=manifest)
    return Previous(manifest=manifest, quality=quality, schema=schema)


def _artifacts(run: StepRun) -> list[Path]:
    """All files of the release but manifest and signature; one that another step should have written is refused."""
    artifacts = run.paths.artifacts(run.spec)
    for step, paths in artifacts.items():
        missing = [path.name for path in paths if not path.is_file()]
        if missing and step != "publish":
            raise PublishError(f"release {run.spec.release!r}: {missing[0]} is missing; run the step `{step}` again")
    return [path for paths in artifacts.values() for path in paths]


def _lawful_quality(run: StepRun) -> PublicQuality:
    """The public quality of a table in which no row breaks a rule; another one is refused."""
    quality = PublicQuality.from_json(run.paths.quality.read_bytes())
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
        "answers_used": quality.answers_used,
        "answers_unused": quality.answers_unused,
        "bought": [
            {"alpha": e.alpha, "mean": e.mean, "margin": e.margin, "marginals": e.marginals} for e in quality.bought
        ],
        "rule_violations": quality.violations,
    }
    if quality.people:
        short["people"] = quality.people
    if quality.pairs:
        distance, noise = mean_distances(quality.pairs)
        short |= {"distance_from_answers_of_pairs": distance, "distance_of_noise_alone_of_pairs": noise}
    if quality.measured:
        distance, noise = mean_distances(quality.measured)
        short |= {"distance_from_answers": distance, "distance_of_noise_alone": noise}
    return short


def _provenance(run: StepRun, approval: Decision | None, publication: Record) -> dict[str, Any]:
    """Who approved and published when, with which code, at which record; all that differs from run to run is here."""
    return {
        "published_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **manifests.software(),
        "dag": run.runner.dag,
        "run": run.runner.run,
        "approval": {"by": approval.by, "at": approval.at.isoformat(timespec="seconds")} if approval else None,
        "ledger": {"records": publication.id, "hash": publication.hash},
    }


def _sign(manifest: dict[str, Any], paths: ReleasePaths) -> None:
    """Write the manifest, the public key and, last, the signature of the manifest's bytes."""
    key = signing.private_key(signing.key_path(paths), create=True)
    write_text(paths.manifest, json.dumps(manifest, indent=2) + "\n")
    content = paths.manifest.read_bytes()
    write_text(paths.draft / PUBLIC_KEY, signing.public_pem(key))
    write_text(paths.draft / SIGNATURE, signing.signature(content, key))


def _remove_others(folder: Path, *, keep: set[str]) -> None:
    """Remove what killed steps have left in the draft: nothing is published that the manifest does not list.

    Whatever the umask was, not everybody may write to what stays.
    """
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
                continue
        elif str(path.relative_to(folder)) not in keep:
            path.unlink()
            continue
        close_to_others(path)
    close_to_others(folder)


def _rename(paths: ReleasePaths) -> None:
    """Publish the draft; the rename is on the disk before anything reports it."""
    try:
        paths.draft.rename(paths.public)
    except OSError:
        raise PublishError(
            f"release {paths.release!r} is not published: {paths.public} cannot be created; "
            "remove what is there, or check who may write to it"
        ) from None
    flush_to_disk(paths.drafts)
    flush_to_disk(paths.public.parent)


@contextmanager
def _alone(paths: ReleasePaths) -> Iterator[None]:
    """Let one process at a time publish a release; another one waits, and finds it published."""
    with (paths.confidential / "publish.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _require_sound(run: StepRun, verdict: str, found: Verification) -> None:
    for problem in found.problems:
        raise PublishError(f"release {run.spec.release!r} {verdict}: {problem}")


def _quality_in_words(quality: dict[str, Any]) -> dict[str, str]:
    words = {"synthetic records": f"{quality['synthetic_rows']:,}"}
    if "people" in quality:
        words = {"synthetic households": words["synthetic records"], "their people": f"{quality['people']:,}"}
    if "distance_from_answers" in quality:
        words["distance from the noisy answers"] = f"{quality['distance_from_answers']:.2%} of the records"
        words["distance that noise alone explains"] = f"{quality['distance_of_noise_alone']:.2%} of the records"
    for error in quality["bought"]:
        words[f"mean error, {error['alpha']}-way (bought)"] = (
            f"{error['mean']:.2%} ± {100 * error['margin']:.2f} points"
        )
    return words
