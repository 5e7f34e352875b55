"""Where a release keeps its files: one confidential zone, one public zone, and nothing else."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from synth_core.errors import SpecError
from synth_core.release.division import Division
from synth_core.release.spec import ReleaseSpec

PRIVATE_MODE = 0o700
"""Mode of folders that only their owner may enter."""

MANIFEST, SIGNATURE, PUBLIC_KEY = "manifest.json", "manifest.sig", "signing-key.pem"
SIGNED = (MANIFEST, SIGNATURE, PUBLIC_KEY)
"""Names of the manifest and of what proves it: published, though no manifest can list itself."""


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
    def snapshot_key(self) -> Path:
        """Key of the snapshot digest: one for the workspace, so that unchanged data has an unchanged digest."""
        return self.workspace / "confidential" / "snapshot.key"

    @property
    def encoded(self) -> Path:
        """Encoded partitions of the source."""
        return self.confidential / "encoded"

    @property
    def grid(self) -> Path:
        """Rows on the grid over which bins are bought; gone when the release is ingested."""
        return self.confidential / "grid"

    @property
    def grid_snapshot(self) -> Path:
        """What was ingested on the grid."""
        return self.grid / "snapshot.json"

    @property
    def snapshot(self) -> Path:
        """What was ingested: keyed digest and partition names."""
        return self.confidential / "snapshot.json"

    @property
    def evaluation(self) -> Path:
        """True errors, internal."""
        return self.confidential / "evaluation.json"

    @property
    def internal_report(self) -> Path:
        """The report with true errors, internal."""
        return self.confidential / "report.html"

    @property
    def spec(self) -> Path:
        """The spec as it is run; it names the source's address, so it stays inside."""
        return self.confidential / "release.yaml"

    @property
    def schema(self) -> Path:
        """The schema as it was run."""
        return self.home / "schema.yaml"

    @property
    def scores(self) -> Path:
        """Result of the score step."""
        return self.home / "scores.json"

    @property
    def structure(self) -> Path:
        """Result of the select step."""
        return self.home / "structure.json"

    @property
    def agreed(self) -> Path:
        """The scores from which the select step selects."""
        return self.scores

    @property
    def model(self) -> Path:
        """Result of the fit step."""
        return self.home / "model.npz"

    @property
    def division(self) -> Path:
        """How a stratified release is divided."""
        return self.home / "strata.json"

    @property
    def divided_rows(self) -> Path:
        """Encoded rows of each part of a stratified release."""
        return self.confidential / "strata"

    def stratum(self, folder: str) -> StratumPaths:
        """The addresses of one part of a stratified release."""
        return StratumPaths(self.workspace, self.release, folder)

    @property
    def extract(self) -> Path:
        """Folder of the synthetic table's shards."""
        return self.home / "extract"

    def shard(self, number: int) -> Path:
        """One shard of the synthetic table."""
        return self.extract / f"part-{number:05d}.parquet"

    def shards(self, count: int, *, csv: bool) -> list[Path]:
        """Every file of the synthetic table: Parquet, and the same rows as CSV where the spec asks for it."""
        parquet = [self.shard(number) for number in range(count)]
        return [*parquet, *(path.with_suffix(".csv") for path in parquet if csv)]

    @property
    def quality(self) -> Path:
        """Quality from noisy answers, public."""
        return self.home / "quality.json"

    @property
    def public_report(self) -> Path:
        """The report for everybody."""
        return self.home / "report.html"

    @property
    def certificate(self) -> Path:
        """The privacy guarantee and every spend behind it."""
        return self.home / "certificate.json"

    @property
    def deployment(self) -> Path:
        """The release as an entry for a registry of deployments."""
        return self.home / "deployment.yaml"

    @property
    def manifest(self) -> Path:
        """What was released, at which cost, with checksums."""
        return self.home / MANIFEST

    @property
    def signature(self) -> Path:
        """Signature of the manifest's bytes."""
        return self.home / SIGNATURE

    @property
    def public_key(self) -> Path:
        """Public half of the key that signed the manifest."""
        return self.home / PUBLIC_KEY

    def artifacts(self, spec: ReleaseSpec) -> dict[str, list[Path]]:
        """Every file of the release by the step that writes it; only what proves the manifest is not among them.

        Whoever asks whether a step is finished, what a person approves, or what is published asks here.

        Args:
            spec: The release's spec; it says how many shards there are, and whether there are strata.

        Returns:
            Paths by the name of the step. Files of strata are known when the step `score` has divided the rows.
        """
        parts: list[StratumPaths] = []
        if spec.strata and self.division.exists():
            parts = [self.stratum(part.folder) for part in Division.load(self.division).parts]
        return {
            "ingest": [self.schema],
            "score": [self.scores, *([self.division] if spec.strata else []), *(one.scores for one in parts)],
            "select": [self.structure, *(path for one in parts for path in (one.agreed, one.structure))],
            "fit": [self.model, *(one.model for one in parts)],
            "sample": self.shards(spec.shards, csv=spec.csv),
            "evaluate": [self.quality],
            "publish": [self.public_report, self.certificate, self.deployment],
        }

    @property
    def ledger(self) -> Path:
        """The workspace's ledger, unless another database is configured."""
        return self.workspace / "ledger.sqlite"

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
        """Make both zones; the confidential one and drafts are closed to everybody else, whatever the umask says."""
        self.check_writable()
        try:
            for zone in (self.workspace / "confidential", self.confidential, self.drafts):
                zone.mkdir(mode=PRIVATE_MODE, parents=True, exist_ok=True)
                zone.chmod(PRIVATE_MODE)
            self.extract.mkdir(parents=True, exist_ok=True)
        except OSError:
            raise SpecError(
                f"workspace {self.workspace} is not writable; choose another with --workspace"
            ) from None


@dataclass(frozen=True, slots=True)
class StratumPaths(ReleasePaths):
    """The addresses of one part: scores, structure, model and rows are its own, the rest is the release's."""

    folder: str

    @property
    def part(self) -> Path:
        """The part's public folder."""
        return self.home / "strata" / self.folder

    @property
    def encoded(self) -> Path:
        """Encoded rows of the part."""
        return self.divided_rows / self.folder

    @property
    def scores(self) -> Path:
        """Result of the part's score step."""
        return self.part / "scores.json"

    @property
    def agreed(self) -> Path:
        """The part's scores after they were made to agree with what is known of all parts."""
        return self.part / "agreed.json"

    @property
    def structure(self) -> Path:
        """Result of the part's select step."""
        return self.part / "structure.json"

    @property
    def model(self) -> Path:
        """Result of the part's fit step."""
        return self.part / "model.npz"
