"""Every sickness that the doctor knows is given to a healthy installation, and must be found by name."""

import json
import re
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import pytest
from distributed import LocalCluster
from support.budget_examples import spend, tampered
from typer.testing import CliRunner

from synth_core.cli import app, doctor
from synth_core.cli.doctor import Facts, Health, Patient, examine
from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.privacy.accounts import Account
from synth_core.release.paths import ReleasePaths
from synth_core.release.signing import key_path, private_key
from synth_core.settings import VARIABLES

SOURCE = Path(doctor.__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def workspace(tmp_path):
    paths = ReleasePaths(tmp_path, "r")
    paths.create()
    private_key(key_path(paths), create=True)
    ledger = SqlLedger(ledger_url(tmp_path, None))
    ledger.declare(Account(dataset="houses", delta=1e-6, cap_epsilon=1.0, largest_n=1000), actor="board")
    spend(ledger, "r", "fit", mu2=Fraction(1, 100))
    return tmp_path


def ill(workspace, **more):
    return {f.subject: f for f in examine(Patient(workspace=workspace, **more)) if f.state is not Health.GOOD}


def test_an_account_whose_delta_was_never_compared_with_its_records_is_a_warning(workspace):
    ledger = SqlLedger(ledger_url(workspace, None))
    ledger.declare(Account(dataset="old", delta=1e-6, cap_epsilon=1.0), actor="board")
    large = Account(dataset="large", delta=1e-3, cap_epsilon=1.0, largest_n=1000)
    ledger.declare(large, actor="board", delta_reason="a pilot")
    found = ill(workspace)
    assert set(found) == {"account old"}
    assert "largest_n" in found["account old"].seen


def test_a_healthy_installation_has_no_findings_but_good_ones(workspace):
    assert ill(workspace) == {}
    subjects = {finding.subject for finding in examine(Patient(workspace=workspace))}
    assert subjects >= {
        "python",
        "packages",
        "kernels",
        "settings",
        "workspace",
        "ledger",
        "clock",
        "signing key",
    }


def test_bytecode_that_is_never_written_is_a_warning(workspace, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert ill(workspace)["python"].state is Health.WORRYING


def test_a_python_that_is_not_supported(workspace, monkeypatch):
    monkeypatch.setattr(doctor.sys, "version_info", (3, 14, 0))
    assert "3.11 or 3.12" in ill(workspace)["python"].remedy


def test_missing_and_wrong_packages_are_named(workspace, monkeypatch):
    wanted = ["no-such-package>=1", "numpy<1", "never>=1; extra == 'cuda'"]
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: wanted)
    seen = ill(workspace)["packages"].seen
    assert "no-such-package is missing" in seen
    assert re.search(r"numpy is \d.*, not <1", seen)
    assert "never" not in seen


def test_kernels_that_were_never_compiled(workspace, monkeypatch, tmp_path):
    kernels = SimpleNamespace(collect=SimpleNamespace(stats=SimpleNamespace(cache_path=tmp_path)))
    monkeypatch.setattr(doctor.importlib, "import_module", lambda _: kernels)
    assert "synth_core.warm" in ill(workspace)["kernels"].remedy


def test_a_mistyped_setting_is_named(workspace, monkeypatch):
    monkeypatch.setenv("SYNTH_LEDGR_URL", "x")
    assert "SYNTH_LEDGR_URL" in ill(workspace)["settings"].seen


def test_no_workspace(monkeypatch):
    assert "SYNTH_WORKSPACE" in ill(None)["workspace"].remedy


def test_a_confidential_zone_that_others_can_read(workspace):
    (workspace / "confidential").chmod(0o750)
    assert "chmod 0700" in ill(workspace)["workspace"].remedy


def test_little_space(workspace, monkeypatch):
    monkeypatch.setattr(doctor, "LITTLE_SPACE", 2**80)
    assert "GiB" in ill(workspace)["workspace"].seen


def test_a_broken_chain(workspace):
    tampered(workspace, "UPDATE ledger_records SET purpose = 'x' WHERE id = 3")
    assert ill(workspace)["ledger"].state is Health.WRONG


def test_no_ledger_is_said_and_not_created(tmp_path):
    assert "there is no ledger at" in ill(tmp_path)["ledger"].seen
    assert not (tmp_path / "ledger.sqlite").exists()


def test_a_record_from_the_future(workspace, monkeypatch):
    monkeypatch.setattr(doctor, "AHEAD", timedelta(days=-1))
    assert "still to come" in ill(workspace)["clock"].seen


def test_a_key_that_others_can_read_and_one_that_is_none(workspace):
    key = workspace / "confidential" / ".keys" / "signing.key"
    key.chmod(0o644)
    assert "chmod 0600" in ill(workspace)["signing key"].remedy
    key.write_text("no key")
    assert "cannot be read" in ill(workspace)["signing key"].seen


def test_a_workspace_that_never_signed_is_healthy(workspace):
    (workspace / "confidential" / ".keys" / "signing.key").unlink()
    assert "signing key" not in ill(workspace)


@pytest.mark.slow
def test_a_cluster_that_does_not_answer(workspace, monkeypatch):
    monkeypatch.setattr("synth_core.cluster.CONNECT_SECONDS", 0.5)
    assert "no Dask scheduler answers" in ill(workspace, cluster="tcp://127.0.0.1:1")["cluster"].seen


def test_a_cluster_is_asked_for_workers_versions_and_the_workspace(workspace, monkeypatch):
    with LocalCluster(processes=False, n_workers=1, dashboard_address=None) as local:
        assert "cluster" not in ill(workspace, cluster=local.scheduler_address)
        real = doctor.facts(workspace)
        answers = iter([real, Facts({**real.versions, "numpy": "0.1"}, sees_workspace=False)])
        monkeypatch.setattr(doctor, "facts", lambda _: next(answers))
        seen = [f.seen for f in doctor.cluster(Patient(workspace=workspace, cluster=local.scheduler_address))]
        assert any("numpy 0.1 instead of" in line for line in seen)
        assert any("do not see the workspace" in line for line in seen)
        monkeypatch.undo()
        monkeypatch.setattr(doctor, "facts", importing_fails_elsewhere(real))
        assert "cannot import" in ill(workspace, cluster=local.scheduler_address)["cluster"].seen
    with LocalCluster(processes=False, n_workers=0, dashboard_address=None) as local:
        monkeypatch.undo()
        assert "no workers" in ill(workspace, cluster=local.scheduler_address)["cluster"].seen


def importing_fails_elsewhere(here):
    asked = []

    def facts(_):
        asked.append(1)
        if len(asked) > 1:
            raise ModuleNotFoundError("synth_core")
        return here

    return facts


def test_a_card_without_cupy(workspace, monkeypatch):
    monkeypatch.setattr(doctor, "_cards", lambda: 2)
    assert "cuda" in ill(workspace)["gpu"].remedy
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: "13.4" if name == "cupy-cuda12x" else real(name))
    assert "gpu" not in ill(workspace)


