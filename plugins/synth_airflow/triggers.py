"""Waiting for the Dask scheduler without occupying a worker: the triggerer knocks until it answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

from airflow.triggers.base import BaseTrigger, TriggerEvent

KNOCK_SECONDS = 5.0


async def answers(address: str, *, timeout: float = 2.0) -> bool:
    """Whether something listens at an address such as tcp://host:8786."""
    place = urlsplit(address)
    try:
        async with asyncio.timeout(timeout):
            _, writer = await asyncio.open_connection(place.hostname, place.port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


class ClusterTrigger(BaseTrigger):
    """Fires when the scheduler at an address answers."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Where the triggerer finds this class, and what it is made with."""
        return "synth_airflow.triggers.ClusterTrigger", {"address": self.address}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Knock every few seconds."""
        while not await answers(self.address):
            await asyncio.sleep(KNOCK_SECONDS)
        yield TriggerEvent(self.address)
