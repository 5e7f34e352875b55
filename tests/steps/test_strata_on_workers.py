"""Strata fitted by two Dask workers, one of which is killed in the middle: the result and the price stay."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest
from distributed import Client, LocalCluster
from strata_release import DISTRICTS, ledger_of, run_steps, with_the_same_answers, write_release

from synth_core.privacy.ledger import State
from synth_core.release.manifest import charged_records, cost_by_step
from synth_core.release.paths import ReleasePaths
from synth_core.steps import STEPS, prepare, run_step, strata, summary
from synth_core.steps.verify import verify_release

PATIENCE = 120


@pytest.fixture(scope="module")
def workers():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as local,
        Client(local) as client,
    ):
        client.wait_for_workers(2)
        yield client


def busy_worker(client):
    """The process of a worker that is in the middle of a stratum."""
    for address, tasks in client.processing().items():
        if tasks:
            return client.run(os.getpid, workers=[address])[address]
    return None


def fitted(paths):
    return len(list(paths.public.glob("strata/*/model.npz")))


def kill_one_in_the_middle(client, paths):
    """Wait until some strata are fitted and others are not, then kill a worker that has one of these."""
    deadline = time.monotonic() + PATIENCE
    while fitted(paths) < 2:
        assert time.monotonic() < deadline, "no stratum was fitted"
        time.sleep(0.02)
    victim = busy_worker(client)
    if victim is None or fitted(paths) == len(DISTRICTS):
        return None
    os.kill(victim, signal.SIGKILL)
    return victim


@pytest.mark.timeout(400)
def test_a_worker_killed_in_the_middle_changes_neither_the_result_nor_the_price(workers, tmp_path):
    (tmp_path / "first").mkdir()
    folder = tmp_path / "first"
    spec = write_release(folder, method="privmrf")
    where = workers.scheduler.address
    address = run_steps(spec, folder, STEPS[:3], cluster=where)
    paths = ReleasePaths.of_address(address)
    assert len(strata(address)) == len(DISTRICTS)
    before = {info["pid"] for info in workers.run(lambda: {"pid": os.getpid()}).values()}
    with ThreadPoolExecutor(1) as pool:
        fit = pool.submit(run_step, "fit", address, cluster=where)
        victim = kill_one_in_the_middle(workers, paths)
        fit.result(timeout=PATIENCE)
    assert victim in before, "the blow came too late: all strata were fitted"
    for step in STEPS[4:]:
        run_step(step, address, cluster=where)
    assert fitted(paths) == len(DISTRICTS)
    assert verify_release(paths.public) == []

    ledger = ledger_of(folder)
    records = ledger.records(release="r1")
    answered = [record for record in records if record.state is State.MEASURED]
    assert len({record.key for record in answered}) == len(answered), "one answer for each question"
    parts = {}
    for record in answered:
        if record.stratum:
            parts[record.stratum.part] = parts.get(record.stratum.part, Fraction(0)) + record.mu2
    shared = sum((record.mu2 for record in answered if record.stratum is None), Fraction(0))
    given_up = [record for record in charged_records(records) if record.state is State.FORFEITED]
    charged = ledger.balance("people").charged_mu2
    assert charged == sum(cost_by_step(records).values())
    if given_up:  # the blow fell between reading and storing: that attempt stays charged, to its own stratum
        assert charged <= shared + max(parts.values()) + sum(record.mu2 for record in given_up)
    else:
        assert charged == shared + max(parts.values())

    again = with_the_same_answers(folder, tmp_path / "second")
    quiet = prepare(spec, workspace=again / "workspace")
    for step in STEPS:
        run_step(step, quiet)
    assert summary(quiet)["digest"] == summary(address)["digest"], "the same answers, undisturbed"
    assert ledger_of(again).balance("people").charged_mu2 == charged
