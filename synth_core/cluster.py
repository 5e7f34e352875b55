"""Where heavy work runs: a Dask cluster at an address, a local one, or this process's own threads.

Workers hold exact partial counts, so they belong to the confidential zone; see `IN_MEMORY` and `NO_SPILLING`. A local
cluster of processes speaks TLS with a key that is made for it and ends with it, so no other process of the machine can
ask its workers to run anything.
"""

from __future__ import annotations

import functools
import importlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from synth_core.arrays import one_thread
from synth_core.errors import ClusterError, needing

T = TypeVar("T")
_log = logging.getLogger(__name__)
LOST = "the Dask scheduler was lost while it worked; run the step again when it answers"
"""What a step says whose scheduler went away."""
EMPTY = "the Dask cluster has no workers left; start some and run the step again"
"""What a step says that waits for workers in vain."""
PROTOCOL = ("python", "dask", "distributed")
"""What must be the same on client, scheduler and workers (Python as 3.x): it decides how messages are written."""
LIBRARIES = ("numpy", "numba", "pyarrow", "synth_core")
"""What must also be the same on workers, which read the functions and arrays that the scheduler passes on unread."""
IN_MEMORY: dict[str, Any] = {"data": dict}
"""Argument of every local worker: results stay in a plain mapping, which writes nothing to a disk. A nanny passes it on
to each worker that it starts again."""
NO_SPILLING = {
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": 0.8,
    "distributed.worker.memory.terminate": 0.95,
}
"""Settings of workers that are started by a command, for their environment: one that is short of memory pauses, and is
started again, rather than writing exact counts to an unguarded disk."""
MODELS_TRAVEL = {"distributed.admin.large-graph-warning-threshold": "1 GiB"}
"""A fit's model is sent with its task, so that the task can start again elsewhere: Dask need not warn of its size."""
HERE_ONLY = {"dashboard_address": "127.0.0.1:0", "worker_dashboard_address": "127.0.0.1:0"}
"""The pages of a local cluster are seen from this machine alone, each cluster's at ports of its own."""
TASKS_PER_THREAD = 4
"""Tasks for each thread of a worker into which work on many items is put: enough to be even, few enough to be passed on
fast. Threads of this process, which share its memory, get one each."""
CONNECT_SECONDS = 20.0
"""How long a scheduler may take to answer before it is taken for missing."""
EMPTY_SECONDS = 180.0
"""Seconds without a worker after which a step gives up: workers that were cut off end, and others take their place."""
LOOK_SECONDS = 10.0
"""Seconds of waiting for a result after which it is seen whether there are workers."""
LOG_SECONDS = 10.0
"""Seconds between two log lines about work under way."""
FAN_IN = 8
"""Partial results added up at once: a shallow tree whose nodes fit in a worker's memory."""


