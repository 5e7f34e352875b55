"""The seven steps of a release: one list, and three runners (the CLI, Dask, Airflow) that walk it.

A step reads artifacts, calls pure code, writes artifacts and its budget-spend record, and returns an address. Only
addresses pass between steps, so a runner can stop and go on anywhere. Nothing heavy is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from synth_core.privacy.accounts import Runner

STEPS = ("ingest", "score", "select", "fit", "sample", "evaluate", "publish")
CONVERSATION = ("score", "select", "fit")
"""The steps that ask; a stratified release has such a conversation about each of its parts."""

Progress = Callable[[str], None]


def prepare(spec: Mapping[str, Any] | Path, *, workspace: Path, runner: Runner | None = None) -> str:
    """Check spec, schema, method and budget, set the budget aside, and return the address of the prepared release.

    No confidential byte is read. Preparing the same release again changes nothing.
    """
    from synth_core.steps.preparation import prepare_release

    return prepare_release(spec, workspace=workspace, runner=runner)


def cost(spec: Mapping[str, Any] | Path, *, workspace: Path) -> list[tuple[str, list[tuple[str, str]]]]:
    """What a release will cost and what to expect of it, in titled lists of facts; nothing is spent or read."""
    from synth_core.steps.preview import preview_release

    return preview_release(spec, workspace=workspace)


def run_step(
    name: str,
    address: str,
    *,
    cluster: str | None = None,
    runner: Runner | None = None,
    progress: Progress | None = None,
) -> str:
    """Run one step of a prepared release and return the address of what it wrote.

    A published release stays as it is: its steps do nothing and return the manifest's address, and `publish` checks the
    files and ends the release's hold if that was interrupted.
    """
    import importlib

    from synth_core.errors import SpecError
    from synth_core.steps.context import open_run

    if name not in STEPS:
        raise SpecError(f"unknown step {name!r}; the steps are: {', '.join(STEPS)}")
    if name != "publish" and (manifest := published_manifest(address)):
        return manifest
    with open_run(address, cluster=cluster, runner=runner, progress=progress) as run, run.watched(name):
        module = "stratified" if run.spec.strata and name in CONVERSATION else name
        step = importlib.import_module(f"synth_core.steps.{module}")
        return str(getattr(step, name)(run))


def import_steps() -> None:
    """Import every module that a step needs, for a process from which those that run steps are forked."""
    import importlib

    for module in (*STEPS, "stratified", "preparation"):
        importlib.import_module(f"synth_core.steps.{module}")
    for module in ("distributed", "sklearn.svm"):
        importlib.import_module(module)


def strata(address: str) -> list[str]:
    """The addresses of a stratified release's parts, once it has come to `select`; none without strata."""
    from synth_core.steps.context import open_run
    from synth_core.steps.stratified import part_addresses

    with open_run(address) as run:
        return part_addresses(run)


def fit_stratum(
    address: str,
    stratum: str,
    *,
    cluster: str | None = None,
    runner: Runner | None = None,
    progress: Progress | None = None,
) -> str:
    """Fit one part of a stratified release; the step `fit` joins the parts, and fits those that are missing."""
    from synth_core.steps.context import open_run
    from synth_core.steps.stratified import fit_part

    if manifest := published_manifest(address):
        return manifest
    with open_run(address, cluster=cluster, runner=runner, progress=progress) as run, run.watched("fit"):
        return str(fit_part(run, stratum))


def shards(address: str) -> list[int]:
    """The numbers of the shards that `sample` writes."""
    from synth_core.release.paths import ReleasePaths
    from synth_core.release.spec import ReleaseSpec

    return list(range(ReleaseSpec.load(ReleasePaths.of_address(address).spec).shards))


def published_manifest(address: str) -> str | None:
    """The address of the manifest of a published release; None before it is published."""
    from synth_core.release.paths import ReleasePaths

    paths = ReleasePaths.of_address(address)
    return str(paths.manifest) if paths.published else None


