"""True errors of real rows are read by those who open the confidential report, and by nobody else."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess

import pandas as pd
import pytest

from synth_core.cli.evaluate import _read
from synth_core.errors import SourceError
from synth_core.release.paths import ReleasePaths

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def started(programs):
    """The command as a process, where it matters what a process prints or which rights its files get."""

    def run(*arguments, **how):
        command = [programs / "synth", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False, **how)

    return run


@pytest.fixture(scope="module")
def released(tmp_path_factory, started):
    """A release by the command line, as cron or a build server runs it, and all that it printed."""
    folder = tmp_path_factory.mktemp("printed") / "mine"
    assert started("init", folder, "--rows", 500).returncode == 0
    done = started("run", folder / "release.yaml")
    assert done.returncode == 0, done.stderr
    return folder, (done.stdout, done.stderr)


PLACES = (
    "release",
    "extract",
    "manifest",
    "public report",
    "page of tables",
    "internal report",
    "ledger",
    "epsilon",
    "delta",
    "digest",
)


def test_a_run_prints_no_true_error_and_says_where_they_are(released):
    """Every line of the summary is known: addresses, the guarantee, and figures that the manifest publishes."""
    folder, (out, err) = released
    paths = ReleasePaths((folder / "workspace").resolve(), "example")
    quality = json.loads(paths.manifest.read_text())["quality"]
    lines = [re.split(r"  +", line.strip(), maxsplit=1) for line in out.splitlines()]
    assert [line[0] for line in lines[: len(PLACES)]] == list(PLACES)
    assert lines[4][1] == str(paths.explorer)
    assert lines[5][1] == str(paths.internal_report)
    assert lines[len(PLACES) :] == [
        ["How good it is, by public figures:"],
        ["synthetic records", f"{quality['synthetic_rows']:,}"],
        ["distance from the noisy answers", f"{quality['distance_from_answers']:.2%} of the records"],
        ["distance that noise alone explains", f"{quality['distance_of_noise_alone']:.2%} of the records"],
    ]
    assert "TVD" not in err
    assert "SVM" not in re.sub(r"SVM\D*\(\d+ of \d+\)", "", err), "progress, and no error"


def test_evaluate_into_an_open_folder_writes_files_for_its_owner_alone(started, released, tmp_path):
    folder, _ = released
    out = tmp_path / "open"
    out.mkdir(mode=0o777)
    out.chmod(0o777)
    (out / "report.html").write_text("an old report")
    (out / "report.html").chmod(0o666)
    done = started(
        *(
            "evaluate",
            folder / "data" / "people.csv",
            folder / "workspace" / "public" / "example" / "extract",
        ),
        *("--schema", folder / "schema.yaml", "--out", out),
        umask=0,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"true errors (confidential): {out / 'report.html'}\n"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in out.iterdir()}
    assert modes == {"evaluation.json": 0o600, "report.html": 0o600}


def test_an_extract_with_csv_beside_parquet_is_read_once(tmp_path):
    """As releases of earlier versions have it."""
    rows = pd.DataFrame({"age": [1, 2]})
    rows.to_parquet(tmp_path / "part-0.parquet")
    rows.to_csv(tmp_path / "part-0.csv", index=False)
    assert _read(tmp_path).equals(rows)
    (tmp_path / "part-0.parquet").unlink()
    assert _read(tmp_path)["age"].tolist() == ["1", "2"]
    (tmp_path / "part-0.csv").unlink()
    with pytest.raises(SourceError, match="cannot be read as CSV or Parquet"):
        _read(tmp_path)


def test_a_download_is_verified_without_a_workspace(synth, released, tmp_path):
    folder, _ = released
    shutil.copytree(folder / "workspace" / "public" / "example", tmp_path / "download")
    code, out, _ = synth("verify", tmp_path / "download")
    assert code == 0, out
    assert "ledger:      not checked: the folder lies in no workspace" in out
    assert "proves nothing about who signed" in out
    _, out, _ = synth("verify", tmp_path / "download", "--key", tmp_path / "download" / "signing-key.pem")
    assert "is signed by the key that was given" in out
    (tmp_path / "download" / "schema.yaml").write_text("columns: []")
    code, out, _ = synth("verify", tmp_path / "download")
    assert code == 1
    assert "files:       DISAGREES: schema.yaml: does not match its checksum" in out
    assert synth("verify", tmp_path)[0] == 2, "no release at all is no verdict on one"


def test_several_releases_are_verified_each_under_its_name(synth, released, tmp_path):
    folder, _ = released
    good, bad = tmp_path / "good", tmp_path / "bad"
    for copy in (good, bad):
        shutil.copytree(folder / "workspace" / "public" / "example", copy)
    code, out, err = synth("verify", good, good)
    assert code == 0, out + err
    (bad / "schema.yaml").write_text("columns: []")
    code, out, _ = synth("verify", bad, good)
    assert code == 1, "one that disagrees is not forgiven for the next"
    first, second = out[: out.index(str(good))], out[out.index(str(good)) :]
    assert first.startswith(str(bad))
    assert "DISAGREES" in first
    assert "DISAGREES" not in second


def test_running_a_published_release_again_only_checks_it(synth, released):
    folder, _ = released
    manifest = folder / "workspace" / "public" / "example" / "manifest.json"
    before = manifest.read_bytes()
    code, _, err = synth("run", folder / "release.yaml", "--again")
    assert code == 0, err
    assert "publish — finished before" in err
    assert manifest.read_bytes() == before
