"""Strata fitted by two Dask workers, one of which is killed in the middle: the result and the price stay."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from unittest.mock import patch

import pytest
from distributed import Client, Event, LocalCluster, Queue
from support.strata_release import DISTRICTS, ledger_of, run_steps, with_the_same_answers, write_release

from synth_core.ledger.book import cost_by_step
from synth_core.models.maximum_entropy import estimate as real_estimate
from synth_core.privacy.accounts import State
from synth_core.release.paths import ReleasePaths
from synth_core.release.verify import verify_release
from synth_core.steps import STEPS, list_parts, prepare, run_step, strata, summary

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def workers():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as local,
        Client(local) as client,
    ):
        client.wait_for_workers(2)
        yield client


def fitted(paths):
    return len(list(paths.home.glob("strata/*/model.npz")))


def held_in_the_middle(draft):
    """A conversation that stops in an estimation, and says which process it is, once two strata have been fitted."""

    def converse(number, **facts):
        """Nested, so that it travels to the workers as it is; there the module has the real conversation."""
        from synth_core.steps import conversation, strata

        def estimate(*args, **settings):
            if len(list(draft.glob("strata/*/model.npz"))) >= 2:
                Queue("at work").put(os.getpid())
                Event("go").wait()
            return real_estimate(*args, **settings)

        with patch.object(conversation, "estimate", estimate):
            strata.converse(number, **facts)

    return converse


def test_a_worker_killed_in_the_middle_changes_neither_the_result_nor_the_price(workers, tmp_path):
    (tmp_path / "first").mkdir()
    folder = tmp_path / "first"
    spec = write_release(folder, method="privmrf")
    where = workers.scheduler.address
    address = run_steps(spec, folder, STEPS[:3], cluster=where)
    paths = ReleasePaths.of_address(address)
    assert len(list_parts("fit", address)) == len(DISTRICTS)
    before = {info["pid"] for info in workers.run(lambda: {"pid": os.getpid()}).values()}
    held = patch.object(strata, "converse", held_in_the_middle(paths.home))
    with held, ThreadPoolExecutor(1) as pool:
        fit = pool.submit(run_step, "fit", address, cluster=where)
        at_work = Queue("at work", client=workers)
        fit.add_done_callback(lambda _: at_work.put(None))  # a step that ends early is seen below, not waited for
        victim = at_work.get()
        assert victim in before
        assert 2 <= fitted(paths) < len(DISTRICTS)
        os.kill(victim, signal.SIGKILL)
        Event("go", client=workers).set()
        fit.result()
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
    charged = ledger.balance("people").charged_mu2
    assert charged == sum(cost_by_step(records).values()) == shared + max(parts.values())

    again = with_the_same_answers(folder, tmp_path / "second")
    quiet = prepare(spec, workspace=again / "workspace")
    for step in STEPS:
        run_step(step, quiet)
    assert summary(quiet)["digest"] == summary(address)["digest"], "the same answers, undisturbed"
    assert ledger_of(again).balance("people").charged_mu2 == charged