def finished(address: str) -> tuple[str, ...]:
    """The steps that a runner which goes on may pass over.

    A step is finished when its files are there. `publish` is finished when the release is signed, has ended its hold in
    the ledger, and verifies.
    """
    from synth_core.ledger.sql import SqlLedger, ledger_url
    from synth_core.release.paths import ReleasePaths
    from synth_core.release.spec import ReleaseSpec
    from synth_core.steps.publish import is_settled

    paths = ReleasePaths.of_address(address)
    spec = ReleaseSpec.load(paths.spec)
    if paths.published:
        settled = is_settled(paths, spec, SqlLedger(ledger_url(paths.workspace, None)))
        return STEPS if settled else STEPS[:-1]
    internal = {"ingest": [paths.snapshot], "evaluate": [paths.evaluation, paths.internal_report]}
    artifacts, done = paths.artifacts(spec), []
    for step in STEPS[:-1]:
        if not all(path.exists() for path in [*artifacts[step], *internal.get(step, [])]):
            break
        done.append(step)
    return tuple(done)


def sample_shard(
    address: str, shard: int, *, cluster: str | None = None, runner: Runner | None = None
) -> str:
    """Write one shard of the synthetic table; the step `sample` is all of them."""
    from synth_core.steps.context import open_run
    from synth_core.steps.sample import sample_one

    if manifest := published_manifest(address):
        return manifest
    with open_run(address, cluster=cluster, runner=runner) as run, run.watched("sample"):
        return str(sample_one(run, shard))


def summary(address: str) -> dict[str, Any]:
    """Where a published release's files are, what it guarantees, and how good its table is by public figures."""
    from synth_core.steps.publish import summarise

    return summarise(address)


def ask_approval(address: str, *, runner: Runner | None = None) -> tuple[str, str] | None:
    """Tell people that the release waits for them; the draft's digest and certificate, None if nobody need approve.

    Nobody need approve what its spec does not submit to approval, or what is published already.
    """
    from synth_core.steps.approval import ask
    from synth_core.steps.context import open_run

    with open_run(address, runner=runner) as run:
        if not run.spec.approval or run.paths.published:
            return None
        waiting = ask(run)
        return waiting.digest, waiting.text


def decide(address: str, *, approved: bool, seen: str, runner: Runner | None = None) -> None:
    """Record what the runner's actor decided about the draft with the digest `seen`; a rejection keeps all charges."""
    from synth_core.steps import approval
    from synth_core.steps.context import open_run

    with open_run(address, runner=runner) as run:
        approval.decide(run, approved=approved, seen=seen)


def cancel(address: str, *, reason: str, runner: Runner | None = None) -> None:
    """End a release that will not be published: what it set aside and never reserved is free again."""
    from synth_core.steps.context import open_run

    with open_run(address, runner=runner) as run:
        run.ledger.close(run.spec.dataset, run.spec.release, reason=reason, runner=run.runner)


def cancel_by_name(workspace: Path, release: str, *, reason: str, runner: Runner | None = None) -> None:
    """End a release by its name, also one of which only the ledger knows because it was stopped while prepared."""
    from synth_core.errors import SpecError
    from synth_core.ledger.sql import SqlLedger, ledger_url
    from synth_core.privacy.accounts import State
    from synth_core.release.paths import ReleasePaths
    from synth_core.steps.context import this_runner

    paths = ReleasePaths(workspace.resolve(), release)
    if paths.spec.exists():
        cancel(str(paths.spec), reason=reason, runner=runner)
        return
    ledger = SqlLedger(ledger_url(workspace, None))
    held = {record.dataset for record in ledger.records(release=release) if record.state is State.HELD}
    if not held:
        raise SpecError(f"release {release!r} was never begun in {workspace}; see `synth ledger show`")
    for dataset in sorted(held):
        ledger.close(dataset, release, reason=reason, runner=runner or this_runner())


def end_run(workspace: Path, *, reason: str, runner: Runner) -> list[str]:
    """Free what a DAG run set aside and did not use, however the run ended; the names of its releases.

    A release that another run has resumed since is that run's own.
    """
    from synth_core.ledger.sql import open_ledger
    from synth_core.privacy.accounts import State

    ledger = open_ledger(workspace)
    last = {
        (record.dataset, record.release): (record.runner.dag, record.runner.run)
        for record in ledger.records()
        if record.state is State.HELD
    }
    own = sorted(held for held, by in last.items() if by == (runner.dag, runner.run))
    for dataset, release in own:
        ledger.close(dataset, release, reason=reason, runner=runner)
    return sorted(release for _, release in own)