def test_the_command_says_what_to_do_and_fails(workspace):
    runner = CliRunner()
    assert runner.invoke(app, ["doctor", "-w", str(workspace)]).exit_code == 0
    (workspace / "confidential").chmod(0o755)
    told = runner.invoke(app, ["doctor", "-w", str(workspace), "--json"])
    assert told.exit_code == 1
    assert any("chmod 0700" in finding["remedy"] for finding in json.loads(told.stdout))


def test_a_healthy_machine_gets_one_line(workspace):
    """Nothing to read where there is nothing to do; what was found is listed where somebody asks."""
    runner = CliRunner()
    quiet = runner.invoke(app, ["doctor", "-w", str(workspace)])
    assert re.fullmatch(r"healthy: \d+ things were checked \(--all lists them\)\n", quiet.stdout)
    assert "as required" in runner.invoke(app, ["doctor", "-w", str(workspace), "--all"]).stdout


def test_only_what_is_ill_is_listed(workspace):
    (workspace / "confidential").chmod(0o755)
    told = CliRunner().invoke(app, ["doctor", "-w", str(workspace)]).stdout
    assert "chmod 0700" in told
    assert "compiled" not in told
    assert re.search(r"the other \d+ things are well", told)


def test_without_a_workspace_it_says_what_was_not_looked_at():
    told = CliRunner().invoke(app, ["doctor"])
    assert told.exit_code == 0
    assert told.stdout.startswith("healthy: ")
    assert (
        "ledger and signing key were not looked at (set SYNTH_WORKSPACE, or name one with --workspace)" in told.stdout
    )
