"""A published folder that somebody else made: what verifies and asks it is refused in one line, whatever lies there."""

import itertools
import json
import os
import shutil
import zipfile

import numpy as np
import pytest
from support.small_release import ROWS, run_all, write_release

from synth_core import documents
from synth_core.errors import SourceError, SpecError, SynthError
from synth_core.events.office import Office
from synth_core.files import MAX_PUBLISHED
from synth_core.inference.published import load_release
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.mixture import load_model
from synth_core.release.paths import ReleasePaths
from synth_core.release.verify import check_release


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A release with everything that a release may have, from fewer rows than its replicate tables have together."""
    folder = tmp_path_factory.mktemp("released")
    spec = write_release(folder, method="independent", uncertainty=3, replicates=2, csv=True)
    run_all(spec, folder / "workspace")
    return folder / "workspace"


@pytest.fixture
def download(released, tmp_path):
    shutil.copytree(released / "public" / "r1", tmp_path / "r1")
    return tmp_path / "r1"


def put(path, how):
    path.unlink()
    if how == "device":
        path.symlink_to("/dev/zero")
    elif how == "pipe":
        os.mkfifo(path)
    elif how == "folder":
        path.mkdir()
    elif how == "loop":
        path.symlink_to(path.name)
    else:
        with path.open("wb") as file:
            file.truncate(MAX_PUBLISHED + 1)


HOW = ("device", "pipe", "folder", "loop", "too large")


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", ["manifest.json", "manifest.sig", "signing-key.pem", "certificate.json"])
def test_what_never_ends_is_not_read_when_a_download_is_verified(download, name, how):
    """Before, a link to a device filled the memory, and a pipe was waited for, for ever."""
    put(download / name, how)
    if name == "manifest.json":
        with pytest.raises(SpecError, match=r"holds no manifest\.json"):
            check_release(download)
    elif name != "certificate.json" or how == "too large":
        found = check_release(download)
        assert not found.sound or how == "too large"


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", ["model.npz", "replicates.npz", "schema.yaml", "moments.json"])
def test_what_never_ends_is_not_read_when_a_download_is_asked(download, name, how):
    (download / "moments.json").write_text("{}")
    put(download / name, how)
    if how == "loop" and name in ("replicates.npz", "moments.json"):
        return  # as if it were not there
    with pytest.raises(SynthError) as refusal:
        load_release(download).ask("sex")
    assert "\n" not in str(refusal.value)


def archive(path, compression, **arrays):
    """A model's file of other parts."""
    with zipfile.ZipFile(path) as known:
        parts = {name: known.read(name) for name in known.namelist()}
    with zipfile.ZipFile(path, "w", compression) as written:
        for name, content in parts.items():
            written.writestr(name, content)
        for name, array in arrays.items():
            with written.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, array)


@pytest.mark.parametrize("name", ["model.npz", "replicates.npz"])
def test_a_part_that_is_larger_than_its_file_is_not_unpacked(download, name):
    """Before, a thousandth of what it fills the memory with was enough."""
    archive(download / name, zipfile.ZIP_STORED)
    load_release(download).ask("sex")
    archive(download / name, zipfile.ZIP_DEFLATED)
    with pytest.raises(SourceError, match="is not a stored model"):
        load_release(download).ask("sex")


@pytest.mark.parametrize(
    "change",
    [
        lambda header, arrays: arrays.update(counts=arrays["counts"][:-1], spread=arrays["spread"][:, :-1]),
        lambda header, arrays: arrays.update(spread=arrays["spread"] * np.nan),
        lambda header, arrays: arrays.update(changes=arrays["changes"].astype("U8")),
        lambda header, arrays: arrays.update(totals=arrays["totals"][..., None]),
        lambda header, arrays: header.update(dependence=float("nan")),
        lambda header, arrays: header.update(dependence=-1),
    ],
)
def test_replicates_that_do_not_fit_are_refused(download, change):
    """Before, some of these ended in a traceback, and others in intervals that are no numbers."""
    with np.load(download / "replicates.npz") as known:
        arrays = dict(known)
    header = json.loads(arrays.pop("header").tobytes())
    change(header, arrays)
    np.savez(download / "replicates.npz", header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)
    with pytest.raises(SourceError, match=r"replicates\.npz is not"):
        load_release(download).ask("sex")


def test_a_document_is_refused_before_a_device_is_opened(monkeypatch):
    def opened(*_, **__):
        raise AssertionError("it was opened")

    monkeypatch.setattr(os, "open", opened)
    with pytest.raises(documents.Unreadable, match="it is not a file"):
        documents.read_document("/dev/zero")


def test_pages_count_the_rows_of_the_extract_alone(released):
    """Before, those of replicate tables and noisy answers were counted with them."""
    office = Office(released)
    rows = office.rows(office.manifest("r1"))
    assert 0.8 * ROWS < rows < 1.2 * ROWS


def test_a_damaged_shard_has_no_rows_and_ends_no_page(released, tmp_path):
    shutil.copytree(released, tmp_path / "workspace")
    paths = ReleasePaths(tmp_path / "workspace", "r1")
    paths.shard(0).write_bytes(b"no Parquet file at all, of some length")
    office = Office(paths.workspace)
    assert office.rows(office.manifest("r1")) == 0


def test_a_small_model_of_any_number_of_cells_is_not_asked(tmp_path):
    """Before, 120 KB of pairs that join all columns filled the memory of who asked."""
    names, size = [f"c{number}" for number in range(9)], 20
    pairs = list(itertools.combinations(names, 2))
    header = {"attributes": names, "sizes": [size] * 9, "impossible": [], "cliques": pairs, "total": 10.0}
    text = json.dumps({"format": MarkovRandomField.FORMAT} | header).encode()
    potentials = np.zeros(len(pairs) * size**2)
    np.savez(tmp_path / "model.npz", header=np.frombuffer(text, dtype=np.uint8), potentials=potentials)
    with pytest.raises(SourceError, match="a stored model has more than 268,435,456 cells"):
        load_model(tmp_path / "model.npz")


ESCAPE = "\x1b]0;title\x07\x1b[2J"
"""Renames the window of a terminal, and clears it."""


def test_a_download_writes_no_control_characters_to_a_terminal(download, synth):
    """Before, a label of the schema, or the name of a file, could give orders to the terminal of who read them."""
    sound = (download / "schema.yaml").read_text()
    labelled = sound.replace("kind: categorical", f"kind: categorical\n  labels: {{m: {json.dumps(ESCAPE)}}}", 1)
    (download / "schema.yaml").write_text(labelled)
    code, out, err = synth("ask", download, "--by", "sex")
    assert code != 0
    assert "labels: m: line breaks and control characters are not allowed" in " ".join(err.split())
    (download / "extract" / f"{ESCAPE}.parquet").write_text("")
    code, verified, _ = synth("verify", download)
    assert code == 1
    assert "is not listed in the manifest" in verified
    assert "\x1b" not in out + err + verified
