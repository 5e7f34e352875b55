"""Sound inputs of every reader of the product, what is done to them, and how each ends."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np

from support.small_release import people, run_all, write_release
from synth_core.errors import SynthError
from synth_core.privacy.accounts import Head

MAX_SECONDS = 60
"""Seconds after which an input that is still being read ends its process."""
CANARY = "Zyxwvut"
"""A value of the confidential rows that no refusal may quote."""

TOKENS = (
    *(b"\0", b"\n", b"\r", b'"', b"'", b",", b":", b"- ", b"[", b"{", b"]", b"}", b"*a", b"&a ", b"<<: ", b"!!int "),
    *(b"\xff\xfe", b"\xef\xbb\xbf", "\u202e".encode(), "\u2028".encode(), b"\x1b[2J", b"../", b"/dev/zero", b"=cmd|"),
    *(b"1e309", b"-1", b"0", b"9" * 400, b"nan", b"inf", b"null", b"true", b"2020-99-99", b"%00", b"A" * 5000),
)


def mutated(sound: bytes, rng: np.random.Generator) -> bytes:
    """The input with one to eight changes: bytes, cuts, repeats, tokens, nesting."""
    text = bytearray(sound)
    for _ in range(int(rng.integers(1, 9))):
        at = int(rng.integers(0, len(text) + 1))
        end = min(len(text), at + int(rng.geometric(0.05)))
        match int(rng.integers(0, 7)):
            case 0 if text:
                text[min(at, len(text) - 1)] = int(rng.integers(0, 256))
            case 1:
                del text[at:end]
            case 2:
                text[at:at] = text[at:end] * int(rng.integers(1, 20))
            case 3:
                text[at:end] = b""
                text[at:at] = TOKENS[int(rng.integers(len(TOKENS)))]
            case 4:
                text[at:at] = TOKENS[int(rng.integers(len(TOKENS)))]
            case 5:
                text[at:at] = bytes(TOKENS[int(rng.integers(8, 11))][:1]) * int(rng.integers(1, 3000))
            case _:
                del text[at + int(rng.integers(0, 200)) :]
    return bytes(text)


class Readers:
    """A small published release, its files as sound inputs, and one method for each reader."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.workspace = folder, folder / "workspace"
        rows = people(80).assign(job=lambda table: table["job"].fillna("farm"))
        spec = write_release(folder, frame=rows, method="independent", epsilon=0.5)
        run_all(spec, self.workspace)
        from synth_core.ledger.sql import open_ledger
        from synth_core.release.paths import ReleasePaths
        from synth_core.release.spec import ReleaseSpec

        self.paths = ReleasePaths(self.workspace, "r1")
        ReleaseSpec.parse(spec | {"release": "r2"}).save(folder / "r2.yaml")
        rows.loc[0, "job"] = CANARY  # a value that the schema of `_ingest` takes for OTHER
        taking = (folder / "schema.yaml").read_text().replace("nullable: true", "nullable: true, unseen: other")
        (folder / "taking.yaml").write_text(taking)
        rows.to_csv(folder / "rows.csv", index=False)
        rows.to_parquet(folder / "rows.parquet")
        self.ledger = open_ledger(self.workspace)
        self.charged = self.ledger.balance("people").charged_mu2
        self.client = self._client()

    def _client(self) -> Any:
        from fastapi.testclient import TestClient

        from synth_core.events.office import Office
        from synth_core.web.application import create_app
        from synth_core.web.routes import Visitor

        office = Office(self.workspace)
        who = Visitor("vera", may_edit=True)
        app = create_app(office=lambda: office, visitor=lambda: who, secret=lambda: "s" * 32)
        return TestClient(app, raise_server_exceptions=True)

    def spec(self, content: bytes) -> None:
        from synth_core.steps import cancel, cost, prepare

        path = self.written("fuzzed.yaml", content)
        cost(path, workspace=self.workspace)
        cancel(prepare(path, workspace=self.workspace), reason="tried")

    def schema(self, content: bytes) -> None:
        from synth_core.models.feasibility import check_rules
        from synth_core.schema import DeclaredSchema

        found = DeclaredSchema.load(self.written("fuzzed.yaml", content))
        check_rules(found.on_grid)
        found.save(self.folder / "again.yaml")
        assert DeclaredSchema.load(self.folder / "again.yaml").digest() == found.digest(), "it reads back as another"

    def csv(self, content: bytes) -> None:
        self._ingest(self.written("fuzzed.csv", content))

    def parquet(self, content: bytes) -> None:
        self._ingest(self.written("fuzzed.parquet", content))

    def _ingest(self, path: Path) -> None:
        from synth_core.privacy.wall import wall
        from synth_core.schema import Schema
        from synth_core.storage.ingest import ingest_partitions

        with wall():
            ingest_partitions([path], Schema.load(self.folder / "taking.yaml"), self.folder / "out", key=b"k" * 32)

    def model(self, content: bytes) -> None:
        from synth_core.models.mixture import load_model

        load_model(self.written("fuzzed.npz", content))

    def manifest(self, content: bytes) -> None:
        self._published("manifest.json", content)

    def certificate(self, content: bytes) -> None:
        self._published("certificate.json", content)

    def _published(self, name: str, content: bytes) -> None:
        from synth_core.release.verify import check_release

        path = self.paths.public / name
        sound = path.read_bytes()
        path.write_bytes(content)
        try:
            assert check_release(self.paths.public).sound == (content == sound), "a changed file verifies"
        finally:
            path.write_bytes(sound)

    def scores(self, content: bytes) -> None:
        from synth_core.synthesizers.base import load_scores

        load_scores(self.written("scores.json", content))

    def structure(self, content: bytes) -> None:
        from synth_core.synthesizers.base import load_structure

        load_structure(self.written("structure.json", content))

    def quality(self, content: bytes) -> None:
        from synth_core.evaluation.public import PublicQuality

        PublicQuality.from_json(self.written("quality.json", content).read_text(encoding="utf-8", errors="replace"))

    def head(self, content: bytes) -> None:
        from synth_core.ledger.head import read_head

        read_head(self.written("head.json", content))

    def export(self, content: bytes) -> None:
        """The lines of an export as the rows of a ledger: any change of them is found, and none ends the check."""
        from synth_core.ledger.chain import all_rows
        from synth_core.ledger.tables import ANSWERS
        from synth_core.ledger.verify import problems

        sound = [json.loads(line) for line in self.sound("export").splitlines()]
        try:
            rows = [json.loads(line) for line in content.splitlines()]
        except (ValueError, RecursionError):
            return
        types = {name: type(value) for name, value in sound[0].items()}
        if not all(isinstance(row, dict) and {n: type(v) for n, v in row.items()} == types for row in rows):
            return  # a database has its columns, each of its type
        with self.ledger.chain.unchecked() as connection:
            answers = list(all_rows(connection, ANSWERS))
        found = problems(rows, answers, {"the kept head": [Head(len(sound), sound[-1]["hash"])]})
        assert bool(found) == (rows != sound), "a changed ledger verifies, or a sound one does not"

    def rest(self, content: bytes) -> None:
        words = content.decode("utf-8", errors="replace").replace("#", "")
        page, _, query = words.partition("?")
        address = f"/{page.strip('/')}" if page.isascii() and page.isprintable() else "/records"
        answer = self.client.get(address, params=dict(part.partition("=")[::2] for part in query.split("&")))
        assert answer.status_code < 500, f"status {answer.status_code}"
        assert CANARY not in answer.text, "an answer quotes a cell"

    def written(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        return path

    def sound(self, kind: str) -> bytes:
        """An input of that kind that is as it should be."""
        files = {
            "spec": self.folder / "r2.yaml",
            "schema": self.folder / "schema.yaml",
            "csv": self.folder / "rows.csv",
            "parquet": self.folder / "rows.parquet",
            "head": self.workspace / "ledger.sqlite.head",
            "manifest": self.paths.manifest,
        }
        if kind == "rest":
            return b"records?dataset=people&release=r1&step=fit&state=measured&page=1&name=r1&dag=d&run=r"
        if kind == "export":
            self.ledger.export(self.folder / "export.jsonl", internal=True)
            return (self.folder / "export.jsonl").read_bytes()
        path = files.get(kind) or getattr(self.paths, kind)
        return bytes(path.read_bytes())


KINDS = (
    *("spec", "schema", "csv", "parquet", "model", "manifest", "certificate", "scores", "structure", "quality"),
    *("head", "export", "rest"),
)


def judged(readers: Readers, kind: str, content: bytes) -> tuple[str, str]:
    """How one input ends: taken, refused or failed, and what is wrong with it if it failed."""
    signal.alarm(MAX_SECONDS)
    try:
        getattr(readers, kind)(content)
        outcome, text = "taken", ""
    except SynthError as refusal:
        outcome, text = "refused", str(refusal)
        if "\n" in text or len(text) > 1500:
            return "failed", "a refusal that is not one short line"
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    if kind in ("csv", "parquet") and CANARY in text:
        return "failed", "a refusal quotes a cell"
    if kind == "spec" and readers.ledger.balance("people").charged_mu2 != readers.charged:
        return "failed", "something was charged"
    return outcome, ""
