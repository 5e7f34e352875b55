"""Sound inputs of every reader of the product, what is done to them, and how each ends."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np

from support import sound_inputs
from support.hostile_linked import LINKED_TEXTS, LinkedReaders
from support.hostile_release import ESTIMATES, QUESTION, RELEASE_KINDS, ReleaseReaders
from support.hostile_workspace import TEXTS, WorkspaceReaders, client_of
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


class Readers(WorkspaceReaders, ReleaseReaders, LinkedReaders):
    """A small published release, its files as sound inputs, and one method for each reader."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.workspace = folder, folder / "workspace"
        rows = people(80).assign(job=lambda table: table["job"].fillna("farm"))
        spec = write_release(folder, frame=rows, method="independent", epsilon=0.5)
        run_all(spec, self.workspace)
        from synth_core.events.office import Office
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
        for name, text in (("every.yaml", sound_inputs.SCHEMA), ("density.csv", sound_inputs.DENSITY)):
            (folder / name).write_text(text)
        self.ledger = open_ledger(self.workspace)
        self.backed: Head | None = None  # the end of the ledger of `sound("backup")`
        self.charged = self.ledger.balance("people").charged_mu2
        self.watch()
        self.download()
        office = Office(self.workspace)
        self.client = client_of(lambda: office)

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

    def numbers(self, content: bytes) -> None:
        """A schema with rules on values, densities and attached columns, from which rows are drawn then."""
        from synth_core.models.feasibility import check_rules
        from synth_core.schema import DeclaredSchema, Schema

        declared = DeclaredSchema.load(self.written("fuzzed.yaml", content))
        check_rules(declared.on_grid)
        self._draw(Schema.load(self.folder / "fuzzed.yaml"))

    def lookup(self, content: bytes) -> None:
        from synth_core.schema import Schema

        self.written("density.csv", content)
        try:
            self._draw(Schema.load(self.folder / "every.yaml"))
        finally:
            self.written("density.csv", sound_inputs.DENSITY.encode())

    def _draw(self, schema: Any) -> None:
        """Draw some rows of any codes from densities of any counts."""
        from synth_core.domain import breaking_rows
        from synth_core.schema.codec import decode_table, guess_densities

        rng = np.random.default_rng(1)
        codes = np.stack([rng.integers(0, column.size, 400) for column in schema.columns], axis=1)
        codes = codes[~breaking_rows(codes, schema.domain)][:40]
        densities = guess_densities(schema, lambda clique: rng.integers(0, 50, schema.column(clique[0]).size) * 1.0)
        table = decode_table(codes, schema, rng, densities)
        assert table.num_columns == len(schema.columns) + len(schema.attached)

    def frame(self, content: bytes) -> None:
        """What a notebook says of a frame, whose values are never looked at."""
        from synth_core.documents import Unreadable, parse_document
        from synth_core.schema import Schema

        try:
            said = parse_document(content.decode("utf-8"))
        except (UnicodeDecodeError, Unreadable):
            return
        if isinstance(said, dict) and said.keys() <= {"values", "bounds", "bins", "nullable", "leave_out"}:
            Schema.from_frame_template(people(3).assign(name=CANARY), **said)

    def moments(self, content: bytes) -> None:
        from synth_core.synthesizers.moments import read_moments

        read_moments(self.written("moments.json", content))

    def division(self, content: bytes) -> None:
        from synth_core.release.strata import Division

        Division.load(self.written("strata.json", content))

    def plan(self, content: bytes) -> None:
        """Every key of a spec: what it costs, and the series that a folder of specs makes."""
        from synth_core.release.spec import read_releases
        from synth_core.steps import cost

        folder = self.folder / "series"
        folder.mkdir(exist_ok=True)
        self.written("series/fuzzed.yaml", content)
        found = read_releases(folder)
        assert len(found.series) + len(found.broken) == 1
        cost(self.written("fuzzed.yaml", content), workspace=self.workspace)

    def records(self, content: bytes) -> None:
        """A source with comparisons, recoded values, units and numbers that are summed."""
        from synth_core.privacy.wall import wall
        from synth_core.schema import Schema
        from synth_core.storage.ingest import ingest_partitions

        path = self.written("fuzzed.csv", content)
        with wall():
            ingest_partitions([path], Schema.load(self.folder / "every.yaml"), self.folder / "out", key=b"k" * 32)

    def backup(self, content: bytes) -> None:
        """A file that is to become the ledger: what a sound one holds, or nothing is changed."""
        from synth_core.ledger.restore import restore_ledger
        from synth_core.ledger.sql import SqlLedger

        path, place = self.written("fuzzed.sqlite", content), self.folder / "restored"
        place.mkdir(exist_ok=True)
        (place / "ledger.sqlite").unlink(missing_ok=True)
        restore_ledger(place, path, lost={"people": 0}, reason="tried", actor="test")
        head = SqlLedger(f"sqlite:///{place / 'ledger.sqlite'}", head_paths=()).head()
        assert self.backed in (None, head), "a changed ledger is restored"

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
        self.published("manifest.json", content)

    def certificate(self, content: bytes) -> None:
        self.published("certificate.json", content)

    def scores(self, content: bytes) -> None:
        from synth_core.synthesizers.base import load_scores

        load_scores(self.written("scores.json", content))

    def structure(self, content: bytes) -> None:
        from synth_core.synthesizers.base import load_structure

        load_structure(self.written("structure.json", content))

    def quality(self, content: bytes) -> None:
        from synth_core.evaluation.public import PublicQuality

        PublicQuality.from_json(self.written("quality.json", content).read_bytes())

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

    def _division(self) -> bytes:
        from synth_core.release.spec import Strata
        from synth_core.release.strata import divide_strata, lay_out_strata
        from synth_core.schema import Schema

        layout = lay_out_strata(Strata(by="job"), Schema.load(self.folder / "schema.yaml"))
        divide_strata(layout, [20.5, 3, 40, 1], pool_below=5).save(self.folder / "strata.json")
        return (self.folder / "strata.json").read_bytes()

    def _backup(self) -> bytes:
        """The ledger as one file."""
        import sqlite3

        with sqlite3.connect(self.workspace / "ledger.sqlite") as known, sqlite3.connect(self.folder / "b") as copy:
            known.backup(copy)
        self.backed = self.ledger.head()
        return (self.folder / "b").read_bytes()

    def sound(self, kind: str) -> bytes:
        """An input of that kind that is as it should be."""
        files = {
            "spec": self.folder / "r2.yaml",
            "schema": self.folder / "schema.yaml",
            "csv": self.folder / "rows.csv",
            "compared": self.folder / "people.csv",
            "parquet": self.folder / "rows.parquet",
            "head": self.workspace / "ledger.sqlite.head",
            "asked_model": self.paths.model,
            "before": self.paths.manifest,
            "quality_before": self.paths.quality,
            "earlier_schema": self.folder / "schema.yaml",
        }
        made = {
            "division": self._division,
            "backup": self._backup,
            "export": self._export,
            "speed": self.sound_speed,
            "reused": self.sound_reuse,
            "question": lambda: QUESTION,
            "estimates": lambda: ESTIMATES,
            "replicates_inside": lambda: self.inside("replicates"),
            "model_inside": lambda: self.inside("model"),
        }
        if kind in (texts := TEXTS | LINKED_TEXTS):
            return texts[kind]
        if kind in made:
            return made[kind]()
        path = files.get(kind) or getattr(self.paths, kind)
        return bytes(path.read_bytes())

    def _export(self) -> bytes:
        self.ledger.export(self.folder / "export.jsonl", internal=True)
        return (self.folder / "export.jsonl").read_bytes()


KINDS = (
    *("spec", "schema", "csv", "parquet", "model", "manifest", "certificate", "scores", "structure", "quality"),
    *("head", "export", "rest", "numbers", "lookup", "frame", "plan", "records", "moments", "division", "backup"),
    *("journal", "form", "notices", "speed", "snapshot", "signature", "public_key", "compared"),
    *RELEASE_KINDS,
    *LINKED_TEXTS,
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
    if kind in ("csv", "parquet", "frame", "compared", "people") and CANARY in text:
        return "failed", "a refusal quotes a cell"
    if kind in ("spec", "plan") and readers.ledger.balance("people").charged_mu2 != readers.charged:
        return "failed", "something was charged"
    return outcome, ""
