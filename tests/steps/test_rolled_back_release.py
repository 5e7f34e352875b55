"""After a rollback of ledger and head together nothing is measured again: new noise on the same question leaks."""

import shutil

import pytest
import yaml
from support.small_release import write_release

from synth_core.ledger.sql import SqlLedger, ledger_url

pytestmark = pytest.mark.slow


def put_back(source, target) -> None:
    for path in target.glob("ledger.sqlite*"):
        path.unlink()
    for path in source.glob("ledger.sqlite*"):
        shutil.copy(path, target)


@pytest.fixture
def rolled_back(tmp_path, synth):
    """A published release whose ledger and head are those from before it ran."""
    spec, workspace, copy = tmp_path / "release.yaml", tmp_path / "workspace", tmp_path / "copy"
    spec.write_text(yaml.safe_dump(write_release(tmp_path, method="independent")))
    copy.mkdir()
    put_back(workspace, copy)
    assert synth("run", spec, "-w", workspace)[0] == 0
    put_back(copy, workspace)
    return spec, workspace


def test_running_a_release_again_after_a_rollback_is_refused(rolled_back, synth) -> None:
    spec, workspace = rolled_back
    code, _, err = synth("run", spec, "--again", "-w", workspace)
    assert code != 0
    assert "the ledger was rolled back: it ends at record 1, the manifest of release 'r1' at" in err
    ledger = SqlLedger(ledger_url(workspace, None), head_paths=())
    assert ledger.balance("people").charged_mu2 == 0
    assert len(ledger.records()) == 1, "nothing was reserved"


def test_another_release_of_the_workspace_is_refused_too(rolled_back, synth) -> None:
    spec, workspace = rolled_back
    spec.write_text(yaml.safe_dump(yaml.safe_load(spec.read_text()) | {"release": "r2"}))
    code, _, err = synth("run", spec, "-w", workspace)
    assert code != 0
    assert "the ledger was rolled back" in err


def test_show_and_verify_report_a_rollback_and_show_still_shows(rolled_back, synth) -> None:
    _, workspace = rolled_back
    code, out, err = synth("ledger", "show", "-w", workspace)
    assert code == 0
    assert "people" in out
    assert "the manifest of release 'r1' at" in err
    assert "nothing can be spent" in err
    code, _, err = synth("ledger", "verify", "-w", workspace)
    assert code == 1
    assert "problem: the ledger was rolled back" in err
    code, out, _ = synth("ledger", "head", "-w", workspace)
    assert code == 0
    assert '"records": 1' in out
