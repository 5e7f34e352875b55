"""What changed since the last release of the same data set, told from the two manifests alone."""

from __future__ import annotations

from typing import Any

from synth_core.privacy.wording import loss_text
from synth_core.report.tables import Table, percent


def changes_table(manifest: dict[str, Any], previous: dict[str, Any] | None) -> Table | None:
    """One row for each fact, the earlier release beside this one; None for the first release of a data set."""
    if previous is None:
        return None
    before, now = _facts(previous), _facts(manifest)
    return Table(
        head=("", previous["release"], manifest["release"]),
        rows=tuple((name, before.get(name, "–"), value) for name, value in now.items())
        + tuple(_columns(previous, manifest)),
    )


def _facts(manifest: dict[str, Any]) -> dict[str, str]:
    guarantee, method = manifest["guarantee"], manifest["method"]
    quality = manifest.get("quality", {})
    facts = {
        "privacy loss ε": loss_text(guarantee["epsilon"]),
        "schema": manifest["schema_digest"][:12],
        "method": f"{method['name']}, preset {method['preset']}",
        "measured marginals": f"{quality.get('measured_marginals', 0):,}",
    }
    if "noisy_total" in quality:
        facts["records, noisy"] = f"{quality['noisy_total']:,.0f}"
    for error in quality.get("bought", []):
        facts[f"mean {error['alpha']}-way distance"] = percent(error["mean"])
    return facts


def _columns(previous: dict[str, Any], manifest: dict[str, Any]) -> list[tuple[str, str, str]]:
    before, now = previous.get("domain", {}), manifest["domain"]
    added = [name for name in now if name not in before]
    removed = [name for name in before if name not in now]
    changed = [name for name in now if name in before and now[name] != before[name]]
    rows = [("columns added", "", ", ".join(added))] if added else []
    rows += [("columns removed", ", ".join(removed), "")] if removed else []
    rows += [("columns declared otherwise", "", ", ".join(changed))] if changed else []
    return rows