class Cluster:
    """A place to run functions; without a client the work is done by threads of this process."""

    def __init__(self, client: Any = None) -> None:
        self._client = client

    @property
    def dashboard(self) -> str:
        """Address of the Dask dashboard, empty without a cluster."""
        if self._client is None:
            return ""
        known = self._client.scheduler_info(n_workers=0)
        # Of an in-process cluster Dask would name another host than the one it serves.
        if known.get("address", "").startswith("inproc:"):
            return f"http://127.0.0.1:{known['services']['dashboard']}/status"
        return str(self._client.dashboard_link)

    def map_reduce(
        self, work: Callable[..., T], items: Sequence[Any], add: Callable[[Sequence[T]], T], **constants: Any
    ) -> T:
        """Run `work` on runs of neighbouring items, each of which it adds up itself, and add the results up as a tree.

        The graph is recomputed from the items by Dask itself when a worker is lost, so a retried task replaces its
        result instead of adding to it.
        """
        dask = _dask()
        tasks = self._threads() * (1 if self._client is None else TASKS_PER_THREAD)
        several = max(1, math.ceil(len(items) / tasks))
        runs = [items[at : at + several] for at in range(0, len(items), several)]
        parts = _delayed(work, runs, constants)
        while len(parts) > 1:
            groups = [parts[at : at + FAN_IN] for at in range(0, len(parts), FAN_IN)]
            parts = [dask.delayed(add, pure=False)(group) for group in groups]
        return self._compute(parts)[0]  # type: ignore[no-any-return]

    def map(self, work: Callable[..., T], items: Sequence[Any], **constants: Any) -> list[T]:
        """Run `work` on each item, all of them in parallel."""
        return self._compute(_delayed(work, items, constants))

    def map_by_size(
        self,
        work: Callable[..., T],
        items: Sequence[Any],
        *,
        sizes: Sequence[float],
        large: float = math.inf,
        **constants: Any,
    ) -> list[T]:
        """Run `work` on each item, the largest first; results come in the items' order.

        Items of size `large` or more wait for a worker with a GPU, where there is one. What a lost worker had under way
        starts again on another.
        """
        order = sorted(range(len(items)), key=lambda k: -sizes[k])
        if self._client is None:
            found = self.map(work, [items[k] for k in order], **constants)
            return [found[order.index(k)] for k in range(len(items))]
        on_gpu = {"GPU": 1} if self._has_gpu() else None
        futures = {
            k: self._client.submit(
                in_one_thread,
                work,
                items[k],
                priority=-rank,
                resources=on_gpu if sizes[k] >= large else None,
                pure=False,
                **constants,
            )
            for rank, k in enumerate(order)
        }
        return self._results([futures[k] for k in range(len(items))])

    def call(self, work: Callable[..., T], *args: Any, **constants: Any) -> T:
        """Run one heavy function: on a worker with a GPU where there is one, else on any worker, else right here."""
        if self._client is None:
            return work(*args, **constants)
        resources = {"GPU": 1} if self._has_gpu() else None
        future = self._client.submit(in_one_thread, work, *args, resources=resources, pure=False, **constants)
        return self._result(future)  # type: ignore[no-any-return]

    def on_each_worker(self, work: Callable[..., T], *args: Any) -> dict[str, T]:
        """Run a function on every worker; results by the worker's address. Without a cluster there is no worker."""
        return dict(self._connected().run(work, *args)) if self._client is not None else {}

    def _has_gpu(self) -> bool:
        return any("GPU" in (worker.get("resources") or {}) for worker in self._workers())

    def _threads(self) -> int:
        """Threads of all workers, at least one; without a cluster, those of this process."""
        if self._client is None:
            return int(_dask().system.CPU_COUNT)
        threads = [int(worker["nthreads"]) for worker in self._workers()]
        return max(1, sum(threads))

    def _workers(self) -> list[dict[str, Any]]:
        known = self._connected().scheduler_info(n_workers=-1)
        if "workers" not in known:  # what a client says that has just lost its scheduler
            raise ClusterError(LOST)
        return list(known["workers"].values())

    def _connected(self) -> Any:
        """The client, unless it has given up looking for its scheduler."""
        if self._client.status not in ("running", "connecting"):
            raise ClusterError(LOST)
        return self._client

    def _compute(self, tasks: list[Any]) -> list[Any]:
        dask = _dask()
        if self._client is None:
            return list(dask.compute(*tasks, scheduler="threads"))
        return self._results(self._connected().compute(tasks))

    def _results(self, futures: Sequence[Any]) -> list[Any]:
        """What the futures computed, in their order; quarters of long work are logged.

        The number of pieces is not logged: pieces are of even size, so their number says how many rows there are.
        """
        found: list[Any] = []
        quarter, logged = 0, time.monotonic()
        for future in futures:
            found.append(self._result(future))
            reached = 4 * len(found) // len(futures)
            if quarter < reached < 4 and time.monotonic() - logged > LOG_SECONDS:
                quarter, logged = reached, time.monotonic()
                _log.info("%d %% of this work is finished", 25 * quarter)
        return found

    def _result(self, future: Any) -> Any:
        """What a future computed; a lost cluster says nothing about the data, so it is reported as such."""
        from distributed.client import CancelledError
        from distributed.comm import CommClosedError

        seen = time.monotonic()
        while True:
            try:
                return future.result(timeout=LOOK_SECONDS)
            except (CancelledError, CommClosedError):
                raise ClusterError(LOST) from None
            except TimeoutError:
                if future.done():  # it is the work's own
                    raise
            if self._workers():
                seen = time.monotonic()
            elif time.monotonic() - seen > EMPTY_SECONDS:
                raise ClusterError(EMPTY)


def _dask() -> Any:
    with needing("cluster"):
        import dask.system
    return dask


def in_one_thread(work: Callable[..., T], /, *args: Any, **constants: Any) -> T:
    """Run a task; a worker's parallelism is its number of tasks."""
    with one_thread:
        return work(*args, **constants)


def _delayed(work: Callable[..., T], items: Sequence[Any], constants: Mapping[str, Any]) -> list[Any]:
    """The work on each item, later. Dask searches arguments for tasks, which takes long in thousands of cliques, so
    the constants are part of the function.
    """
    dask = _dask()
    bound = functools.partial(in_one_thread, work, **constants)
    return [dask.delayed(bound, pure=False)(item) for item in items]


