"""A release of two linked tables small enough for tests, written to a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.linked_tables import SCHEMA, linked_frames
from synth_core.ledger.sql import open_ledger
from synth_core.privacy.accounts import Account
from synth_core.schema.linked import LinkedSchema

DELTA = 1e-6


def write_linked_release(
    folder: Path,
    *,
    households: int = 400,
    frames: dict[str, Any] | None = None,
    schema: LinkedSchema = SCHEMA,
    cap: float = 4.0,
    unit: str = "household",
    rows_per_unit: int = 1,
    **changes: object,
) -> dict[str, Any]:
    """Schema, both files and the account; returns the spec's values."""
    schema.save(folder / "linked.yaml")
    for name, frame in (frames or linked_frames(households)).items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    account = Account(
        dataset="homes", unit=unit, delta=DELTA, cap_epsilon=cap, rows_per_unit=rows_per_unit, largest_n=100_000
    )
    open_ledger(workspace, create=True).declare(account, actor="test")
    return {
        "release": "r1",
        "dataset": "homes",
        "source": {name: str(folder / f"{name}.csv") for name in ("household", "person")},
        "schema": str(folder / "linked.yaml"),
        "epsilon": 2.0,
        "delta": DELTA,
        "unit": "household",
        "shards": 2,
        **changes,
    }
