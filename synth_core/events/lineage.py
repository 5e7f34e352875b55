"""OpenLineage events of releases: which account paid for which extract, and how much privacy that cost.

SYNTH_LINEAGE names a file that events are appended to, or the URL of a collector. The confidential input is named and
nothing else: no facet with rows, bytes or columns' statistics of it is ever sent. A collector that does not answer is a
warning in the log and never fails a release.
"""

from __future__ import annotations

import json
import logging
import urllib.request
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from synth_core.privacy.accounts import Runner
from synth_core.settings import Settings

PRODUCER = f"urn:synth-core:{version('synth-core')}"
SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
FACET = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunFacet"
TIMEOUT_SECONDS = 5

_log = logging.getLogger(__name__)


def tell_lineage(manifest: Path, runner: Runner) -> None:
    """Send the event of a published release, where somebody wants it."""
    target = Settings.from_environment().lineage
    if not target:
        return
    try:
        event = json.dumps(published(json.loads(manifest.read_text(encoding="utf-8")), runner)).encode()
        if target.startswith(("http://", "https://")):
            request = urllib.request.Request(  # noqa: S310 — http and https alone
                target, data=event, headers={"Content-Type": "application/json"}, method="POST"
            )
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS):  # noqa: S310
                return
        with Path(target).open("ab") as file:
            file.write(event + b"\n")
    except (OSError, ValueError, KeyError) as error:
        _log.warning("lineage was not told: %s", type(error).__name__)


def published(manifest: dict[str, Any], runner: Runner) -> dict[str, Any]:
    """The completion event of a release: its privacy loss on the run, its digest on the output."""
    release, dataset, guarantee = manifest["release"], manifest["dataset"], manifest["guarantee"]
    run = str(uuid5(NAMESPACE_URL, f"{runner.dag}/{runner.run}/{release}"))
    loss = {
        "unit": guarantee["unit"],
        "epsilon": guarantee["epsilon"],
        "delta": guarantee["delta"],
        "mu": guarantee["mu"],
        "epsilonSpent": guarantee["epsilon_spent"],
        "accountEpsilon": guarantee["account"]["epsilon"],
        "accountEpsilonSpent": guarantee["account"]["epsilon_spent"],
        "accountEpsilonCap": guarantee["account"]["epsilon_cap"],
        "accountRecord": manifest["provenance"]["ledger"]["records"],
    }
    return {
        "eventType": "COMPLETE",
        "eventTime": datetime.now(UTC).isoformat(),
        "producer": PRODUCER,
        "schemaURL": SCHEMA,
        "run": {"runId": run, "facets": {"synth_privacyLoss": _facet(loss)}},
        "job": {"namespace": "synth", "name": runner.dag or "synth"},
        "inputs": [{"namespace": "synth://confidential", "name": dataset}],
        "outputs": [
            {
                "namespace": "synth://public",
                "name": f"{dataset}/{release}",
                "facets": {"synth_release": _facet({"manifestDigest": manifest["digest"]})},
            }
        ],
    }


def _facet(values: dict[str, Any]) -> dict[str, Any]:
    return {"_producer": PRODUCER, "_schemaURL": FACET, **values}
