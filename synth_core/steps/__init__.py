"""The steps of a release: one list of objects, which `run_step`, the command line, Airflow and the handbook read.

A step reads artifacts, calls pure code, writes artifacts and its budget-spend record, and returns an address. Only
addresses pass between steps, so a runner can stop and go on anywhere. DAG files read the list, so what a step needs is
imported when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from synth_core.errors import SpecError, needing
from synth_core.files import naming_files

if TYPE_CHECKING:
    from synth_core.privacy.accounts import Runner
    from synth_core.release.paths import ReleasePaths
    from synth_core.release.spec import ReleaseSpec
    from synth_core.steps.context import StepRun
    from synth_core.synthesizers.base import Progress

PartId: TypeAlias = str | int
"""Names one part of a step: the address of a stratum, or the number of a shard."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of a step that can each be run alone, at the same time on several workers.

    Attributes:
        name: What they are called.
        one: What one of them is called.
        listed: Lists those of a release, as soon as they are known; a release may have none.
        run: Runs one of them and returns the address of what it wrote.
        joined: Whether the step itself follows its parts and joins them; without, the parts are all of the step.
    """

    name: str
    one: str
    listed: Callable[[ReleasePaths, ReleaseSpec], list[PartId]]
    run: Callable[[StepRun, PartId], Path]
    joined: bool


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a release.

    Attributes:
        run: Runs the whole step and returns the address of what it wrote; the step has its name and its docstring.
        group: The group of tasks with which Airflow shows it.
        parts: Its parts, if it has any.
        spends: Whether it may ask the curator, which costs privacy.
    """

    run: Callable[[StepRun], Path]
    group: str
    parts: Parts | None = None
    spends: bool = True

    @property
    def name(self) -> str:
        """Its name, also of its task in Airflow and in its records of the ledger."""
        return self.run.__name__.removeprefix("_")

    @property
    def does(self) -> str:
        """What it does, in one sentence."""
        return self.run.__doc__ or ""


def _ingest(run: StepRun) -> Path:
    """Encodes the confidential source by the public schema, and buys the bins that the schema leaves open."""
    from synth_core.steps.ingest import ingest

    return ingest(run)


def _score(run: StepRun) -> Path:
    """Lets the method ask its first questions: noisy counts, and which columns depend on each other."""
    from synth_core.steps import conversation, strata

    return strata.score(run) if run.spec.strata else conversation.score(run)


def _select(run: StepRun) -> Path:
    """Lets the method decide from the noisy scores which marginals are worth measuring."""
    from synth_core.steps import conversation, strata

    return strata.select(run) if run.spec.strata else conversation.select(run)


def _fit(run: StepRun) -> Path:
    """Measures these marginals with noise and fits the model to the answers."""
    from synth_core.steps import conversation, households, strata

    if run.spec.linked:
        return households.fit(run)
    path = strata.fit(run) if run.spec.strata else conversation.fit(run)
    conversation.buy_moments(run)
    return path


def _strata(paths: ReleasePaths, spec: ReleaseSpec) -> list[PartId]:
    return [str(one.part) for one in paths.strata(spec)]


def _fit_stratum(run: StepRun, part: PartId) -> Path:
    from synth_core.steps.strata import fit_part

    return fit_part(run, str(part))


def _sample(run: StepRun) -> Path:
    """Draws the synthetic records from the model, one file for each shard."""
    from synth_core.steps.sample import sample

    return sample(run)


def _shards(_: ReleasePaths, spec: ReleaseSpec) -> list[PartId]:
    return list(range(spec.sampling_tasks))


def _sample_shard(run: StepRun, part: PartId) -> Path:
    from synth_core.steps.sample import sample_one

    return sample_one(run, int(part))


def _evaluate(run: StepRun) -> Path:
    """Judges the extract: by noisy answers for everybody, by real records for the internal report."""
    from synth_core.steps import evaluate, households

    return households.evaluate(run) if run.spec.linked else evaluate.evaluate(run)


def _publish(run: StepRun) -> Path:
    """Checks that ledger, files and manifest agree, signs the release and gives it its public name."""
    from synth_core.steps.publish import publish

    return publish(run)


PIPELINE = (
    Step(_ingest, "begin"),
    Step(_score, "model"),
    Step(_select, "model"),
    Step(_fit, "model", parts=Parts("strata", "stratum", listed=_strata, run=_fit_stratum, joined=True)),
    Step(
        _sample,
        "extract",
        parts=Parts("shards", "shard", listed=_shards, run=_sample_shard, joined=False),
        spends=False,
    ),
    Step(_evaluate, "disclosure"),
    Step(_publish, "disclosure", spends=False),
)
"""The steps in the order in which a release goes through them."""

STEPS = tuple(step.name for step in PIPELINE)
"""Names of the steps, in their order."""


def find_step(name: str) -> Step:
    """Returns the step of this name; raises SpecError if there is none."""
    for step in PIPELINE:
        if step.name == name:
            return step
    raise SpecError(f"unknown step {name!r}; the steps are: {', '.join(STEPS)}")


def prepare(spec: Mapping[str, Any] | Path, *, workspace: Path, runner: Runner | None = None) -> str:
    """Check spec, schema, method and budget, set the budget aside, and return the address of the prepared release.

    No confidential byte is read. Preparing the same release again changes nothing.
    """
    from synth_core.steps.preparation import prepare_release

    with naming_files():
        return prepare_release(spec, workspace=workspace, runner=runner)


