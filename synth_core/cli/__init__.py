"""The `synth` command: every thing a person does with a release, and one clear line when it cannot be done."""

from __future__ import annotations

from typing import Annotated

import typer

from synth_core import __version__
from synth_core.cli import airflow_dags as airflow_command
from synth_core.cli import audit as audit_command
from synth_core.cli import bench as bench_commands
from synth_core.cli import evaluate as evaluation_command
from synth_core.cli import ledger as ledger_commands
from synth_core.cli import operations as operation_commands
from synth_core.cli import release as release_commands

app = typer.Typer(
    name="synth",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help=(
        "Publish differentially private synthetic census extracts.\n\n"
        "Start with `synth init my-release`, look at the cost with `synth plan my-release/release.yaml`, "
        "run it with `synth run my-release/release.yaml`, and read the account with "
        "`synth ledger show --workspace my-release/workspace`."
    ),
)
app.add_typer(ledger_commands.app, name="ledger")
app.add_typer(bench_commands.app, name="bench")
release_commands.add_commands(app)
evaluation_command.add_commands(app)
audit_command.add_commands(app)
operation_commands.add_commands(app)
airflow_command.add_commands(app)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"synth-core {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
