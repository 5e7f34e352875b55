"""Where heavy work runs: a Dask cluster at an address, a local one, or this process's own threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from synth_core.errors import ClusterError

T = TypeVar("T")
LOST = "the Dask scheduler was lost while it worked; run the step again when it answers"
FAN_IN = 8
"""Partial results added up at once: a shallow tree whose nodes fit in a worker's memory."""


class Cluster:
    """A place to run functions; without a client the work is done by threads of this process."""

    def __init__(self, client: Any = None) -> None:
        self._client = client

    @property
    def dashboard(self) -> str:
        """Address of the Dask dashboard, empty without a cluster."""
        return str(self._client.dashboard_link) if self._client is not None else ""

    def map_reduce(
        self, work: Callable[..., T], items: Sequence[str], add: Callable[[Sequence[T]], T], **constants: Any
    ) -> T:
        """Run `work` on each item and add the results up as a tree.

        The graph is recomputed from the items by Dask itself when a worker is lost, so a retried task replaces its
        result instead of adding to it.
        """
        import dask

        parts = [dask.delayed(work, pure=False)(item, **constants) for item in items]
        while len(parts) > 1:
            groups = [parts[at : at + FAN_IN] for at in range(0, len(parts), FAN_IN)]
            parts = [dask.delayed(add, pure=False)(group) for group in groups]
        return self._compute(parts)[0]  # type: ignore[no-any-return]

    def map(self, work: Callable[..., T], items: Sequence[Any], **constants: Any) -> list[T]:
        """Run `work` on each item, all of them in parallel."""
        import dask

        return self._compute([dask.delayed(work, pure=False)(item, **constants) for item in items])

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
                work,
                items[k],
                priority=-rank,
                resources=on_gpu if sizes[k] >= large else None,
                pure=False,
                **constants,
            )
            for rank, k in enumerate(order)
        }
        return [_result(futures[k]) for k in range(len(items))]

    def call(self, work: Callable[..., T], *args: Any, **constants: Any) -> T:
        """Run one heavy function: on a worker with a GPU where there is one, else on any worker, else right here."""
        if self._client is None:
            return work(*args, **constants)
        resources = {"GPU": 1} if self._has_gpu() else None
        future = self._client.submit(work, *args, resources=resources, pure=False, **constants)
        return _result(future)  # type: ignore[no-any-return]

    def on_each_worker(self, work: Callable[..., T], *args: Any) -> dict[str, T]:
        """Run a function on every worker; results by the worker's address. Without a cluster there is no worker."""
        return dict(self._connected().run(work, *args)) if self._client is not None else {}

    def _has_gpu(self) -> bool:
        known = self._connected().scheduler_info(n_workers=-1)
        if "workers" not in known:  # what a client says that has just lost its scheduler
            raise ClusterError(LOST)
        return any("GPU" in (worker.get("resources") or {}) for worker in known["workers"].values())

    def _connected(self) -> Any:
        """The client, unless it has given up looking for its scheduler."""
        if self._client.status not in ("running", "connecting"):
            raise ClusterError(LOST)
        return self._client

    def _compute(self, tasks: list[Any]) -> list[Any]:
        import dask

        if self._client is None:
            return list(dask.compute(*tasks, scheduler="threads"))
        return [_result(future) for future in self._connected().compute(tasks)]


def _result(future: Any) -> Any:
    """What a future computed; that the scheduler was lost meanwhile says nothing of the data, so it may be told."""
    from distributed.client import CancelledError
    from distributed.comm import CommClosedError

    try:
        return future.result()
    except (CancelledError, CommClosedError):
        raise ClusterError(LOST) from None


@contextmanager
def connect(address: str | None) -> Iterator[Cluster]:
    """Open the cluster at `address` (`tcp://host:port`), a `local` one of threads, or none at all."""
    if address is None:
        yield Cluster()
        return
    from distributed import Client, LocalCluster

    if address == "local":
        with (
            LocalCluster(processes=False, n_workers=1, dashboard_address=None) as local,
            Client(local) as client,
        ):
            yield Cluster(client)
        return
    try:
        client = Client(address, timeout="20s")
    except (OSError, ValueError):
        raise ClusterError(
            f"no Dask scheduler answers at {address}; start one with `dask scheduler` or use --cluster local"
        ) from None
    with client:
        yield Cluster(client)
