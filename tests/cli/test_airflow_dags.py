"""The DAG files: what the command writes is what the folder dags/ has, and a folder that cannot be made is refused."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from synth_core.cli import app

DAGS = Path(__file__).resolve().parents[2] / "dags"


def write_into(folder: Path):
    return CliRunner().invoke(app, ["airflow-dags", str(folder)])


def files_of(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.glob("*.py")}


def test_the_command_writes_the_files_of_the_dags_folder(tmp_path):
    ended = write_into(tmp_path / "new" / "dags")
    assert ended.exit_code == 0, ended.output
    assert files_of(tmp_path / "new" / "dags") == files_of(DAGS)
    assert len(files_of(DAGS)) == 3


def test_a_file_in_the_way_is_refused(synth, tmp_path):
    (tmp_path / "dags").write_text("")
    code, _, err = synth("airflow-dags", tmp_path / "dags")
    assert code == 2
    assert err == f"synth: {tmp_path / 'dags'}: something of that name is there already; name another\n"
