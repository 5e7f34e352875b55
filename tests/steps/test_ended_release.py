"""A release that is ended while one of its steps is at work: the step asks nothing more, and a new run goes on."""

import pytest
from support.small_release import write_release

from synth_core.errors import ReleaseEnded
from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.privacy.accounts import Runner
from synth_core.steps import STEPS, end_run, prepare, run_step

FIRST, SECOND = Runner(dag="d", run="first"), Runner(dag="d", run="second")


@pytest.mark.slow
def test_a_step_at_work_when_its_release_is_ended_asks_nothing_more_and_a_new_one_goes_on(tmp_path, monkeypatch):
    workspace = tmp_path / "workspace"
    spec = write_release(tmp_path, method="independent")
    address = prepare(spec, workspace=workspace, runner=FIRST)
    run_step("ingest", address)
    ledger, reserve = SqlLedger(ledger_url(workspace, None)), SqlLedger.reserve

    def ended_before(self, request):
        end_run(workspace, reason="its run failed", runner=FIRST)
        return reserve(self, request)

    with monkeypatch.context() as patch:
        patch.setattr(SqlLedger, "reserve", ended_before)
        with pytest.raises(ReleaseEnded, match="was ended while step 'score' was at work"):
            run_step("score", address)
    assert ledger.balance("people").charged_mu2 == ledger.balance("people").held_mu2 == 0
    prepare(spec, workspace=workspace, runner=SECOND)
    assert end_run(workspace, reason="late", runner=FIRST) == []
    assert ledger.balance("people").held_mu2 > 0, "the hold is the second run's"
    for step in STEPS[1:]:
        run_step(step, address)
    assert ledger.verify() == []
    assert ledger.balance("people").held_mu2 == 0
