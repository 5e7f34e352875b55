"""Errors and log lines from inside the wall lose their words; sabotage of the wall turns the checks red."""

import logging
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from synth_core.errors import BudgetRefused, WallError
from synth_core.privacy.wall import WITHHELD, wall

REPOSITORY = Path(__file__).resolve().parents[2]


def test_errors_are_replaced_without_their_cause():
    with pytest.raises(WallError, match=r"confidential zone \(KeyError\)") as refusal, wall():
        raise KeyError("Jane Doe")
    assert "Jane" not in str(refusal.value)
    assert refusal.value.__cause__ is None
    assert refusal.value.__suppress_context__


def test_refusals_pass():
    with pytest.raises(BudgetRefused, match="no room"), wall():
        raise BudgetRefused("no room")


def test_log_records_of_libraries_are_withheld_inside_only(caplog):
    caplog.set_level(logging.DEBUG)
    library, own = logging.getLogger("pyarrow"), logging.getLogger("synth_core.steps")
    library.warning("before %s", "public")
    with wall():
        try:
            raise ValueError("Jane Doe")
        except ValueError:
            library.exception("row %s", "Jane Doe")
        own.info("worded for the public")
    library.warning("after %s", "public")
    assert caplog.messages == ["before public", WITHHELD, "worded for the public", "after public"]
    assert "Jane" not in caplog.text


def test_a_record_without_a_name_is_withheld_too():
    with wall():
        record = logging.getLogRecordFactory()(None, logging.INFO, "", 0, "Jane Doe", (), None)
    assert record.getMessage() == WITHHELD


def checked_copy(tmp_path, name, text):
    """The package with one more file, as the layer check sees it."""
    shutil.copytree(
        REPOSITORY / "synth_core", tmp_path / "synth_core", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    (tmp_path / "synth_core" / name).write_text(text)
    return subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("synthesizers/evil.py", "from synth_core.privacy.private import open_private\n"),
        ("synthesizers/evil.py", "from synth_core.storage.counting import count_codes\n"),
        ("synthesizers/evil.py", "from synth_core.privacy.noise import discrete_gaussian\n"),
        ("models/evil.py", "from synth_core.privacy.curator import LedgerCurator\n"),
        ("privacy/evil.py", "from synth_core.models.estimators import estimate\n"),
        ("privacy/evil.py", "import airflow\n"),
        ("models/evil.py", "import dask\n"),
    ],
)
def test_sabotage_turns_the_layer_check_red(tmp_path, name, text):
    done = checked_copy(tmp_path, name, text)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "evil" in done.stdout


def test_the_layer_check_is_green_without_sabotage(tmp_path):
    done = checked_copy(tmp_path, "synthesizers/harmless.py", '"""Nothing."""\n')
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.slow
def test_arithmetic_on_private_counts_turns_the_type_check_red(tmp_path):
    """`counts + 1` is refused before it runs; with the options of `make check`, whose cache makes it quick."""
    script = tmp_path / "sabotage.py"
    script.write_text(
        "from synth_core.privacy.private import Private\n"
        "def leak(counts: Private[int]) -> int:\n"
        "    return counts + 1\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", script],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Unsupported operand types for +" in done.stdout