@contextmanager
def connect(address: str | None) -> Iterator[Cluster]:
    """Open the cluster at `address`: `tcp://host:port`, `tls://host:port`, a word of `LOCAL`, or None for none at all.

    Logs where the cluster is and where it can be watched.
    """
    if address is None:
        yield Cluster()
        return
    with _settings(MODELS_TRAVEL), _client(address) as client:
        try:
            check_versions(client.get_versions(packages=list(LIBRARIES)))
        except OSError:
            raise ClusterError(LOST) from None
        cluster = Cluster(client)
        workers = len(client.scheduler_info(n_workers=-1).get("workers", ()))
        _log.info("Dask cluster %s: %d workers, dashboard %s", address, workers, cluster.dashboard)
        yield cluster


@contextmanager
def _settings(changed: Mapping[str, object]) -> Iterator[None]:
    """Change settings of Dask for a while; `distributed` comes first, or the end would take its own settings along."""
    with needing("cluster"):
        import dask
        import distributed  # noqa: F401

    with dask.config.set(changed):
        yield


@contextmanager
def _client(address: str) -> Iterator[Any]:
    from distributed import Client

    if address in LOCAL:
        with LOCAL[address]() as local, Client(local) as client:
            yield client
        return
    try:
        client = Client(address, timeout=CONNECT_SECONDS)
    except (OSError, ValueError):
        raise ClusterError(
            f"no Dask scheduler answers at {address}; start one with `dask scheduler` or use --cluster local"
        ) from None
    with client:
        yield client


def _threads() -> Any:
    """One worker in this process: it starts at once, and inside an Airflow task, which may not start processes."""
    from distributed import LocalCluster

    return LocalCluster(processes=False, n_workers=1, **IN_MEMORY, **HERE_ONLY)


def _processes() -> Any:
    """A worker process of one thread for each core, each with its part of the memory."""
    from distributed import LocalCluster

    return LocalCluster(threads_per_worker=1, security=True, **IN_MEMORY, **HERE_ONLY)


def _cards() -> Any:
    """A worker for each GPU of this machine; what tasks return stays in the machine's memory."""
    from distributed.diagnostics import nvml

    if nvml.device_get_count() == 0:
        raise ClusterError("no GPU answers here; use --cluster local, or the address of a cluster with GPUs")
    try:
        dask_cuda = importlib.import_module("dask_cuda")
    except ImportError:
        raise ClusterError("GPU workers need dask-cuda, which is missing; install the extra `cuda`") from None
    return dask_cuda.LocalCUDACluster(
        threads_per_worker=1,
        resources={"GPU": 1},
        rmm_pool_size=0.4,
        rmm_maximum_pool_size=0.8,
        rmm_allocator_external_lib_list=["cupy"],
        security=True,
        **IN_MEMORY,
        **HERE_ONLY,
    )


LOCAL: dict[str, Callable[[], Any]] = {"local": _threads, "processes": _processes, "cuda": _cards}
"""Clusters that live as long as a step: threads of this process, processes of this machine, its GPUs."""


def check_versions(found: Mapping[str, Any]) -> None:
    """Refuse a cluster on which other versions run than here, given what `Client.get_versions` found.

    Functions and arrays travel to workers as pickles, which other versions may misread, and a fit must not depend on
    where it ran.
    """
    here = _versions(found["client"])
    workers = [_versions(raw) for raw in found["workers"].values()]
    differing = _differing(here, workers, (*PROTOCOL, *LIBRARIES))
    if differing:
        raise ClusterError(
            f"Dask workers have {differing}; install the same lock file on them as here and start them again"
        )
    differing = _differing(here, [_versions(found["scheduler"])], PROTOCOL)
    if differing:
        raise ClusterError(
            f"the Dask scheduler has {differing}; install the same lock file on it as here and start it again"
        )


def _versions(raw: Mapping[str, Any]) -> dict[str, str]:
    versions = {name: str(version) for name, version in raw["packages"].items() if version is not None}
    versions["python"] = ".".join(versions["python"].split(".")[:2])
    return versions


def _differing(here: Mapping[str, str], there: Sequence[Mapping[str, str]], names: Sequence[str]) -> str:
    found = {
        f"{name} {other[name]} instead of {here[name]}" if name in other else f"no {name}"
        for other in there
        for name in names
        if other.get(name) != here[name]
    }
    return ", ".join(sorted(found))
