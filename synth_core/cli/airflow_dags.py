"""The command that writes the DAG files: an installed package has the code, and Airflow wants files in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
