"""A Dask scheduler that is lost while a step waits for it: said in public words, and worth another try."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from distributed.client import FutureCancelledError
from distributed.comm import CommClosedError

from synth_core import cluster as cluster_module
from synth_core.cluster import Cluster
from synth_core.errors import ClusterError, WallError
from synth_core.privacy.wall import wall


class Client:
    """A client whose futures end as they are told."""

    def __init__(self, error: Exception, status: str = "running", *, done: bool = True) -> None:
        self.status = status
        self._future = SimpleNamespace(result=self._raise, done=lambda: done)
        self._error = error

    def _raise(self, *, timeout: float) -> None:
        assert timeout > 0
        raise self._error

    def compute(self, tasks: list) -> list:
        return [self._future] * len(tasks)

    def submit(self, *_args, **_settings):
        return self._future

    def scheduler_info(self, **_):
        return {"workers": {}}


VERBS = {
    "map": lambda cluster: cluster.map(abs, [1, 2]),
    "call": lambda cluster: cluster.call(abs, 1),
    "map_by_size": lambda cluster: cluster.map_by_size(abs, [1, 2], sizes=[1, 2]),
    "map_reduce": lambda cluster: cluster.map_reduce(abs, ["a"], sum),
}


@pytest.mark.parametrize("verb", list(VERBS))
@pytest.mark.parametrize("error", [FutureCancelledError("key", "scheduler-connection-lost"), CommClosedError("gone")])
def test_a_lost_scheduler_is_a_cluster_error_on_both_sides_of_the_wall(verb, error):
    cluster = Cluster(Client(error))
    with pytest.raises(ClusterError, match="the Dask scheduler was lost"):
        VERBS[verb](cluster)
    with pytest.raises(ClusterError), wall():
        VERBS[verb](cluster)


@pytest.mark.parametrize("verb", list(VERBS))
def test_a_client_that_gave_up_is_one_too(verb):
    cluster = Cluster(Client(ValueError(), status="closed"))
    with pytest.raises(ClusterError, match="the Dask scheduler was lost"):
        VERBS[verb](cluster)


@pytest.mark.parametrize("verb", ["call", "map_by_size", "map_reduce"])
def test_a_client_without_a_list_of_workers_is_one_too(verb, monkeypatch):
    monkeypatch.setattr(Client, "scheduler_info", lambda self, **_: {"type": "Scheduler"})
    with pytest.raises(ClusterError, match="the Dask scheduler was lost"), wall():
        VERBS[verb](Cluster(Client(ValueError())))


def test_an_error_of_the_work_itself_stays_behind_the_wall():
    with pytest.raises(WallError, match="OSError"), wall():
        Cluster(Client(OSError("a path with a name in it"))).map(abs, [1])


@pytest.mark.parametrize("verb", list(VERBS))
def test_a_cluster_that_stays_without_workers_is_one_too(verb, monkeypatch):
    """Workers that were cut off end; without others the step would wait for ever."""
    now = [0.0]
    monkeypatch.setattr(cluster_module, "time", SimpleNamespace(monotonic=lambda: now.append(now[-1] + 50) or now[-1]))
    with pytest.raises(ClusterError, match="has no workers left"), wall():
        VERBS[verb](Cluster(Client(TimeoutError(), done=False)))
    assert cluster_module.EMPTY_SECONDS < now[-1] < 2 * cluster_module.EMPTY_SECONDS


def test_workers_that_come_back_are_waited_for(monkeypatch):
    """Between two looks at an empty cluster there may be any time, if one in between found a worker."""
    looks, left = [{}, {"a": {"nthreads": 1}}, {}, {}], 5

    class Returning(Client):
        def _raise(self, *, timeout: float) -> int:
            nonlocal left
            left -= 1
            if left:
                raise TimeoutError
            return 7

        def scheduler_info(self, **_):
            return {"workers": looks.pop(0) if looks else {}}

    now = [0.0]
    monkeypatch.setattr(cluster_module, "time", SimpleNamespace(monotonic=lambda: now.append(now[-1] + 50) or now[-1]))
    client = Returning(TimeoutError(), done=False)
    assert Cluster(client)._result(client.submit()) == 7


def test_a_timeout_of_the_work_itself_stays_behind_the_wall():
    with pytest.raises(WallError, match="TimeoutError"), wall():
        Cluster(Client(TimeoutError("a path with a name in it"))).map(abs, [1])
