"""The command that attacks the installed code and prints what it could prove."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from synth_core.errors import WallError
from synth_core.progress import report_progress


def audit(
    method: Annotated[list[str] | None, typer.Option(help="Audit only this method; repeatable [default: all].")] = None,
    runs: Annotated[int, typer.Option(help="Conversations for each certificate.", min=100)] = 2000,
    faults: Annotated[
        bool, typer.Option("--faults", help="Also plant known faults, each of which must be caught.")
    ] = False,
    households: Annotated[
        bool, typer.Option("--households", help="Also begin with linked tables, one with a household of eight more.")
    ] = False,
    full: Annotated[
        bool,
        typer.Option("--full", help="All of that, and begin with files that differ by one hostile line."),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write the certificates as JSON.")] = None,
) -> None:
    """Attack the installed code on two neighbouring tables with a large budget, and certify what it lost.

    The adversary knows both tables and sees every stored answer. Each step is granted mu = 3; a certified loss above
    that, noise of the wrong size, or an answer without a charge fails the audit. No real data is touched.

    Example: `synth audit --method privmrf --faults`
    """
    from synth_core.audit.methods import audits
    from synth_core.synthesizers.methods import METHODS, unknown_method

    for name in method or ():
        if name not in METHODS:
            raise unknown_method(name)
    with report_progress("Auditing") as progress:
        certificates = list(
            audits(
                methods=method or list(METHODS),
                runs=runs,
                faults=faults or full,
                files=full,
                households=full or households,
                progress=progress,
            )
        )
    table = Table(box=None, pad_edge=False)
    table.add_column("audited", no_wrap=True)
    for column in ("runs", "mu granted", "lost, at least", "noise", "verdict"):
        table.add_column(column, overflow="fold")
    wrong = []
    for certificate in certificates:
        planted = certificate.title.startswith("planted fault")
        if certificate.passed is planted:
            wrong.append(certificate.title)
        verdict = ("caught: " if planted else "FAILED: ") + "; ".join(certificate.failures)
        table.add_row(
            certificate.title,
            f"{certificate.runs:,}",
            f"{certificate.granted_mu:.2f}",
            f"{certificate.mu_lower:.2f}",
            f"{certificate.noise_variance:.3f}",
            verdict if certificate.failures else "NOT CAUGHT" if planted else "passed",
        )
    Console().print(table)
    if out is not None:
        out.write_text(json.dumps([c.to_json() for c in certificates], indent=2) + "\n", encoding="utf-8")
    if wrong:
        raise WallError(f"the audit failed for: {', '.join(wrong)}")
