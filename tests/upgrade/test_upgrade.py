"""A workspace that an earlier program has left opens, verifies, resumes and publishes.

`workspace-0.1.0.tar.gz` was written when keys lay in `confidential/` itself: the release r1 is published, r2 is fitted.
It stays as it is; a later program that cannot go on from it breaks the workspaces of everybody who has one.
"""

import tarfile
from pathlib import Path

import pytest

from synth_core.ledger.sql import open_ledger
from synth_core.release.paths import ReleasePaths
from synth_core.release.spec import ReleaseSpec
from synth_core.release.verify import check_release
from synth_core.steps import STEPS, finished_steps, prepare, run_step

STORED = sorted(Path(__file__).parent.glob("workspace-*.tar.gz"))


@pytest.fixture(params=STORED, ids=lambda path: path.name)
def town(request, tmp_path):
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "town"


def test_it_opens_and_verifies(town):
    ledger = open_ledger(town / "workspace")
    assert ledger.verify() == []
    assert [account.dataset for account in ledger.accounts()] == ["people", "houses"]
    found = check_release(town / "workspace" / "public" / "r1")
    assert [check.outcome for check in found.checks] == ["agrees"] * 4


def test_a_release_that_was_begun_goes_on_and_costs_nothing_twice(town):
    paths = ReleasePaths(town / "workspace", "r2")
    spent = open_ledger(paths.workspace).balance("people").charged_mu2
    assert finished_steps(str(paths.spec)) == STEPS[:3], "the fit had no replicates then, and is made again"
    for step in STEPS[:5]:
        run_step(step, str(paths.spec))
    assert open_ledger(paths.workspace).balance("people").charged_mu2 == spent
    for step in STEPS[5:]:
        run_step(step, str(paths.spec))
    assert check_release(paths.public).sound
    keys = [(town / "workspace" / "public" / name / "signing-key.pem").read_text() for name in ("r1", "r2")]
    assert keys[0] == keys[1], "it signs with the key that it has"


def test_a_new_release_of_the_same_files_is_published(town):
    workspace = town / "workspace"
    before = ReleaseSpec.load(workspace / "confidential" / "r1" / "release.yaml").dump()
    here = {"source": str(town / "people.csv"), "schema": str(town / "schema.yaml")}
    address = prepare({**before, **here, "release": "r3"}, workspace=workspace)
    for step in STEPS:
        run_step(step, address)
    assert check_release(workspace / "public" / "r3").sound
    assert open_ledger(workspace).verify() == []
    bound = {
        record.snapshot for record in open_ledger(workspace).records(dataset="people") if record.state.value == "bound"
    }
    assert len(bound) == 1, "the files are recognised under the key of before"
