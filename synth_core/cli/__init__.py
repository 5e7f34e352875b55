"""The `synth` command: every thing a person does with a release, and one clear line when it cannot be done."""

from __future__ import annotations

from typing import Annotated

import typer

from synth_core import __version__
from synth_core.cli import airflow_dags, ask, audit, bench, combine, evaluate, ledger, operations, release

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
app.add_typer(ledger.app, name="ledger")
app.add_typer(bench.app, name="bench")
for command in (
    *(release.init, release.plan, release.run, release.verify, release.methods),
    *(evaluate.evaluate, ask.ask, combine.combine, audit.audit),
    *(operations.approve, operations.cancel, operations.releases, operations.metrics, operations.doctor),
    airflow_dags.airflow_dags,
):
    app.command()(command)


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
