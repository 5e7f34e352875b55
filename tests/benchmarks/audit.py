"""Audit every method and preset at 2,000 conversations for each certificate, and write audit.md.

Run as `python tests/benchmarks/audit.py [METHOD …]`. Each certificate is kept in audit.jsonl and is not made again, so
that a long series can be done in parts. With `privmrf` come the hostile files and the planted faults; `report` as the
only word writes audit.md alone.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from synth_core.audit.methods import audits
from synth_core.synthesizers.methods import METHODS

HERE = Path(__file__).parent
KEPT = HERE / "audit.jsonl"
RUNS = 2000
RUNS_OF = {"dualquery": 200}
"""Conversations of methods of which one takes half a second and more."""
FIRST = "privmrf"
"""The method that is also audited from neighbouring files; planted faults are caught beside it."""

HEAD = """# Audit: what the adversary certifies

What `synth audit` says of this code at {runs:,} conversations a line ({fewer}).
Each step, or all steps of a method together, is granted mu = 3 on two neighbouring tables; the adversary, who knows
both, sees every stored answer. *Certified* is a lower bound of what was lost (wrong with probability 1e-4 at most);
above 3 the promise would be broken. *Noise* is the variance of the noise in units of what the ledger charged for. A
planted fault must fail.

| audit | certified mu | noise | charged | verdict |
|---|---:|---:|---:|---|
"""


def kept() -> dict[str, dict[str, Any]]:
    """Returns the certificates so far, by title."""
    if not KEPT.exists():
        return {}
    lines = KEPT.read_text(encoding="utf-8").splitlines()
    return {one["title"]: one for one in map(json.loads, lines)}


def is_audited(method: str, known: dict[str, dict[str, Any]]) -> bool:
    """Whether all presets of a method have their certificates, and the first method its faults as well."""
    presets = all(f"{method}/{preset}: all steps" in known for preset in METHODS[method].presets)
    return presets and (method != FIRST or any(title.startswith("planted") for title in known))


def audit(method: str) -> None:
    """Audit one method and keep each certificate as soon as it is there."""
    whole = method == FIRST
    known = set(kept())
    for one in audits(
        methods=[method],
        runs=RUNS_OF.get(method, RUNS),
        faults=whole,
        files=whole,
        households=whole,
        progress=print,
        known=known,
    ):
        with KEPT.open("a", encoding="utf-8") as file:
            file.write(json.dumps(one.to_json()) + "\n")


def report() -> None:
    """Write audit.md from what is kept; methods without certificates are named as missing."""
    known = kept()
    rows = [
        f"| {one['title']} | {one['mu_lower']:.2f} | {one['noise_variance']:.3f} | {one['charged']:,} "
        f"| {'passed' if one['passed'] else 'FAILED: ' + '; '.join(one['failures'])} |"
        for one in known.values()
    ]
    missing = [method for method in METHODS if not is_audited(method, known)]
    end = f"\nNot audited yet: {', '.join(missing)}.\n" if missing else ""
    fewer = ", ".join(f"{runs} of `{method}`" for method, runs in RUNS_OF.items())
    text = HEAD.format(runs=RUNS, fewer=fewer) + "\n".join(rows) + "\n" + end
    (HERE / "audit.md").write_text(text, encoding="utf-8")


def main() -> None:
    """Audit what was asked for, or what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*", help="names of methods, or `report`; default: all methods")
    given = parser.parse_args().methods
    if unknown := [name for name in given if name not in (*METHODS, "report")]:
        parser.error(f"{unknown[0]!r} is no method; see `synth methods`")
    for method in [] if given == ["report"] else given or METHODS:
        audit(method)
        report()
    report()


if __name__ == "__main__":
    main()
