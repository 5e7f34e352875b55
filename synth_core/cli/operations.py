"""Commands for those who keep releases running: cancel one, read the metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from synth_core.errors import SpecError


def add_commands(app: typer.Typer) -> None:
    """Mount the commands."""
    for command in (cancel, metrics):
        app.command()(command)


def cancel(
    release: Annotated[str, typer.Argument(metavar="RELEASE", help="Name of a release that was begun.")],
    reason: Annotated[str, typer.Option(help="Why; it becomes part of the ledger.")],
    workspace: Annotated[Path, typer.Option("--workspace", "-w", help="Folder of the ledger and the zones.")],
) -> None:
    """End a release that will not be published: what it set aside and did not use is free again.

    What was measured stays charged, and stored answers stay: running the release again goes on from them.

    Example: `synth cancel 2026-q1 --reason "source was withdrawn" --workspace workspace`
    """
    from synth_core.release.paths import ReleasePaths
    from synth_core.steps import cancel as cancel_release

    paths = ReleasePaths(workspace.resolve(), release)
    if not paths.spec.exists():
        raise SpecError(f"release {release!r} was never begun in {workspace}; see `synth ledger show`")
    cancel_release(str(paths.spec), reason=reason)
    typer.echo(f"{release}: cancelled; what it had not used is free again")


def metrics(
    workspace: Annotated[Path, typer.Option("--workspace", "-w", help="Folder of the ledger and the zones.")],
) -> None:
    """Print ledger and runs in Prometheus' text format.

    Example: `synth metrics --workspace workspace > /var/lib/node_exporter/synth.prom`
    """
    from synth_core.operations.metrics import exposition
    from synth_core.operations.office import Office

    if not workspace.is_dir():
        raise SpecError(f"{workspace} is not a workspace; name the folder of the ledger and the zones")
    typer.echo(exposition(Office(workspace)), nl=False)
