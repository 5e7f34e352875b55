"""The command line as a person uses it: help that teaches, one line when something is wrong, nothing changed by it."""

import json
import subprocess
import sys
from pathlib import Path

import distributed
import numpy as np
import pandas as pd
import pytest
import yaml
from support.tabulation import marginal_distances

from synth_core import Schema
from synth_core.evaluation.distances import alpha_way
from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.steps import prepare
from synth_core.synthesizers.methods import FOR_RELEASES, METHODS

pytestmark = pytest.mark.slow

COMMANDS = [
    ["init"],
    ["plan"],
    ["run"],
    ["verify"],
    ["methods"],
    ["evaluate"],
    ["audit"],
    ["approve"],
    ["cancel"],
    ["doctor"],
    ["releases"],
    ["metrics"],
    ["ledger", "show"],
    ["ledger", "verify"],
    ["ledger", "account"],
    ["ledger", "cap"],
    ["ledger", "refusals"],
    ["ledger", "export"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_shows_an_example(synth, command):
    code, out, _ = synth(*command, "--help")
    assert code == 0
    assert f"synth {' '.join(command)}" in " ".join(out.replace("│", " ").split())


def test_the_console_script_exists():
    done = subprocess.run(
        [Path(sys.executable).parent / "synth", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("synth-core ")


def test_methods_lists_methods_and_presets(synth):
    code, out, _ = synth("methods")
    assert code == 0
    assert {"privmrf", "default", "paper", "independent"} <= set(out.split())


def test_the_methods_for_releases_come_first(synth):
    _, out, _ = synth("methods")
    listed = [line.split()[0] for line in out.splitlines() if line and not line.startswith(" ")]
    assert listed[:6] == ["method", "FOR", "privmrf", "absyn", "privbayes", "COMPARATORS"]
    assert list(METHODS)[:3] == list(FOR_RELEASES) == listed[2:5]
    assert len(listed) == 3 + len(METHODS)


def test_methods_explains_the_options_of_one(synth):
    code, out, _ = synth("methods", "privbayes")
    assert code == 0
    words = " ".join(out.split())
    assert "usefulness" in words
    assert "larger gives smaller tables" in words
    code, _, err = synth("methods", "guess")
    assert code == 2
    assert "unknown method 'guess'" in err


@pytest.fixture(scope="module")
def example(tmp_path_factory, programs):
    """What `synth init` writes, with fewer people."""
    folder = tmp_path_factory.mktemp("example") / "mine"
    subprocess.run([programs / "synth", "init", folder, "--rows", "3000"], check=True, capture_output=True)
    return folder


def test_households_from_init_to_a_verified_release(synth, tmp_path):
    folder = tmp_path / "homes"
    assert synth("init", folder, "--households", 1000)[0] == 0
    spec = yaml.safe_load((folder / "release.yaml").read_text())
    (folder / "release.yaml").write_text(yaml.safe_dump({**spec, "method": "independent", "evaluate": "quick"}))
    code, out, _ = synth("plan", folder / "release.yaml")
    assert code == 0
    assert "pairs of people" in out
    code, out, err = synth("run", folder / "release.yaml")
    assert code == 0, err
    assert "synthetic households" in out
    assert "their people" in out
    code, out, _ = synth("verify", folder / "workspace" / "public" / "example")
    assert code == 0
    assert "everybody has a household" in out
    code, _, err = synth("ask", folder / "workspace" / "public" / "example", "--by", "size")
    assert code == 2
    assert "two linked tables are declared" in err


def test_init_refuses_a_folder_with_files(synth, example):
    code, _, err = synth("init", example)
    assert code == 2
    assert err == f"synth: {example} is not empty; name a new folder\n"


def test_init_refuses_a_place_it_cannot_write(synth, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = synth("init", tmp_path / "file" / "mine")
    assert code == 2
    assert "a part of the path is not a folder; check it" in err


def test_from_init_to_a_verified_release(synth, example, tmp_path):
    code, out, _ = synth("plan", example / "release.yaml")
    assert code == 0
    assert "epsilon 4 at delta 1e-06" in out
    assert not (example / "workspace" / "public").exists(), "a plan touches nothing"
    code, out, err = synth("run", example / "release.yaml")
    assert code == 0, err
    assert "round 1 of" in err
    assert "distance from the noisy answers" in out
    code, out, err = synth("run", example / "release.yaml", "--cluster", "local")
    assert code == 0
    assert "fit — finished before" in err
    ledger = SqlLedger(ledger_url(example / "workspace", None))
    assert ledger.balance("fictional-census").held_mu2 == 0, "a published release sets nothing aside"
    public = example / "workspace" / "public" / "example"
    code, out, _ = synth("verify", public)
    assert code == 0
    assert [line.split(":")[0] for line in out.splitlines()] == [
        "signature",
        "files",
        "certificate",
        "ledger",
    ]
    assert all(line.split(":")[1].strip() == "agrees" for line in out.splitlines())
    code, out, _ = synth("ledger", "show", "--workspace", example / "workspace")
    assert code == 0
    assert "fictional-census" in out
    assert synth("ledger", "verify", "--workspace", example / "workspace")[0] == 0
    code, out, err = synth(
        "evaluate",
        example / "data" / "people.csv",
        public / "extract",
        "--schema",
        example / "schema.yaml",
        "--out",
        tmp_path / "internal",
    )
    assert code == 0, err
    assert (tmp_path / "internal" / "report.html").stat().st_size > 10_000
    assert out == f"true errors (confidential): {tmp_path / 'internal' / 'report.html'}\n"
    manifest = json.loads((public / "manifest.json").read_text())
    assert manifest["guarantee"]["epsilon"] == 1.0
    (public / "model.npz").write_bytes(b"")
    code, out, _ = synth("verify", public)
    assert code == 1
    assert "files:       DISAGREES: model.npz: does not match its checksum" in out.splitlines()


def change(example, tmp_path, **values):
    spec = yaml.safe_load((example / "release.yaml").read_text())
    spec |= {"source": str(example / "data" / "people.csv"), "schema": str(example / "schema.yaml"), **values}
    path = tmp_path / "release.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in spec.items() if value is not None}))
    return path


def test_a_plan_works_without_an_account_and_creates_nothing(synth, example, tmp_path):
    code, out, _ = synth("plan", change(example, tmp_path), "--workspace", tmp_path / "nowhere")
    assert code == 0
    assert "there is no ledger at" in " ".join(out.split())
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": -2}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"method": "magic"}, "unknown method 'magic'"),
        ({"source": "nothing/*.csv"}, "matches no file"),
        ({"colour": "red"}, "unknown key 'colour'"),
        ({"epsilon": None}, "key 'epsilon' is missing"),
        ({"epsilon": 9.0}, "left"),
        ({"schema": "nowhere.yaml"}, "nowhere.yaml"),
    ],
)
def test_bad_specs_get_one_line_and_change_nothing(synth, example, tmp_path, values, message):
    workspace = example / "workspace"
    before = synth("ledger", "head", "--workspace", workspace)[1]
    path = change(example, tmp_path, release="bad", **values)
    code, _, err = synth("run", path, "--workspace", workspace)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert err.startswith("synth: ")
    assert synth("ledger", "head", "--workspace", workspace)[1] == before


def test_a_workspace_that_is_not_writable(synth, example, tmp_path):
    (tmp_path / "w").write_text("a file")
    code, _, err = synth("run", change(example, tmp_path), "--workspace", tmp_path / "w")
    assert code == 2
    assert err.count("\n") == 1
    assert "writ" in err


def test_a_cluster_that_does_not_answer(synth, example, tmp_path, monkeypatch):
    client = distributed.Client
    monkeypatch.setattr(distributed, "Client", lambda address, timeout: client(address, timeout="0.1s"))
    path = change(example, tmp_path, release="unreachable")
    code, _, err = synth("run", path, "--workspace", example / "workspace", "--cluster", "tcp://127.0.0.1:9")
    assert code == 2
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in err.splitlines()[-1]


def test_evaluate_refuses_what_it_cannot_read(synth, example, tmp_path):
    out = tmp_path / "internal"
    code, _, err = synth(
        "evaluate",
        tmp_path / "no.csv",
        tmp_path / "no.csv",
        "--schema",
        example / "schema.yaml",
        "--out",
        out,
    )
    assert code == 2
    assert "cannot be read as CSV or Parquet" in err
    (tmp_path / "blocked").write_text("")
    code, _, err = synth(
        "evaluate",
        example / "data" / "people.csv",
        example / "data" / "people.csv",
        "--schema",
        example / "schema.yaml",
        "--out",
        tmp_path / "blocked" / "in",
    )
    assert code == 2
    assert "a part of the path is not a folder; check it" in err


def test_an_integer_coded_table_by_the_command_line(synth, samples, tmp_path):
    """Same columns, codes inside the domain, 3-way TVD below 0.05."""
    sizes = dict(list(json.loads((samples / "survey-domain.json").read_text()).items())[:7])
    real = pd.read_csv(samples / "survey.csv")[list(sizes)]
    real.to_csv(tmp_path / "survey.csv", index=False)
    Schema.from_sizes(sizes).save(tmp_path / "schema.yaml")
    spec = {
        "release": "survey",
        "dataset": "survey",
        "source": "survey.csv",
        "schema": "schema.yaml",
        "epsilon": 0.8,
        "delta": 1e-5,
    }
    (tmp_path / "release.yaml").write_text(yaml.safe_dump(spec))
    workspace = tmp_path / "workspace"
    code, _, err = synth("run", tmp_path / "release.yaml")
    assert code == 2
    assert "synth ledger account survey" in err
    account = ("ledger", "account", "survey", "--epsilon", 1, "--delta", 1e-5, "--largest-n", 10_000)
    declared = synth(*account, "--workspace", workspace)
    assert declared[0] == 0, declared
    assert synth("run", tmp_path / "release.yaml")[0] == 0
    table = pd.read_parquet(workspace / "public" / "survey" / "extract")
    assert list(table.columns) == list(sizes)
    assert ((table >= 0) & (table < pd.Series(sizes))).all().all()
    domain = Schema.from_sizes(sizes).domain
    found = (marginal_distances(real.to_numpy(), table.to_numpy(), domain, clique) for clique in alpha_way(domain, 3))
    assert np.mean([distances.tvd for distances in found]) < 0.05
    (tmp_path / "release.yaml").write_text(yaml.safe_dump({**spec, "release": "again"}))
    code, _, err = synth("run", tmp_path / "release.yaml")
    assert code == 2
    assert "left" in err
    assert not (workspace / "confidential" / "again" / "encoded").exists()


def test_audit_prints_certificates_and_catches_planted_faults(synth, tmp_path):
    code, out, err = synth("audit", "--method", "independent", "--runs", 200, "--faults", "--out", tmp_path / "a.json")
    assert code == 0, err
    assert "independent/default: score" in out
    certificates = json.loads((tmp_path / "a.json").read_text())
    planted = [c for c in certificates if c["title"].startswith("planted")]
    assert len(planted) == 5
    assert not any(c["passed"] for c in planted)
    assert all(c["passed"] for c in certificates if c not in planted)
    assert synth("audit", "--method", "magic")[0] == 2


def test_a_failed_audit_is_an_error(synth, monkeypatch):
    """Half the noise in the installed code turns the command red."""
    from synth_core.privacy import curator

    grid_noise = curator.grid_noise
    monkeypatch.setattr(curator, "grid_noise", lambda *arguments: grid_noise(*arguments) // 2)
    code, _, err = synth("audit", "--method", "independent", "--runs", 200)
    assert code == 2
    assert "the audit failed for: curator: score" in err


def test_cancel_and_metrics(synth, example, tmp_path):
    workspace = example / "workspace"
    code, out, _ = synth("metrics", "--workspace", workspace)
    assert code == 0
    assert 'dataset="fictional-census"' in out
    assert synth("metrics", "--workspace", tmp_path / "nowhere")[0] == 2
    code, _, err = synth("cancel", "never-begun", "--reason", "x", "--workspace", workspace)
    assert code == 2
    assert "never begun" in err
    path = change(example, tmp_path, release="unwanted", source=str(example / "data" / "people.csv"), epsilon=0.5)
    ledger = SqlLedger(ledger_url(workspace, None))
    before = ledger.balance("fictional-census").held_mu2
    prepare(path, workspace=workspace)
    assert ledger.balance("fictional-census").held_mu2 > before
    assert synth("cancel", "unwanted", "--reason", "not needed", "--workspace", workspace)[0] == 0
    assert ledger.balance("fictional-census").held_mu2 == before
