"""What every step is given: the release's spec, schema, paths, ledger, cluster and runner."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from synth_core.cluster import Cluster, connect
from synth_core.domain import Domain
from synth_core.errors import SpecError, SynthError
from synth_core.events.journal import record_outcome
from synth_core.events.office import Office, look_at_refusals
from synth_core.files import atomic_write, sharing_work
from synth_core.ledger.sql import SqlLedger, open_ledger
from synth_core.measurement import EarlierRelease
from synth_core.models.reference import Reference
from synth_core.privacy.accounts import Account, Record, Runner
from synth_core.privacy.budget import NONE, BudgetPlan
from synth_core.privacy.curator import CountSource, Curator, Spending
from synth_core.privacy.reading import count_refusals
from synth_core.release.budget import ReleaseBudget, divide_budget
from synth_core.release.paths import ReleasePaths
from synth_core.release.prior import FrozenPrior
from synth_core.release.public_rows import read_prior
from synth_core.release.reuse import FrozenReuse, read_frozen
from synth_core.release.spec import ReleaseSpec
from synth_core.schema import Schema
from synth_core.schema.linked import AnySchema, LinkedSchema, load_schema
from synth_core.storage.counting import PartitionCounts
from synth_core.storage.household_partitions import Partition, PartitionTuples, partitions_of
from synth_core.storage.ingest import Snapshot
from synth_core.synthesizers.base import Synthesizer, require_prior, silent
from synth_core.synthesizers.households_first import households_first
from synth_core.synthesizers.methods import synthesizer

T = TypeVar("T")

PUBLISHED = "published"
"""The reason with which the ledger ends the hold of a release that was published."""


@dataclass(frozen=True)
class StepRun:
    """One step's run; everything in it is public except what the curator and the confidential zone hold."""

    spec: ReleaseSpec
    declared: AnySchema
    paths: ReleasePaths
    ledger: SqlLedger
    cluster: Cluster
    runner: Runner
    progress: Callable[[str], None]

    @cached_property
    def schema(self) -> Schema:
        """The columns the method is asked about, refused where the step `ingest` has not bought their bins.

        Those of two linked tables are the columns of a household, its size, and the columns of one person.
        """
        return self.declared.flat if isinstance(self.declared, LinkedSchema) else self.declared.resolve()

    @property
    def linked(self) -> LinkedSchema:
        """The declaration of two linked tables; asked for by what is run for these alone."""
        if not isinstance(self.declared, LinkedSchema):
            raise SpecError(f"release {self.spec.release!r} has one table")
        return self.declared

    @cached_property
    def domain(self) -> Domain:
        """The public domain of these columns."""
        return self.linked.domain(1) if self.spec.linked else self.schema.domain  # with the bins that were bought

    @cached_property
    def method(self) -> Synthesizer:
        """The synthesizer that the spec names."""
        return release_method(self.spec, self.declared)

    @cached_property
    def reused(self) -> FrozenReuse:
        """The answers of earlier releases on which this one builds, as they were when it began."""
        return FrozenReuse.load(self.paths.reuse) if self.spec.reuse else FrozenReuse()

    @property
    def earlier(self) -> list[EarlierRelease]:
        """The noisy tables of these answers, read from the ledger."""
        return read_frozen(self.ledger, self.spec.dataset, self.reused, self.domain)

    @property
    def prior(self) -> FrozenPrior | None:
        """The public table on which this release builds, as it was when it began."""
        return FrozenPrior.load(self.paths.prior) if self.spec.prior else None

    def learn_prior(self) -> Reference | None:
        """What the method makes of it; the table is read again, and must be the same."""
        if self.spec.prior is None or self.prior is None:
            return None
        self.progress("learning from the public table")
        return require_prior(self.method).learn_prior(read_prior(self.spec.prior, self.prior, self.schema))

    @cached_property
    def plan(self) -> BudgetPlan:
        """How the method's budget is shared among its questions."""
        return self.method.plan(self.domain, self.budget.method)

    @cached_property
    def budget(self) -> ReleaseBudget:
        """How the release's budget is divided."""
        has_pairs = isinstance(self.declared, LinkedSchema) and self.declared.has_pairs
        return divide_budget(self.spec, rows_per_unit=self.account.rows_per_unit, has_pairs=has_pairs)

    @cached_property
    def account(self) -> Account:
        """The account that pays."""
        return self.ledger.balance(self.spec.dataset).account

    @cached_property
    def snapshot(self) -> Snapshot:
        """What was ingested."""
        if not self.paths.snapshot.exists():
            raise SpecError(f"release {self.spec.release!r} has not been ingested; run the step `ingest` first")
        return Snapshot.load(self.paths.snapshot)

    @property
    def partitions(self) -> list[Path]:
        """Addresses of the encoded partitions."""
        return [self.paths.encoded / name for name in self.snapshot.partitions]

    @property
    def household_partitions(self) -> list[Partition]:
        """Addresses of the same, where they hold households and their people."""
        return partitions_of(self.paths.encoded, self.snapshot.partitions)

    def spending(self, step: str, snapshot: Snapshot | None = None) -> Spending:
        """On whose account this step spends; the snapshot is that of the ingested rows, unless another is given."""
        return Spending(
            dataset=self.spec.dataset,
            snapshot=(snapshot or self.snapshot).digest,
            release=self.spec.release,
            step=step,
            runner=self.runner,
        )

    def curator(self, step: str, *, places: int = 1) -> Curator:
        """The door to the counts, for this step; those of linked tables are of tuples of so many people."""
        counts: CountSource = (
            PartitionTuples(self.household_partitions, self.linked, self.cluster, places=places)
            if self.spec.linked
            else PartitionCounts(self.partitions, self.domain, self.cluster)
        )
        return Curator(counts=counts, ledger=self.ledger, spending=self.spending(step))

    def read(self, step: str, work: Callable[[], T]) -> T:
        """Do work on confidential records; a refusal is counted, and people are called, before anybody sees it."""
        facts = {"dataset": self.spec.dataset, "release": self.spec.release}
        try:
            return count_refusals(work, ledger=self.ledger, **facts, step=step, runner=self.runner)
        except SynthError:
            look_at_refusals(Office(self.paths.workspace))
            raise

    def record_outcome(self, step: str) -> AbstractContextManager[None]:
        """Record in the workspace's event log how the step ends."""
        facts = {"dataset": self.spec.dataset, "release": self.spec.release}
        return record_outcome(self.paths.workspace, **facts, step=step, runner=self.runner)

    def records(self) -> list[Record]:
        """The release's own records in the ledger, oldest first."""
        return self.ledger.records(dataset=self.spec.dataset, release=self.spec.release)

    def end(self, reason: str) -> None:
        """End the release's hold: charges stay, what it set aside and never reserved is free again."""
        self.ledger.close(self.spec.dataset, self.spec.release, reason=reason, runner=self.runner)

    def note(self, step: str, purpose: str = "step finished") -> None:
        """Write the record that every step leaves, also one that cost nothing."""
        self.ledger.note(self.spending(step).request(purpose, NONE))

    def finish(self, step: str, path: Path, save: Callable[[Path], None]) -> Path:
        """Write what a step leaves, which is whole or absent, and then its record; returns the address."""
        with atomic_write(path) as temporary:
            save(temporary)
        self.note(step)
        return path


