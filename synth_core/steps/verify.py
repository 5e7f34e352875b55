"""Check a published release against its own manifest and, where it is at hand, against the ledger."""

from __future__ import annotations

import json
from pathlib import Path

from synth_core.errors import SpecError
from synth_core.release import manifest as manifests
from synth_core.storage.sql_ledger import SqlLedger, ledger_url


def verify_release(public: Path) -> list[str]:
    """Every problem found, in words; an empty list is a good release."""
    path = public / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise SpecError(f"{public} holds no manifest.json; name the folder of a published release") from None
    except ValueError:
        return ["manifest.json: is not valid JSON"]
    workspace = public.resolve().parents[1]
    if not (workspace / "ledger.sqlite").exists() and ledger_url(workspace, None).startswith("sqlite"):
        return manifests.problems(manifest, public)
    ledger = SqlLedger(ledger_url(workspace, None))
    records = ledger.records(dataset=manifest["dataset"], release=manifest["release"])
    return [*ledger.verify(), *manifests.problems(manifest, public, records=records)]
