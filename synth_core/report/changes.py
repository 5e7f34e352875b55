"""What changed since the release before: what both have published, side by side, and how far columns have moved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from synth_core.evaluation.public import PublicQuality
from synth_core.privacy.wording import loss_text
from synth_core.report import charts, exhibits
from synth_core.report.exhibits import Exhibit
from synth_core.report.page import Table, percent
from synth_core.schema import Schema

MEAN_ABSOLUTE = math.sqrt(2 / math.pi)
"""Mean absolute value of a standard normal variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Previous:
    """What the release before has published: its manifest and, where they can be read, its quality and schema."""

    manifest: dict[str, Any]
    quality: PublicQuality | None = None
    schema: Schema | None = None


def changes_table(manifest: dict[str, Any], previous: dict[str, Any] | None) -> Table | None:
    """One row for each fact, the earlier release beside this one; None for the first release of a data set."""
    if previous is None:
        return None
    before, now = _facts(previous), _facts(manifest)
    return Table(
        head=("", previous["release"], manifest["release"]),
        rows=tuple((name, before.get(name, "–"), value) for name, value in now.items())
        + tuple(_changed_columns(previous, manifest)),
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


def _changed_columns(previous: dict[str, Any], manifest: dict[str, Any]) -> list[tuple[str, str, str]]:
    before, now = previous.get("domain", {}), manifest["domain"]
    added = [name for name in now if name not in before]
    removed = [name for name in before if name not in now]
    changed = [name for name in now if name in before and now[name] != before[name]]
    rows = [("columns added", "", ", ".join(added))] if added else []
    rows += [("columns removed", ", ".join(removed), "")] if removed else []
    rows += [("columns declared otherwise", "", ", ".join(changed))] if changed else []
    return rows


def changes_exhibit(schema: Schema, quality: PublicQuality, previous: Previous) -> Exhibit | None:
    """How far each column's published shares have moved since the release before, beside what noise alone would do.

    Only columns that were declared alike are compared; None where there are none or nothing is known of them.
    """
    before = previous.quality
    if before is None or previous.schema is None:
        return None
    same = [column.name for column in schema.columns if column in previous.schema.columns]
    known = [name for name in same if name in before.columns and name in quality.columns]
    moved = {name: _tvd(before.synthetic[name], quality.synthetic[name]) for name in known}
    ranked = sorted(known, key=lambda name: -moved[name])[: exhibits.MAX_BARS]
    if not ranked:
        return None
    alone = {
        name: MEAN_ABSOLUTE
        * math.hypot(before.columns[name].sigma, quality.columns[name].sigma)
        * len(quality.synthetic[name])
        / 2
        for name in ranked
    }
    return Exhibit(
        title="How far columns have moved",
        svg=charts.marked_bars(ranked, [moved[name] for name in ranked], [alone[name] for name in ranked]),
        alt=f"Bars of the distance of each column's shares from those of release {previous.manifest['release']}, "
        f"each with the distance that noise alone would give; {ranked[0]} has moved furthest.",
        note="Share of the records that lie in other values than before. A bar that ends before its mark says nothing: "
        "noise alone moves as much.",
        table=Table(
            head=("column", "moved", "noise alone"),
            rows=tuple((name, percent(moved[name]), percent(alone[name])) for name in ranked),
        ),
        key=(("synthetic", "moved"), ("warning", "noise alone")),
    )


def _tvd(left: Sequence[float], right: Sequence[float]) -> float:
    return float(np.abs(np.asarray(left) - np.asarray(right)).sum()) / 2