def cost(
    spec: Mapping[str, Any] | Path, *, workspace: Path, records: int | None = None
) -> list[tuple[str, list[tuple[str, str]]]]:
    """What a release will cost and what to expect of it, in titled lists of facts; nothing is spent or read.

    Time, memory and disk are estimated for `records`; without it, for as many as the account may have.
    """
    from synth_core.steps.preview import preview_release

    with naming_files():
        return preview_release(spec, workspace=workspace, records=records)


def run_step(
    name: str,
    address: str,
    *,
    part: PartId | None = None,
    cluster: str | None = None,
    runner: Runner | None = None,
    progress: Progress | None = None,
) -> str:
    """Run one step of a prepared release.

    A published release stays as it is: its steps do nothing and return the manifest's address, and `publish` checks the
    files and ends the release's hold if that was interrupted.

    Args:
        name: The step.
        address: What `prepare` returned.
        part: Run this part of the step alone, one that `list_parts` has named.
        cluster: `local`, `processes`, `cuda`, or the address of a Dask scheduler; None uses threads of this process.
        runner: Who runs it, for the ledger; None is the person at the keyboard.
        progress: Called with one line for each thing worth reporting.

    Returns:
        The address of what the step wrote.

    Raises:
        SynthError: The step is refused, with a reason that names the remedy.
    """
    from synth_core.arrays import one_thread
    from synth_core.steps.context import open_run

    step = find_step(name)
    if name != "publish" and (manifest := published_manifest(address)):
        return manifest
    opened = open_run(address, cluster=cluster, runner=runner, progress=progress)
    with one_thread, naming_files(), opened as run, run.record_outcome(name), naming_files():
        return str(step.run(run) if part is None else _parts(step).run(run, part))


def list_parts(name: str, address: str) -> list[PartId]:
    """Returns the parts of a step of a prepared release; strata are known once `score` has run."""
    from synth_core.release.paths import ReleasePaths
    from synth_core.release.spec import ReleaseSpec

    paths = ReleasePaths.of_address(address)
    return _parts(find_step(name)).listed(paths, ReleaseSpec.load(paths.spec))


def most_parts(spec: Mapping[str, Any]) -> int:
    """The largest number of parts that a step of a release may have, as its spec and schema say."""
    from synth_core.release import strata
    from synth_core.release.spec import ReleaseSpec
    from synth_core.schema import DeclaredSchema

    wanted = ReleaseSpec.parse(dict(spec))
    models = strata.most_parts(wanted.strata, DeclaredSchema.load(Path(wanted.schema_)).planned) if wanted.strata else 1
    return max(models, wanted.sampling_tasks)


def _parts(step: Step) -> Parts:
    if step.parts is None:
        raise SpecError(f"the step {step.name!r} has no parts; run it as a whole")
    return step.parts


def import_steps() -> None:
    """Import every module that a step needs, for a process from which those that run steps are forked."""
    with needing("cli"):
        import distributed  # noqa: F401
        import sklearn.tree  # noqa: F401

    from synth_core.steps import evaluate, households, ingest, preparation, publish, sample, strata  # noqa: F401


def published_manifest(address: str) -> str | None:
    """The address of the manifest of a published release; None before it is published."""
    from synth_core.release.paths import ReleasePaths

    paths = ReleasePaths.of_address(address)
    return str(paths.manifest) if paths.published else None


def finished_steps(address: str) -> tuple[str, ...]:
    """The steps that a runner which goes on may pass over.

    A step is finished when its files are there. `publish` is finished when the release is signed, has ended its hold in
    the ledger, and verifies.
    """
    from synth_core.ledger.sql import open_ledger
    from synth_core.release.paths import ReleasePaths
    from synth_core.release.spec import ReleaseSpec
    from synth_core.steps.publish import is_settled

    paths = ReleasePaths.of_address(address)
    spec = ReleaseSpec.load(paths.spec)
    if paths.published:
        settled = is_settled(paths, spec, open_ledger(paths.workspace))
        return STEPS if settled else STEPS[:-1]
    artifacts, internal, done = paths.artifacts(spec), paths.internal(spec), []
    for step in STEPS[:-1]:
        if not all(path.exists() for path in [*artifacts[step], *internal.get(step, [])]):
            break
        done.append(step)
    return tuple(done)


def summary(address: str) -> dict[str, Any]:
    """Where a published release's files are, what it guarantees, and how good its table is by public figures."""
    from synth_core.steps.publish import summarise

    return summarise(address)


def needs_approval(address: str) -> bool:
    """Whether somebody has to approve the release before it is published: its spec says so, and it is not published."""
    from synth_core.release.paths import ReleasePaths
    from synth_core.release.spec import ReleaseSpec

    paths = ReleasePaths.of_address(address)
    return ReleaseSpec.load(paths.spec).approval and not paths.published


def ask_approval(address: str, *, runner: Runner | None = None) -> tuple[str, str] | None:
    """Notify people that the release waits for them; the draft's digest and certificate, None without approval.

    No approval is needed for what its spec does not submit to it, or what is published already.
    """
    from synth_core.steps.approval import ask
    from synth_core.steps.context import open_run

    if not needs_approval(address):
        return None
    with open_run(address, runner=runner) as run:
        return ask(run)


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
        run.end(reason)


def cancel_by_name(workspace: Path, release: str, *, reason: str, runner: Runner | None = None) -> None:
    """End a release by its name, also one of which only the ledger knows because it was stopped while prepared."""
    from synth_core.ledger.sql import open_ledger
    from synth_core.privacy.accounts import State
    from synth_core.release.paths import ReleasePaths
    from synth_core.steps.context import this_runner

    paths = ReleasePaths(workspace.resolve(), release)
    if paths.spec.exists():
        cancel(str(paths.spec), reason=reason, runner=runner)
        return
    ledger = open_ledger(workspace)
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
