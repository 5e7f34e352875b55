"""A whole release is searched for things only the confidential rows know: none may be found outside their zone."""

import re
import sqlite3

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from support.logs import all_logged
from support.small_release import CANARY, CANARY_SCHEMA, write_release

from synth_core.errors import SynthError
from synth_core.events.office import Office
from synth_core.release.paths import ReleasePaths
from synth_core.steps import STEPS, prepare, run_step
from synth_core.storage.ingest import read_codes
from synth_core.web.metrics import exposition

ROWS = 6173


def people():
    rng = np.random.default_rng(8)
    job = rng.choice(["farm", "shop", "office"], ROWS).astype(object)
    job[17] = CANARY
    return pd.DataFrame({"sex": rng.choice(["f", "m"], ROWS), "age": rng.integers(0, 100, ROWS), "job": job})


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three releases of the same rows: published numbers are noisy, so one of them may be an exact one by chance."""
    return [released(tmp_path_factory.mktemp("leaks")) for _ in range(3)]


@pytest.fixture(scope="module")
def run(runs):
    """One of the releases."""
    return runs[0]


def released(folder):
    """A release with everything it said on the way."""
    frame = people()
    spec = write_release(folder, declared=CANARY_SCHEMA, frame=frame)
    with all_logged() as said:
        address = prepare(spec, workspace=folder / "workspace")
        returned = [run_step(step, address, progress=said.append) for step in STEPS]
    return folder, ReleasePaths.of_address(address), frame, "\n".join([*said, *returned])


def secrets_of(frame):
    """The exact number of rows, every exact one-way count, and the value that is not in the schema."""
    counts = {str(len(frame)), CANARY}
    for column in ("sex", "job"):
        counts |= {str(count) for count in frame[column].value_counts() if count > 1000}
    counts |= {str(count) for count in np.bincount(frame["age"] // 20)}
    return counts


def found(secrets, text):
    """The secrets among a text's words and numbers; a noisy 617.3 is not a 617, and 6,173 is 6173."""
    words = set(re.findall(r"[A-Za-z]+|\d+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", text)))
    return secrets & words


@pytest.mark.slow
def test_the_search_finds_what_is_there(run):
    _, _, frame, _ = run
    assert found(secrets_of(frame), f"rows={ROWS}, {CANARY}!") == {str(ROWS), CANARY}
    assert found(secrets_of(frame), f"{ROWS:,} rows") == {str(ROWS)}


def test_logs_progress_and_addresses(run):
    _, _, frame, said = run
    assert said
    assert not found(secrets_of(frame), said)


def test_public_files(runs):
    """A leak is in every release; what is in one of three only is a noisy number that met an exact one."""
    publics = [paths.public for _, paths, _, _ in runs]
    names = sorted(str(path.relative_to(publics[0])) for path in publics[0].rglob("*") if path.is_file())
    assert {"report.html", "certificate.json", "deployment.yaml", "quality.json", "manifest.sig"} <= set(names)
    secrets = secrets_of(runs[0][2])
    for name in names:
        assert not found(secrets, name)
        texts = [(public / name).read_bytes().decode("latin-1") for public in publics]
        assert not any(CANARY in text for text in texts)
        if name.endswith((".json", ".yaml", ".html", ".sig", ".pem")):
            assert not set.intersection(*(found(secrets, text) for text in texts)), name
    rows = [sum(pq.read_metadata(path).num_rows for path in (public / "extract").iterdir()) for public in publics]
    assert set(rows) != {ROWS}


def test_event_log(run):
    folder, _, frame, _ = run
    text = (folder / "workspace" / "events.jsonl").read_text()
    assert text.count("\n") == len(STEPS) + 1
    assert not found(secrets_of(frame), text)


def test_metrics(runs):
    texts = [exposition(Office(folder / "workspace")) for folder, *_ in runs]
    assert 'release="r1"' in texts[0]
    assert not set.intersection(*(found(secrets_of(runs[0][2]), text) for text in texts))


def test_ledger(run):
    folder, _, frame, _ = run
    with sqlite3.connect(folder / "workspace" / "ledger.sqlite") as database:
        names = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        assert "ledger_records" in names
        for name in names:
            for row in database.execute(f'select * from "{name}"'):
                texts = [value for value in row if isinstance(value, str)]
                hashes = re.compile(r"^[0-9a-f]{64}$")
                assert not found(secrets_of(frame), " ".join(text for text in texts if not hashes.match(text)))


def test_the_confidential_zone_is_closed_and_has_them(run):
    _, paths, _, _ = run
    assert paths.confidential.stat().st_mode & 0o077 == 0
    assert sum(len(read_codes(path)["sex"]) for path in paths.encoded.glob("*.parquet")) == ROWS


@pytest.mark.parametrize(
    "spoil",
    [
        lambda f: f.assign(sex=[CANARY, *f["sex"][1:]]),
        lambda f: f.assign(age=[CANARY, *f["age"][1:].astype(str)]),
        lambda f: f.assign(age=[f"{ROWS}", *f["age"][1:].astype(str)]),
        lambda f: f.assign(sex=[None, *f["sex"][1:]]),
        lambda f: f.drop(columns="job"),
    ],
)
def test_exceptions(tmp_path, spoil):
    spec = write_release(tmp_path, declared=CANARY_SCHEMA, frame=spoil(people()))
    with pytest.raises(SynthError) as refusal:
        run_step("ingest", prepare(spec, workspace=tmp_path / "workspace"))
    error = refusal.value
    chain = [str(e) for e in (error, error.__cause__) if e is not None]
    assert not found(secrets_of(people()), " ".join(chain))
    assert error.__cause__ is None


def test_a_damaged_partition_fails_without_details(tmp_path):
    spec = write_release(tmp_path, declared=CANARY_SCHEMA, frame=people())
    address = prepare(spec, workspace=tmp_path / "workspace")
    run_step("ingest", address)
    for path in ReleasePaths.of_address(address).encoded.glob("*.parquet"):
        path.write_bytes(CANARY.encode())
    with pytest.raises(SynthError, match="details are withheld") as refusal:
        run_step("score", address)
    assert CANARY not in str(refusal.value)
