"""Commands about releases: init, plan, run, verify, methods."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from synth_core.errors import SpecError, printable
from synth_core.progress import report_progress
from synth_core.steps import STEPS

SpecFile = Annotated[Path, typer.Argument(metavar="SPEC", help="The release spec, a YAML file.")]
Workspace = Annotated[
    Path | None,
    typer.Option(
        "--workspace", "-w", help="Folder of the two zones and the ledger [default: `workspace` beside SPEC]."
    ),
]


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    rows: Annotated[int, typer.Option(help="People in the fictional population.", min=100)] = 50_000,
    households: Annotated[
        int | None,
        typer.Option(help="Write two linked tables instead, of so many households and of their people.", min=100),
    ] = None,
) -> None:
    """Write an example: spec, schema, a fictional population, and its ledger account.

    Example: `synth init my-release && synth run my-release/release.yaml`
    """
    from synth_core.example import households as linked
    from synth_core.example.population import declare_example_account, example_spec, write_example

    if directory.exists() and any(directory.iterdir()):
        raise SpecError(f"{directory} is not empty; name a new folder")
    directory.mkdir(parents=True, exist_ok=True)
    with report_progress("Writing a fictional population"):
        if households is None:
            write_example(directory, rows=rows)
        else:
            linked.write_linked_example(directory, households=households)
    spec = example_spec() if households is None else linked.linked_example_spec()
    spec.save(directory / "release.yaml")
    declare = declare_example_account if households is None else linked.declare_linked_account
    declare(directory / "workspace")
    typer.echo(f"{directory}/release.yaml   the release: what, by which method, at which price")
    typer.echo(f"{directory}/{spec.schema_:14} the public declaration of the columns")
    typer.echo(f"{directory}/data/          the confidential rows (fictional)")
    typer.echo(f"{directory}/workspace/     the ledger, with an account that has room for several releases")
    typer.echo(f"Next: synth plan {directory}/release.yaml")


def plan(
    spec: SpecFile,
    workspace: Workspace = None,
    records: Annotated[
        int | None,
        typer.Option(
            help="A public number of records to judge noise, time, memory and disk for [default: the account's bound].",
            min=1,
            max=10**12,
        ),
    ] = None,
) -> None:
    """Preview what a release costs and takes, and whether it can run, without touching data.

    Example: `synth plan my-release/release.yaml`
    """
    from synth_core.steps import cost

    for title, lines in cost(spec, workspace=_workspace(spec, workspace), records=records):
        table = Table(title=title, show_header=False, title_justify="left", box=None, pad_edge=False)
        for name, value in lines:
            table.add_row(name, value)
        Console().print(table)
        typer.echo()


def run(
    spec: SpecFile,
    workspace: Workspace = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="`local` (threads), `processes`, `cuda` (GPUs here), or a Dask scheduler's address (tcp://host:port)."
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="Recompute finished steps too, from the stored answers, unless the release is published.",
        ),
    ] = False,
) -> None:
    """Run all steps of a release without Airflow; a release that was interrupted goes on where it stopped.

    Answers that were stored are reused, so running again never spends twice. A published release is never changed: it
    is only checked. True errors are not printed; they are in the internal report, whose path is.

    Example: `synth run my-release/release.yaml --cluster local`
    """
    from synth_core.steps import finished_steps, prepare, published_manifest, run_step, summary

    address = prepare(spec, workspace=_workspace(spec, workspace))
    done = () if again and not published_manifest(address) else finished_steps(address)
    for step in STEPS:
        if step in done:
            typer.echo(f"{step} — finished before", err=True)
            continue
        with report_progress(step) as progress:
            run_step(step, address, cluster=cluster, progress=progress)
    _tell(summary(address))


def verify(
    releases: Annotated[
        list[Path],
        typer.Argument(metavar="RELEASE_DIR...", help="Published releases: WORKSPACE/public/NAME, or copies."),
    ],
    key: Annotated[
        Path | None,
        typer.Option(help="The publisher's public key (PEM), obtained elsewhere than the release."),
    ] = None,
) -> None:
    """Check published releases: signature, the checksum of each file, the certificate's sums, and the ledger.

    It says of each whether it was checked, with what result, or why it was not. The ledger is that of the workspace in
    which the release lies, or the one that SYNTH_LEDGER_URL names; a download has none. Exit code 0: all that was
    checked agrees; 1: something does not.

    Example: `synth verify my-release/workspace/public/example`
    """
    from synth_core.release.verify import check_release

    sound = True
    for release in releases:
        found = check_release(release, key=key)
        sound &= found.sound
        if len(releases) > 1:
            typer.echo(release)
        for check in found.checks:
            for words in check.problems or (check.says,):
                typer.echo(printable(f"{check.name + ':':<13}{check.outcome}: {words}"))  # files name themselves
    if not sound:
        raise typer.Exit(1)


def methods(
    method: Annotated[
        str | None, typer.Argument(metavar="METHOD", help="Show the options of this one instead.")
    ] = None,
) -> None:
    """List the methods and their presets, those meant for releases first, or the options of one method.

    Example: `synth methods privmrf`
    """
    from synth_core.synthesizers.methods import FOR_RELEASES, METHODS, method_options, unknown_method

    if method is not None and method not in METHODS:
        raise unknown_method(method)
    table = Table(box=None, pad_edge=False)
    for column in ("method", "preset", "what it is") if method is None else ("option", "preset", "meaning"):
        table.add_column(column, overflow="fold")
    comparators = [name for name in METHODS if name not in FOR_RELEASES]
    groups = {"FOR RELEASES": FOR_RELEASES, "COMPARATORS": comparators} if method is None else {}
    for heading, names in groups.items():
        table.add_row(f"[dim]{heading}[/dim]")
        for listed in map(METHODS.__getitem__, names):
            table.add_row(f"[bold]{listed.name}[/bold]", "", f"{listed.summary} ({listed.source})")
            for preset, words in listed.presets.items():
                table.add_row("", preset, words)
    for name, values, meaning in method_options(method) if method else ():
        defaults = ", ".join(f"{preset}: {value}" for preset, value in values.items())
        table.add_row(f"[bold]{name}[/bold]", escape(defaults), escape(meaning))
    Console().print(table)


def _workspace(spec: Path, workspace: Path | None) -> Path:
    return workspace if workspace is not None else spec.parent / "workspace"


def _tell(summary: dict[str, Any]) -> None:
    quality = summary.pop("quality")
    width = max(map(len, [*summary, *quality]))
    for name, value in summary.items():
        typer.echo(f"{name:{width}}  {value}")
    typer.echo("How good it is, by public figures:")
    for name, value in quality.items():
        typer.echo(f"{name:{width}}  {value}")
