"""Readers of a published release, or of what is made of one: questions, replicates, answers, estimates, later releases.

Archives have checksums, so that hardly any change of their bytes is read; the readers that end in `_inside` change
what is in them, and pack it anew.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

from synth_core.privacy.accounts import Ledger
from synth_core.release.paths import ReleasePaths

QUESTION = b"by=sex,job\nwhere=job=farm\nwhere=job=shop\nmean=age\nshare=\nlevel=90\nformat=csv"
"""What `synth ask` is asked, an option a line."""

ESTIMATES = b"""table,name,estimate,error
extract,intercept,1.5,0.1
extract,age,-0.25,0.02
table-001,intercept,1.25,0.1
table-001,age,-0.5,0.03
table-002,intercept,2e3,0.1
table-002,age,0.5,0.02
"""


class ReleaseReaders:
    """One method for each reader; those that need other files have a copy of the release."""

    folder: Path
    workspace: Path
    paths: ReleasePaths
    ledger: Ledger
    published: Callable[[str, bytes], None]

    def download(self) -> None:
        """Make the copy that is asked."""
        self.copy = self.folder / "download"
        shutil.copytree(self.paths.public, self.copy, dirs_exist_ok=True)
        self.archives = {name: (self.copy / f"{name}.npz").read_bytes() for name in ("model", "replicates")}

    def replicates(self, content: bytes) -> None:
        self._ask("replicates", content)

    def asked_model(self, content: bytes) -> None:
        self._ask("model", content)

    def replicates_inside(self, content: bytes) -> None:
        self._ask("replicates", self._packed("replicates", content))

    def model_inside(self, content: bytes) -> None:
        self._ask("model", self._packed("model", content))

    def question(self, content: bytes) -> None:
        """What people type after `synth ask`."""
        from synth_core.cli.ask import ask

        lines = [line.partition("=")[::2] for line in content.decode("utf-8", "replace").splitlines()]
        given = dict(lines)
        where = [value for name, value in lines if name == "where"]
        try:
            level = float(given.get("level", "90"))
        except ValueError:
            level = 90.0
        with redirect_stdout(io.StringIO()):
            ask(
                self.copy,
                by=given.get("by", ""),
                where=where,
                mean=given.get("mean", ""),
                share="share" in given and "mean" not in given,
                count=False,
                level=level,
                output=given.get("format", "table"),
            )

    def estimates(self, content: bytes) -> None:
        """A file for `synth combine`, about the table and about a population."""
        from synth_core.cli.combine import combine

        file = self.folder / "estimates.csv"
        file.write_bytes(content)
        for about in ("table", "population"):
            with redirect_stdout(io.StringIO()):
                combine(file, about=about, level=95.0, output="table")

    def answers(self, content: bytes) -> None:
        self.published("answers.parquet", content)

    def explorer(self, content: bytes) -> None:
        self.published("explore.html", content)

    def reused(self, content: bytes) -> None:
        """The list of answers of earlier releases on which a release builds."""
        from synth_core.release.reuse import FrozenReuse, read_frozen, reuse_problems, say_reuse
        from synth_core.schema import Schema

        path = self.folder / "reuse.json"
        path.write_bytes(content)
        frozen = FrozenReuse.load(path)
        say_reuse(frozen, ())
        reuse_problems(frozen, {"dataset": "people"}, self.ledger.records())
        read_frozen(self.ledger, "people", frozen, Schema.load(self.folder / "schema.yaml").domain)

    def before(self, content: bytes) -> None:
        """The manifest of the release before: one that is not as it was signed is not compared with."""
        self._compared("manifest.json", content)

    def quality_before(self, content: bytes) -> None:
        self._compared("quality.json", content)

    def earlier_schema(self, content: bytes) -> None:
        """The schema of a release whose answers are reused."""
        from synth_core.release.reuse import require_same_codes
        from synth_core.schema import DeclaredSchema, Schema

        path = self.folder / "earlier.yaml"
        path.write_bytes(content)
        require_same_codes(Schema.load(self.folder / "schema.yaml"), {"r0": DeclaredSchema.load(path)})

    def _compared(self, name: str, content: bytes) -> None:
        from synth_core.release.spec import ReleaseSpec
        from synth_core.steps.publish import _previous

        path = self.paths.public / name
        sound = path.read_bytes()
        path.write_bytes(content)
        try:
            spec = ReleaseSpec.load(self.folder / "r2.yaml")
            found = _previous(ReleasePaths(self.workspace, "r2"), spec)
        finally:
            path.write_bytes(sound)
        known = found is not None and (name == "manifest.json" or found.quality is not None)
        assert known == (content == sound), "a changed file of the release before is compared with"

    def _ask(self, name: str, content: bytes) -> None:
        """Some questions of a release one of whose archives is another."""
        from synth_core.inference.published import load_release

        path = self.copy / f"{name}.npz"
        path.write_bytes(content)
        try:
            release = load_release(self.copy)
            for by, how in ((("sex", "job"), {}), (("age",), {"share": True}), (("sex",), {"mean": "age"})):
                asked: Any = release.ask(by, **how)
                asked.to_csv()
            release.ask(("sex", "age"), where={"job": "farm"}).to_json()
        finally:
            path.write_bytes(self.archives[name])

    def inside(self, name: str) -> bytes:
        """The header of an archive and, after a line break, its arrays one after the other."""
        with np.load(io.BytesIO(self.archives[name])) as known:
            arrays = {part: known[part] for part in known.files}
        header = arrays.pop("header").tobytes()
        return header + b"\n" + b"".join(array.tobytes() for array in arrays.values())

    def _packed(self, name: str, content: bytes) -> bytes:
        """An archive of such a text; an array for which too few bytes are left is shorter, and has one axis."""
        header, _, rest = content.partition(b"\n")
        parts: dict[str, Any] = {"header": np.frombuffer(header, dtype=np.uint8)}
        with np.load(io.BytesIO(self.archives[name])) as known:
            for part in known.files:
                if part != "header":
                    sound = known[part]
                    own, rest = rest[: sound.nbytes], rest[sound.nbytes :]
                    array = np.frombuffer(own[: len(own) // sound.itemsize * sound.itemsize], dtype=sound.dtype)
                    parts[part] = array.reshape(sound.shape) if array.size == sound.size else array
        packed = io.BytesIO()
        np.savez(packed, allow_pickle=False, **parts)
        return packed.getvalue()

    def sound_reuse(self) -> bytes:
        """The list of the answers of the release."""
        from synth_core.release.reuse import freeze
        from synth_core.release.spec import ReleaseSpec
        from synth_core.schema import Schema

        spec = ReleaseSpec.load(self.folder / "r2.yaml").model_copy(update={"reuse": ("r1",)})
        freeze(self.ledger, spec, Schema.load(self.folder / "schema.yaml").domain).save(self.folder / "reuse.json")
        return (self.folder / "reuse.json").read_bytes()


RELEASE_KINDS = (
    *("replicates", "replicates_inside", "asked_model", "model_inside", "question", "estimates", "answers"),
    *("explorer", "reused", "before", "quality_before", "earlier_schema"),
)
