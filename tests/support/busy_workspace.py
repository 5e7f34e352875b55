"""A workspace with a history: one published release, one that failed, one under way, a few events."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from support.budget_examples import EVIL, OTHER_RUN, RUNNER, spend
from support.small_release import write_release
from synth_core.events.journal import Event, Kind, append
from synth_core.events.office import Office
from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.privacy.accounts import Account
from synth_core.privacy.budget import mu2_of
from synth_core.steps import STEPS, prepare, run_step


@pytest.fixture(scope="session")
def finished_workspace(tmp_path_factory):
    """Built once: a real release takes some seconds."""
    folder = tmp_path_factory.mktemp("operations")
    spec = write_release(folder, method="independent")
    workspace = folder / "workspace"
    address = prepare(spec, workspace=workspace, runner=RUNNER)
    for step in STEPS:
        run_step(step, address, runner=replace(RUNNER, task=step))
    ledger = SqlLedger(ledger_url(workspace, None))
    houses = Account(dataset="houses", unit="household", delta=1e-6, cap_epsilon=2.0, largest_n=100_000)
    ledger.declare(houses, actor=EVIL)
    ledger.hold("houses", "failed-1", mu2=mu2_of(0.5, 1e-6), runner=OTHER_RUN)
    spend(ledger, "failed-1", "score", mu2=mu2_of(0.2, 1e-6))
    spend(ledger, "failed-1", "fit", mu2=mu2_of(0.2, 1e-6), finish=False)
    ledger.close("houses", "failed-1", reason="task fit failed", runner=OTHER_RUN)
    ledger.hold("houses", "going-1", mu2=mu2_of(0.4, 1e-6), runner=OTHER_RUN)
    refused = Event(kind=Kind.REFUSAL, dataset="houses", release="too-much", step="prepare", text=f"no room {EVIL}")
    append(workspace, refused)
    append(workspace, Event(kind=Kind.STEP, dataset="people", release="r1", step="fit", seconds=2.5))
    append(workspace, Event(kind=Kind.STEP, dataset="people", release="r1", step="fit", seconds=0.5))
    return workspace


@pytest.fixture
def workspace(finished_workspace, tmp_path):
    """A copy of one's own, to be changed or damaged."""
    target = tmp_path / "workspace"
    shutil.copytree(finished_workspace, target)
    return target


@pytest.fixture
def office(workspace):
    return Office(workspace)
