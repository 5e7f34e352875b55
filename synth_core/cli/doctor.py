"""`synth doctor`: what could keep this installation from releasing."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer


def add_commands(app: typer.Typer) -> None:
    """Mount the command."""
    app.command()(doctor)


def doctor(
    workspace: Annotated[
        Path | None,
        typer.Option(
            "--workspace", "-w", envvar="SYNTH_WORKSPACE", help="Folder of the ledger and the zones."
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(envvar="SYNTH_DASK_ADDRESS", help="Address of the Dask scheduler, tcp://host:8786."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Check versions, kernels, settings, permissions, ledger, clock, keys, cluster and GPU, and say what to do.

    Nothing is changed and nothing is spent. The exit code is 1 if there is a problem.

    Example: `synth doctor --workspace workspace`
    """
    from rich.console import Console
    from rich.table import Table

    from synth_core.cli.checkup import Patient, State, examine

    patient = Patient(workspace=workspace.resolve() if workspace else None, cluster=cluster)
    findings = list(examine(patient))
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        table = Table("", "", "seen", "what to do", box=None, pad_edge=False)
        colours = {State.GOOD: "green", State.WORRYING: "yellow", State.WRONG: "bold red"}
        for finding in findings:
            word = f"[{colours[finding.state]}]{finding.state.value}[/]"
            table.add_row(word, finding.subject, finding.seen, finding.remedy)
        Console().print(table)
    if any(finding.state is State.WRONG for finding in findings):
        raise typer.Exit(1)
