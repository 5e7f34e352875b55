"""Commands that keep releases running: approve or cancel one, check schedule and installation, read metrics, and
write Airflow's DAG files.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from synth_core.errors import SpecError

Workspace = Annotated[Path, typer.Option("--workspace", "-w", help="Folder of the ledger and the zones.")]
TEMPLATE = '"""{words}"""\n\nfrom synth_airflow.{module} import {name}\n\n{line}\n'
DAG_FILES = {
    "census_release.py": TEMPLATE.format(
        words="The release form: a DAG that a person triggers, with a field for everything a release spec can say.",
        module="form",
        name="release_form",
        line="census_release = release_form()",
    ),
    "scheduled_releases.py": TEMPLATE.format(
        words="One DAG for each spec in the folder SYNTH_RELEASES: it releases when the spec's schedule says.",
        module="series",
        name="scheduled_dags",
        line="globals().update(scheduled_dags())",
    ),
    "broken_release_specs.py": TEMPLATE.format(
        words="Shows specs of the folder SYNTH_RELEASES that cannot run as an import error; it has no DAG of its own.",
        module="series",
        name="refuse_broken_specs",
        line="refuse_broken_specs()",
    ),
}
"""The files of the folder dags/, by name; all they do is in the package `synth_airflow`."""


def approve(
    release: Annotated[str, typer.Argument(metavar="RELEASE", help="Name of a release that waits for approval.")],
    workspace: Workspace,
    reject: Annotated[bool, typer.Option("--reject", help="Decide against publication instead.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Decide without being asked again.")] = False,
) -> None:
    """Show the privacy certificate of a release that asks for approval, and record your decision in the ledger.

    A release that was rejected keeps its charge; what it had not used is free again.

    Example: `synth approve 2026-q1 --workspace workspace`
    """
    from synth_core.steps import ask_approval, decide

    address = _begun(release, workspace)
    asked = ask_approval(address)
    if asked is None:
        raise SpecError(
            f"release {release!r} needs no approval: it is published, or its spec does not say `approval: true`"
        )
    digest, certificate = asked
    typer.echo(certificate)
    verb = "reject" if reject else "approve"
    if yes or typer.confirm(f"{verb} {release}, draft {digest}?"):
        decide(address, approved=not reject, seen=digest)
        typer.echo(f"{release}: {verb}{'ed' if reject else 'd'}")


def cancel(
    release: Annotated[str, typer.Argument(metavar="RELEASE", help="Name of a release that was begun.")],
    reason: Annotated[str, typer.Option(help="Why; it becomes part of the ledger.")],
    workspace: Workspace,
) -> None:
    """End a release that will not be published: what it set aside and did not use is free again.

    What was measured stays charged, and stored answers stay: running the release again goes on from them.

    Example: `synth cancel 2026-q1 --reason "source was withdrawn" --workspace workspace`
    """
    from synth_core.steps import cancel_by_name

    cancel_by_name(workspace, release, reason=reason)
    typer.echo(f"{release}: cancelled; what it had not used is free again")


def releases(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of release specs (SYNTH_RELEASES).")],
) -> None:
    """Check all specs of a releases folder, and print when each is due; exit code 2 if one is broken.

    Example: `synth releases workspace/releases`
    """
    from datetime import UTC, datetime

    from synth_core.release.spec import read_releases

    found = read_releases(folder)
    for series in found.series:
        schedule = series.spec.schedule
        line = schedule.in_words if schedule else "when triggered"
        if schedule and schedule.calendar:
            line += f"; next {schedule.after(datetime.now(UTC)):%Y-%m-%d}"
        typer.echo(f"{series.spec.release}: {line}")
    if found.broken:
        raise SpecError("; ".join(found.broken))


def metrics(
    workspace: Workspace,
    serve: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Answer on this address until stopped; anyone who can reach it can read.",
        ),
    ] = None,
) -> None:
    """Print ledger and runs in Prometheus' text format, or serve them inside a closed network.

    Example: `synth metrics --workspace workspace > /var/lib/node_exporter/synth.prom`
    """
    from synth_core.events.office import Office
    from synth_core.web.metrics import exposition, metrics_server

    if not workspace.is_dir():
        raise SpecError(f"{workspace} is not a workspace; name the folder of the ledger and the zones")
    if serve is None:
        typer.echo(exposition(Office(workspace)), nl=False)
    else:
        with metrics_server(Office(workspace), serve) as server:
            server.serve_forever()


def doctor(
    workspace: Annotated[
        Path | None,
        typer.Option("--workspace", "-w", envvar="SYNTH_WORKSPACE", help="Folder of the ledger and the zones."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(envvar="SYNTH_DASK_ADDRESS", help="Address of the Dask scheduler, tcp://host:8786."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="List what is well, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Check versions, kernels, settings, permissions, ledger, clock, keys, cluster and GPU, and say what to do.

    Nothing is changed and nothing is spent. On a healthy machine it says so in one line. The exit code
    is 1 if there is a problem.

    Example: `synth doctor --workspace workspace`
    """
    from rich.console import Console
    from rich.table import Table

    from synth_core.cli.doctor import Health, Patient, examine, in_short

    patient = Patient(workspace=workspace.resolve() if workspace else None, cluster=cluster)
    findings = list(examine(patient))
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        table = Table("", "", "seen", "what to do", box=None, pad_edge=False)
        colours = {Health.GOOD: "green", Health.UNSEEN: "dim", Health.WORRYING: "yellow", Health.WRONG: "bold red"}
        shown = [one for one in findings if everything or one.state in (Health.WORRYING, Health.WRONG)]
        for finding in shown:
            word = f"[{colours[finding.state]}]{finding.state.value}[/]"
            table.add_row(word, finding.subject, finding.seen, finding.remedy)
        if shown:
            Console().print(table)
        if not everything:
            typer.echo(in_short(findings))
    if any(finding.state is Health.WRONG for finding in findings):
        raise typer.Exit(1)


def airflow_dags(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Airflow's DAG folder, such as $AIRFLOW_HOME/dags.")],
) -> None:
    """Write the DAG files of the release form and of scheduled releases into a folder of Airflow.

    Files of that name are replaced. Airflow needs `synth-core` with the extra `airflow` installed; the plugin with the
    pages of the privacy budget is found by itself.

    Example: `synth airflow-dags $AIRFLOW_HOME/dags`
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in DAG_FILES.items():
        (directory / name).write_text(text, encoding="utf-8")
        typer.echo(directory / name)


def _begun(release: str, workspace: Path) -> str:
    """Address of a release that was begun."""
    from synth_core.release.paths import ReleasePaths

    paths = ReleasePaths(workspace.resolve(), release)
    if not paths.spec.exists():
        raise SpecError(f"release {release!r} was never begun in {workspace}; see `synth ledger show`")
    return str(paths.spec)