def release_method(spec: ReleaseSpec, declared: AnySchema | None = None) -> Synthesizer:
    """The synthesizer that a spec names, with the tables that it protects; of linked tables, households come first."""
    method = synthesizer(spec.method, spec.preset, spec.options, protect=spec.protect, protect_share=spec.protect_share)
    return households_first(method, declared) if isinstance(declared, LinkedSchema) else method


def this_runner() -> Runner:
    """A runner outside of any scheduler: the person at the keyboard."""
    try:
        return Runner(actor=getpass.getuser())
    except (KeyError, OSError):
        return Runner(actor="unknown")


@contextmanager
def open_run(
    address: str,
    *,
    cluster: str | None = None,
    runner: Runner | None = None,
    progress: Callable[[str], None] | None = None,
) -> Iterator[StepRun]:
    """Open a prepared release for one step, which may spend until somebody ends the release.

    The first to be at work for it removes encoded rows and half-written files of steps that were killed.
    """
    paths = ReleasePaths.of_address(address)
    spec = ReleaseSpec.load(paths.spec)
    declared = load_schema(paths.schema)
    ledger, who = open_ledger(paths.workspace), runner or this_runner()
    if who.since is None:
        who = replace(who, since=ledger.head().records)
    with sharing_work(paths.confidential / "steps.lock", paths.confidential, paths.draft), connect(cluster) as opened:
        yield StepRun(
            spec=spec,
            declared=declared,
            paths=paths,
            ledger=ledger,
            cluster=opened,
            runner=who,
            progress=progress or silent,
        )
