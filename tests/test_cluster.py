"""Clusters: which versions they may have, how local ones are set up, and what the log hears."""

import copy
import logging
import os
import subprocess
import sys
from urllib.request import urlopen

import numpy as np
import pytest
from distributed import Client, LocalCluster
from distributed.comm import CommClosedError
from distributed.security import Security

from synth_core import cluster as clusters
from synth_core.cluster import LIBRARIES, PROTOCOL, TASKS_PER_THREAD, Cluster, check_versions, connect
from synth_core.errors import ClusterError

HERE = {
    "packages": {
        "python": "3.11.7.final.0",
        "dask": "2026.7.1",
        "distributed": "2026.7.1",
        "numpy": "2.4.6",
        "numba": "0.68.1",
        "pyarrow": "26.0.1",
        "synth_core": "0.1.0",
    }
}


def found(*, where="worker", **versions):
    """What a client finds on a cluster of two workers, one of which (or the scheduler) has other versions."""
    other = copy.deepcopy(HERE)
    other["packages"] |= versions
    scheduler = other if where == "scheduler" else HERE
    return {
        "client": HERE,
        "scheduler": scheduler,
        "workers": {"a": HERE, "b": other if where == "worker" else HERE},
    }


@pytest.mark.parametrize("name", [*PROTOCOL, *LIBRARIES])
def test_workers_of_another_version_are_refused_with_the_remedy(name):
    with pytest.raises(ClusterError, match=rf"workers have {name} 1\.0 instead of .*install the same lock file"):
        check_versions(found(**{name: "1.0.0" if name == "python" else "1.0"}))


def test_workers_that_lack_a_package_are_refused():
    with pytest.raises(ClusterError, match="workers have no numba, no synth_core;"):
        check_versions(found(synth_core=None, numba=None))


@pytest.mark.parametrize("name", PROTOCOL)
def test_a_scheduler_of_another_version_is_refused(name):
    with pytest.raises(ClusterError, match=rf"scheduler has {name} 1\.0 instead of"):
        check_versions(found(where="scheduler", **{name: "1.0.0" if name == "python" else "1.0"}))


def test_what_does_not_matter_may_differ():
    check_versions(found())
    check_versions(found(python="3.11.9.final.0", tornado="1.0"))
    check_versions(found(where="scheduler", numba=None, synth_core=None, numpy="1.0"))


def test_the_versions_of_a_real_cluster_are_compared(monkeypatch):
    versions = Client.get_versions

    def elsewhere(self, **settings):
        answer = copy.deepcopy(versions(self, **settings))
        answer["client"]["packages"]["synth_core"] = "9.9"
        return answer

    monkeypatch.setattr(Client, "get_versions", elsewhere)
    with pytest.raises(ClusterError, match=r"workers have synth_core .* instead of 9\.9"), connect("local"):
        pass


def test_a_scheduler_lost_at_once_is_a_cluster_error(monkeypatch):
    def lost(self, **_):
        raise CommClosedError("gone")

    monkeypatch.setattr(Client, "get_versions", lost)
    with pytest.raises(ClusterError, match="the Dask scheduler was lost"), connect("local"):
        pass


