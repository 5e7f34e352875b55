"""Linear algebra runs in one thread wherever the package computes, and afterwards in as many as before."""

from __future__ import annotations

import threading

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from synth_core import Schema, synthesize
from synth_core.arrays import one_thread
from synth_core.cluster import Cluster, connect
from synth_core.domain import Domain
from synth_core.evaluation import compare_codes
from synth_core.measurement import Measurement
from synth_core.models.maximum_entropy import estimate

DOMAIN = Domain.of({"a": 2, "b": 3})
ROWS = np.random.default_rng(0).integers(0, (2, 3), (60, 2))


def threads(*_: object) -> int:
    """The most threads of any library of linear algebra in this process."""
    return max(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")


@pytest.fixture(autouse=True)
def two_threads():
    """Whatever the environment of the tests says, libraries begin with two."""
    with threadpool_limits(2, user_api="blas"):
        assert threads() == 2
        yield
        assert threads() == 2, "what was set before is restored"


def test_the_last_to_leave_restores():
    inside, leave = threading.Event(), threading.Event()

    def stay():
        with one_thread:
            inside.set()
            leave.wait(60)

    other = threading.Thread(target=stay)
    with one_thread:
        other.start()
        assert inside.wait(60)
        assert threads() == 1
    assert threads() == 1, "another thread of the process is inside"
    leave.set()
    other.join()
    assert threads() == 2


def test_a_library_that_turns_up_inside_is_kept_to_one_thread_too():
    late = threadpool_limits(2, user_api="blas")  # as one would begin that is loaded only now
    with one_thread, late, one_thread:
        assert threads() == 1


def test_an_error_inside_restores_as_well():
    with pytest.raises(ZeroDivisionError), one_thread:
        _ = 1 / 0


@pytest.mark.parametrize("place", [None, "local"])
def test_every_task_runs_in_one_thread(place):
    with connect(place) as cluster:
        assert cluster.map(threads, [1, 2]) == [1, 1]
        assert cluster.map_reduce(threads, [1, 2], max) == 1
        assert cluster.map_by_size(threads, [1], sizes=[1.0]) == [1]
        if place:
            assert cluster.call(threads) == 1


def test_fits_evaluations_and_whole_calls_run_in_one_thread():
    seen = []
    measurements = [Measurement(("a", "b"), np.full((2, 3), 10.0), 1.0)]
    estimate(DOMAIN, measurements, progress=lambda _: seen.append(threads()))
    compare_codes(ROWS, ROWS, DOMAIN, progress=lambda *_: seen.append(threads()))
    frame = pd.DataFrame(ROWS, columns=["a", "b"])
    schema = Schema.from_sizes({"a": 2, "b": 3})
    synthesize(frame, schema, epsilon=1.0, delta=1e-6, progress=lambda _: seen.append(threads()))
    assert len(seen) > 10
    assert set(seen) == {1}


def test_without_a_cluster_the_caller_keeps_its_threads():
    assert Cluster().call(threads) == 2
