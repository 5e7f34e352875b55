"""Where a release keeps its files: one confidential zone, one public zone, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from synth_core.errors import SpecError
from synth_core.files import close_to_others, naming_files
from synth_core.release.spec import ReleaseSpec
from synth_core.release.strata import Division

PRIVATE_MODE = 0o700
"""Mode of folders that only their owner may enter."""

MANIFEST, SIGNATURE, PUBLIC_KEY = "manifest.json", "manifest.sig", "signing-key.pem"
SIGNED = (MANIFEST, SIGNATURE, PUBLIC_KEY)
"""Names of the manifest and of what proves it: published, though no manifest can list itself."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file or folder of each release: the folder in which it lies, and its name there."""

    folder: Callable[[Any], Path]
    name: str = ""

    def __get__(self, paths: ReleasePaths, _: type[ReleasePaths] | None = None) -> Path:
        return self.folder(paths) / self.name


_workspace, _confidential, _home, _part = map(attrgetter, ("workspace", "confidential", "home", "part"))


@dataclass(frozen=True, slots=True)
class ReleasePaths:
    """The addresses of one release inside a workspace.

    `confidential/` is readable by its owner alone and holds everything exact; `public/` holds only what the
    curator has answered with noise and what was computed from that. A release is written as a draft, in a folder of
    the public zone that only its owner may enter, and takes its public name in one rename when it is signed.
    """

    workspace: Path
    release: str

    @property
    def confidential(self) -> Path:
        """The release's confidential zone."""
        return self.workspace / "confidential" / self.release

    @property
    def public(self) -> Path:
        """Where the release is published; there is no such folder before."""
        return self.workspace / "public" / self.release

    @property
    def drafts(self) -> Path:
        """Folder of all drafts: on the file system of the public zone, since only there a rename is atomic."""
        return self.workspace / "public" / ".drafts"

    @property
    def draft(self) -> Path:
        """Where the release is written until it is published."""
        return self.drafts / self.release

    @property
    def published(self) -> bool:
        """Whether the release has its public name; a manifest without a signature is none that was published."""
        return (self.public / MANIFEST).exists() and (self.public / SIGNATURE).exists()

    @property
    def home(self) -> Path:
        """Where the release's public files are now: published, or still in its draft."""
        return self.public if self.published else self.draft

    @property
    def keys(self) -> Path:
        """Folder of the workspace's keys: no release can have its name."""
        return self.confidential.parent / ".keys"

    def key(self, name: str) -> Path:
        """Where a key of the workspace is: in the folder of keys, or where earlier versions kept it."""
        before = self.keys.with_name(name)
        # A reviewer may not look into the zone, which is no error here.
        return before if os.path.isfile(before) or not os.path.isdir(self.keys) else self.keys / name  # noqa: PTH112, PTH113

    ledger = _File(_workspace, "ledger.sqlite")
    """The workspace's ledger, unless another database is configured."""

    spec = _File(_confidential, "release.yaml")
    """The spec as it is run; it names the source's address, so it stays inside."""
    encoded = _File(_confidential, "encoded")
    """Encoded partitions of the source."""
    grid = _File(_confidential, "grid")
    """Rows on the grid over which bins are bought; gone when the release is ingested."""
    grid_snapshot = _File(_confidential, "grid/snapshot.json")
    """What was ingested on the grid."""
    snapshot = _File(_confidential, "snapshot.json")
    """What was ingested: keyed digest and partition names."""
    divided_rows = _File(_confidential, "strata")
    """Encoded rows of each part of a release with strata."""
    evaluation = _File(_confidential, "evaluation.json")
    """True errors, internal."""
    internal_report = _File(_confidential, "report.html")
    """The report with true errors, internal."""

    schema = _File(_home, "schema.yaml")
    """The schema as it was run."""
    division = _File(_home, "strata.json")
    """How a release with strata is divided."""
    reuse = _File(_home, "reuse.json")
    """The answers of earlier releases that this one builds on, where its spec names some."""
    prior = _File(_home, "prior.json")
    """The public table that this release builds on, where its spec names one: files, digests, who says it is public."""
    scores = _File(_home, "scores.json")
    """Result of the step `score`."""
    agreed = _File(_home, "scores.json")
    """The scores from which the step `select` selects."""
    structure = _File(_home, "structure.json")
    """Result of the step `select`."""
    model = _File(_home, "model.npz")
    """Result of the step `fit`."""
    replicates = _File(_home, "replicates.npz")
    """Replicates of the model, fitted again to redrawn noise."""
    answers = _File(_home, "answers.parquet")
    """Every noisy answer with its standard deviation."""
    moments = _File(_home, "moments.json")
    """Sums of numbers inside bins, where the release buys them."""
    extract = _File(_home, "extract")
    """Folder of the synthetic table's shards, all Parquet, so that readers take the folder for the table."""
    csv_extract = _File(_home, "extract-csv")
    """Folder of the same shards as CSV, where the spec asks for them."""
    replicate_tables = _File(_home, "replicates")
    """Folder of the replicate tables, a folder of shards each, where the spec asks for them."""
    quality = _File(_home, "quality.json")
    """Quality from noisy answers, public."""
    explorer = _File(_home, "explore.html")
    """The page on which anybody may ask for tables."""
    public_report = _File(_home, "report.html")
    """The report for everybody."""
    certificate = _File(_home, "certificate.json")
    """The privacy guarantee and every spend behind it."""
    deployment = _File(_home, "deployment.yaml")
    """The release as an entry for a registry of deployments."""
    manifest = _File(_home, MANIFEST)
    """What was released, at which cost, with checksums."""
    signature = _File(_home, SIGNATURE)
    """Signature of the manifest's bytes."""
    public_key = _File(_home, PUBLIC_KEY)
    """Public half of the key that signed the manifest."""

    def shard(self, number: int, table: str = "") -> Path:
        """One shard of the synthetic table, or of one of two linked ones, each of which has a folder of its own."""
        return self.extract / table / f"part-{number:05d}.parquet"

    def shards(self, count: int, *, csv: bool, table: str = "") -> list[Path]:
        """Every file of a synthetic table: Parquet, and the same rows as CSV where the spec asks for it."""
        parquet = [self.shard(number, table) for number in range(count)]
        return [*parquet, *(self.csv_extract / table / f"{path.stem}.csv" for path in parquet if csv)]

    def table_file(self, number: int, shards: int) -> Path:
        """One Parquet file of all synthetic tables.

        Args:
            number: Which of them: first the extract's shards, then those of each replicate table.
            shards: How many shards a table has.

        Returns:
            Its address.
        """
        table, shard = divmod(number, shards)
        return self.shard(shard) if table == 0 else self.replicate_table(table) / self.shard(shard).name

    def replicate_table(self, table: int) -> Path:
        """Folder of one replicate table, counted from 1."""
        return self.replicate_tables / f"table-{table:03d}"

    def stratum(self, folder: str) -> StratumPaths:
        """The addresses of one part of a release with strata."""
        return StratumPaths(self.workspace, self.release, folder)

    def strata(self, spec: ReleaseSpec) -> list[StratumPaths]:
        """The addresses of all parts, once `score` has divided the rows; none without strata."""
        if spec.strata is None:
            return []
        return [self.stratum(part.folder) for part in Division.load(self.division).parts]

    def artifacts(self, spec: ReleaseSpec) -> dict[str, list[Path]]:
        """Every file of the release by the step that writes it; only what proves the manifest is not among them.

        The one answer to whether a step is finished, what a person approves, and what is published.

        Args:
            spec: The release's spec; it says how many shards there are, and whether there are strata.

        Returns:
            Paths by the name of the step. Files of strata are known when the step `score` has divided the rows.
        """
        parts = self.strata(spec) if self.division.exists() else []
        return {
            "ingest": [self.schema, *([self.reuse] if spec.reuse else []), *([self.prior] if spec.prior else [])],
            "score": [self.scores, *([self.division] if spec.strata else []), *(one.scores for one in parts)],
            "select": [self.structure, *(path for one in parts for path in (one.agreed, one.structure))],
            "fit": [
                self.model,
                *([self.moments] if spec.moments_share else []),
                *(one.model for one in parts),
                *(one.replicates for one in (self, *parts) if spec.refits),
            ],
            "sample": [
                *(path for table in spec.tables for path in self.shards(spec.shards, csv=spec.csv, table=table)),
                *(self.table_file(number, spec.shards) for number in range(spec.shards, spec.table_files)),
            ],
            "evaluate": [
                self.quality,
                *([] if spec.linked else [self.explorer]),
                *([self.answers] if spec.publish_answers else []),
            ],
            "publish": [self.public_report, self.certificate, self.deployment],
        }

    def internal(self, spec: ReleaseSpec) -> dict[str, list[Path]]:
        """Files of the confidential zone that show that a step is finished.

        Args:
            spec: The release's spec; it says whether real rows are compared.

        Returns:
            Paths by the name of the step.
        """
        compared = [] if spec.evaluate == "none" else [self.evaluation, self.internal_report]
        return {"ingest": [self.snapshot], "evaluate": compared}

    @classmethod
    def of_address(cls, address: str | Path) -> ReleasePaths:
        """The paths of the release whose spec is at this address."""
        spec = Path(address)
        if spec.name != "release.yaml" or spec.parent.parent.name != "confidential":
            raise SpecError(f"{address} is not the address of a prepared release; prepare it first")
        return cls(spec.parents[2], spec.parent.name)

    def check_writable(self) -> None:
        """Refuse a workspace that cannot be written to, before anything is made or spent."""
        there = self.workspace
        while not there.exists() and there != there.parent:
            there = there.parent
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            raise SpecError(f"workspace {self.workspace} is not writable; choose another with --workspace")

    def adopt_unsigned(self) -> None:
        """Make a folder that has the public name and no signature the draft that it is, so that it can be published."""
        if self.public.exists() and not self.published and not self.draft.exists():
            self.drafts.mkdir(mode=PRIVATE_MODE, exist_ok=True)
            self.public.rename(self.draft)

    def create(self) -> None:
        """Make both zones, whatever the umask says.

        The confidential one and drafts are closed to everybody else, and not everybody may write to the public one.

        Raises:
            SpecError: The workspace cannot be written to, or a symbolic link would lead rows to another place.
            StorageError: A folder cannot be made.
        """
        self.check_writable()
        public = self.drafts.parent
        with naming_files():
            for zone in (self.keys.parent, self.keys, self.confidential, self.drafts):
                if zone.is_symlink():
                    raise SpecError(f"{zone} is a symbolic link; mount the other disk there, or link all the workspace")
                zone.mkdir(mode=PRIVATE_MODE, parents=True, exist_ok=True)
                zone.chmod(PRIVATE_MODE)
            self.extract.mkdir(parents=True, exist_ok=True)
            close_to_others(public)


@dataclass(frozen=True, slots=True)
class StratumPaths(ReleasePaths):
    """The addresses of one part: scores, structure, model and rows are its own, the rest is the release's."""

    folder: str

    @property
    def part(self) -> Path:
        """The part's public folder."""
        return self.home / "strata" / self.folder

    encoded = _File(lambda paths: paths.divided_rows / paths.folder)
    """Encoded rows of the part."""
    scores = _File(_part, "scores.json")
    agreed = _File(_part, "agreed.json")
    """The part's scores after they were made to agree with what is known of all parts."""
    structure = _File(_part, "structure.json")
    model = _File(_part, "model.npz")
    replicates = _File(_part, "replicates.npz")