def test_the_log_hears_where_the_cluster_is_and_how_work_goes_on(caplog, monkeypatch):
    monkeypatch.setattr(clusters, "LOG_SECONDS", -1.0)
    caplog.set_level(logging.INFO, logger="synth_core.cluster")
    with LocalCluster(processes=False, n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as local:
        with connect(local.scheduler_address) as cluster:
            assert cluster.map(abs, list(range(37))) == list(range(37))
            assert cluster.dashboard.startswith("http://")
        assert f"Dask cluster {local.scheduler_address}: 2 workers, dashboard http://" in caplog.text
    told = [record.getMessage() for record in caplog.records if record.name == "synth_core.cluster"]
    assert told[1:] == [f"{share} % of this work is finished" for share in (25, 50, 75)], "never how many pieces"


def test_the_pages_of_a_local_cluster_are_seen_from_here_alone():
    assert Cluster().dashboard == ""
    with connect("local") as cluster:
        assert cluster.dashboard.startswith("http://127.0.0.1:")
        assert urlopen(cluster.dashboard.replace("status", "health"), timeout=10).status == 200


def place_of_results(dask_worker):
    """The process, what its results are kept in, and at which share of its memory it pauses."""
    memory = dask_worker.memory_manager
    return os.getpid(), type(memory.data).__name__, memory.memory_pause_fraction, bool(memory.memory_limit)


def test_worker_threads_pause_rather_than_spill():
    with connect("local") as cluster:
        (found,) = cluster.on_each_worker(place_of_results).values()
    assert found[1:] == ("dict", 0.8, True)


@pytest.mark.slow
def test_worker_processes_pause_rather_than_spill_also_after_they_were_started_again():
    """The very case it is for: a worker that ran out of memory is ended, and its nanny starts another."""
    with connect("processes") as cluster:
        before = cluster.on_each_worker(place_of_results).values()
        cluster._client.restart(timeout=300, wait_for_workers=True)
        after = cluster.on_each_worker(place_of_results).values()
        assert cluster.dashboard.startswith("http://127.0.0.1:")
    assert len(before) == len(after) >= 1
    assert not {facts[0] for facts in before} & {facts[0] for facts in after}, "other processes than before"
    assert {facts[1:] for facts in (*before, *after)} == {("dict", 0.8, True)}


@pytest.mark.slow
def test_a_process_without_credentials_cannot_use_a_cluster_of_processes():
    """On the loopback interface every process of the machine reaches the scheduler and the workers."""
    with connect("processes") as cluster:
        scheduler = cluster._client.scheduler.address
        (worker, *_) = cluster.on_each_worker(os.getpid)
        for place in (scheduler, worker):
            assert place.startswith("tls://127.0.0.1:")
            with pytest.raises(OSError), Client(place.replace("tls:", "tcp:"), timeout="2s"):  # noqa: PT011
                pass
            strange = Security.temporary()
            with pytest.raises(OSError), Client(place, security=strange, timeout="2s"):  # noqa: PT011
                pass
        assert cluster.map(abs, [-1, 2]) == [1, 2], "and nobody was disturbed"


class NoCluster:
    """Remembers how it was asked for."""

    def __init__(self, **settings):
        self.settings = settings


def test_gpu_workers_are_one_for_each_card_and_have_the_resource(monkeypatch):
    monkeypatch.setattr("distributed.diagnostics.nvml.device_get_count", lambda: 2)
    monkeypatch.setitem(sys.modules, "dask_cuda", type("module", (), {"LocalCUDACluster": NoCluster}))
    settings = clusters.LOCAL["cuda"]().settings
    assert settings["resources"] == {"GPU": 1}
    assert settings["threads_per_worker"] == 1
    assert settings["data"] is dict, "results stay in memory, whatever else is set"
    assert settings["security"] is True
    assert settings["rmm_allocator_external_lib_list"] == ["cupy"], "CuPy takes its memory from the pool"


def test_gpu_workers_without_a_gpu_or_without_dask_cuda_are_refused(monkeypatch):
    monkeypatch.setattr("distributed.diagnostics.nvml.device_get_count", lambda: 0)
    with pytest.raises(ClusterError, match="no GPU answers here; use --cluster local"), connect("cuda"):
        pass
    monkeypatch.setattr("distributed.diagnostics.nvml.device_get_count", lambda: 1)
    monkeypatch.setitem(sys.modules, "dask_cuda", None)
    with pytest.raises(ClusterError, match="need dask-cuda, which is missing"), connect("cuda"):
        pass


def powers(run, *, exponent):
    return sum(item**exponent for item in run)


@pytest.mark.parametrize("count", [1, 2, 7, 40, 101])
def test_every_item_is_added_up_once_whatever_their_number(count):
    """More items than a few for each thread are put together in tasks."""
    items = list(range(count))
    with connect("local") as cluster:
        assert cluster.map_reduce(powers, items, sum, exponent=2) == sum(item**2 for item in items)
    assert Cluster().map_reduce(powers, items, sum, exponent=2) == sum(item**2 for item in items)


def test_many_items_are_few_tasks(monkeypatch):
    monkeypatch.setattr(Cluster, "_threads", lambda _: 2)
    for client, tasks in ((None, 2), (object(), 2 * TASKS_PER_THREAD)):
        runs = []
        monkeypatch.setattr(Cluster, "_compute", lambda _, parts: [part.compute(scheduler="sync") for part in parts])
        total = Cluster(client).map_reduce(lambda run, runs=runs: runs.append(len(run)) or sum(run), range(100), sum)
        assert total == sum(range(100))
        assert len(runs) <= tasks
        assert sum(runs) == 100


def test_a_model_travels_with_its_task_without_a_warning(recwarn):
    table = np.zeros(2_000_000)  # 16 MB
    with connect("local") as cluster:
        assert cluster.call(len, table) == len(table)
    assert not [warning for warning in recwarn if "large graph" in str(warning.message)]


@pytest.mark.slow
@pytest.mark.parametrize("address", ["local", "processes"])
def test_a_cluster_may_be_the_first_thing_that_imports_dask(address):
    """Dask brings its own settings when it is imported; a change undone must not take them along."""
    program = f"""
from synth_core.cluster import connect
if __name__ == "__main__":
    for _ in range(2):
        with connect("{address}"):
            pass
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
