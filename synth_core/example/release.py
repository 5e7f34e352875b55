"""The example release that `synth init` writes and the demo runs."""

from __future__ import annotations

from pathlib import Path

from synth_core.ledger.sql import open_ledger
from synth_core.privacy.accounts import Account
from synth_core.release.spec import ReleaseSpec

DATASET = "fictional-census"
DELTA = 1e-6
EPSILON = 1.0
CAP_EPSILON = 4.0


def example_spec() -> ReleaseSpec:
    """A spec that runs as it is beside the example's schema and data."""
    return ReleaseSpec.parse(
        {
            "release": "example",
            "dataset": DATASET,
            "source": "data/people.csv",
            "schema": "schema.yaml",
            "method": "privmrf",
            "epsilon": EPSILON,
            "delta": DELTA,
        }
    )


def declare_example_account(workspace: Path) -> None:
    """Declare the example's account; declaring it again changes nothing."""
    workspace.mkdir(parents=True, exist_ok=True)
    account = Account(dataset=DATASET, unit="person", delta=DELTA, cap_epsilon=CAP_EPSILON, largest_n=100_000)
    open_ledger(workspace).declare(account, actor="example")
