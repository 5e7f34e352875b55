"""Readers of what lies beside the releases of a workspace: log, forms of pages, notices, keys, tables to compare."""

from __future__ import annotations

import io
import math
import shutil
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from support import sound_inputs
from synth_core.release.paths import PUBLIC_KEY, SIGNATURE, ReleasePaths

SECRET = "s" * 32


class WorkspaceReaders:
    """One method for each reader; those that change a workspace have a copy of their own."""

    folder: Path
    workspace: Path
    paths: ReleasePaths

    def watch(self) -> None:
        """Make the copy, whose pages are asked, and the table that others are compared with."""
        from synth_core.events.office import Office

        self.watched = self.folder / "watched"
        shutil.copytree(self.workspace, self.watched, dirs_exist_ok=True)
        self.office = Office(self.watched)
        self.pages = client_of(lambda: self.office)

    def journal(self, content: bytes) -> None:
        """A log of events, of which pages and metrics tell."""
        from synth_core.events.office import Office

        (self.watched / "events.jsonl").write_bytes(content)
        self.office = Office(self.watched)
        for page in ("/", "/release?name=r1", "/metrics"):
            answer = self.pages.get(page)
            assert answer.status_code == 200, f"{page}: status {answer.status_code}"

    def form(self, content: bytes) -> None:
        """What a browser sends to change a cap; the token is that of the sound form."""
        from synth_core.web.routes import issue_token

        token = issue_token(SECRET, person="vera", purpose="cap people").encode()
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        before = self.office.ledger.head()
        sent = content.replace(b"TOKEN", token)
        answer = self.pages.post("/cap", content=sent, headers=kind, follow_redirects=False)
        assert answer.status_code < 500, f"status {answer.status_code}"
        changed = self.office.ledger.head() != before
        assert changed == (answer.status_code == 303), "a refused form changed the ledger, or an accepted one did not"
        assert not changed or "people" in dict(parse_qsl(sent.decode("utf-8", "replace"))).values(), "another account"

    def notices(self, content: bytes) -> None:
        """The file that SYNTH_NOTIFY names."""
        from synth_core.events.notices import configured

        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SYNTH_NOTIFY", str(self.written("notify.yaml", content)))
            configured()

    def speed(self, content: bytes) -> None:
        """What was measured of this machine and kept among the user's caches."""
        from synth_core.release.estimate import remembered_speed

        self.written("synth-core/speed.json", content)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", str(self.folder))
            seconds = remembered_speed(lambda: 0.5)
        assert math.isfinite(seconds), "no plan can be made with it"
        assert seconds > 0, "no plan can be made with it"

    def snapshot(self, content: bytes) -> None:
        from synth_core.storage.ingest import Snapshot

        Snapshot.load(self.written("snapshot.json", content))

    def signature(self, content: bytes) -> None:
        self.published(SIGNATURE, content)

    def public_key(self, content: bytes) -> None:
        """The key beside a release, and the same as the one that a reader has from elsewhere."""
        from synth_core.release.verify import check_release

        self.published(PUBLIC_KEY, content)
        check_release(self.paths.public, key=self.written("known.pub", content))

    def published(self, name: str, content: bytes) -> None:
        """A file of a published release, of which a change must be found."""
        from synth_core.release.verify import check_release

        path = self.paths.public / name
        sound = path.read_bytes()
        path.write_bytes(content)
        try:
            assert check_release(self.paths.public).sound == (content == sound), "a changed file verifies"
        finally:
            path.write_bytes(sound)

    def compared(self, content: bytes) -> None:
        """A synthetic table from anywhere, compared with the real one by `synth evaluate`."""
        from synth_core.cli.evaluate import evaluate

        table = self.written("synthetic.csv", content)
        with redirect_stdout(io.StringIO()):
            evaluate(self.folder / "people.csv", table, self.folder / "schema.yaml", self.folder / "compared")

    def sound_speed(self) -> bytes:
        from synth_core.release.estimate import remembered_speed

        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", str(self.folder))
            remembered_speed(lambda: 0.25)
        return (self.folder / "synth-core" / "speed.json").read_bytes()

    def written(self, name: str, content: bytes) -> Path:
        """Put an input into a file of the folder."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        return path


def client_of(office: Any) -> Any:
    """Pages of an office for somebody who may edit; what goes wrong in them is raised."""
    from fastapi.testclient import TestClient

    from synth_core.web.application import create_app
    from synth_core.web.routes import Visitor

    who = Visitor("vera", may_edit=True)
    app = create_app(office=office, visitor=lambda: who, secret=lambda: SECRET)
    return TestClient(app, raise_server_exceptions=True)


TEXTS = {
    "numbers": sound_inputs.SCHEMA.encode(),
    "lookup": sound_inputs.DENSITY.encode(),
    "frame": sound_inputs.DECLARED.encode(),
    "plan": sound_inputs.PLAN.encode(),
    "records": sound_inputs.ROWS.encode(),
    "moments": sound_inputs.MOMENTS,
    "journal": sound_inputs.EVENTS,
    "notices": sound_inputs.CHANNELS.encode(),
    "form": b"dataset=people&epsilon=7.5&reason=the+board+decided&token=TOKEN",
    "rest": b"records?dataset=people&release=r1&step=fit&state=measured&page=1&name=r1&dag=d&run=r",
}
"""Sound inputs that need no release."""
