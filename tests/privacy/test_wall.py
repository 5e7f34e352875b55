"""Errors and log lines from inside the wall lose their words; sabotage of the wall turns the checks red."""

import ast
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
    shutil.copytree(REPOSITORY / "synth_core", tmp_path / "synth_core", ignore=shutil.ignore_patterns("__pycache__"))
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
        ("synthesizers/evil.py", "from synth_core.privacy.wall import open_private\n"),
        ("synthesizers/evil.py", "from synth_core.storage.counting import count_codes\n"),
        ("synthesizers/evil.py", "from synth_core.privacy.noise import discrete_gaussian\n"),
        ("models/evil.py", "from synth_core.privacy.curator import Curator\n"),
        ("privacy/evil.py", "from synth_core.models.maximum_entropy import estimate\n"),
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
def test_arithmetic_on_private_counts_turns_the_type_check_red(tmp_path):
    """`counts + 1` is refused before it runs; with the options of `make check`, whose cache makes it quick."""
    script = tmp_path / "sabotage.py"
    script.write_text(
        "from synth_core.privacy.wall import Private\ndef leak(counts: Private[int]) -> int:\n    return counts + 1\n"
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


SENDERS = {"map": 1, "map_reduce": 3, "map_by_size": 1, "call": 1, "total": 2, "spread": 1}
"""What sends functions to workers, `Cluster`'s own verbs and what hands on to them, and after how many arguments none
of them can be a function any more."""


def sent_functions(source: str) -> set[str]:
    """Names of the functions that a module of rows sends to workers; what it only hands on is somebody else's."""
    tree, found = ast.parse(source), set()
    for around in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        handed_on = {a.arg for a in around.args.args + around.args.kwonlyargs}
        for call in (node for node in ast.walk(around) if isinstance(node, ast.Call)):
            verb = getattr(call.func, "attr", getattr(call.func, "id", ""))
            if verb == "map" and isinstance(call.func, ast.Name):
                continue  # Python's own
            sent = [a.id for a in call.args[: SENDERS.get(verb, 0)] if isinstance(a, ast.Name)]
            found |= {name for name in sent if name not in handed_on}
    return found


def walled_functions(source: str) -> set[str]:
    """Names of the functions that do all they do with their rows behind a visible `with wall():`."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            blocks = [inner for inner in node.body if isinstance(inner, ast.With)]
            opened = [getattr(item.context_expr, "func", None) for block in blocks for item in block.items]
            if any(isinstance(one, ast.Name) and one.id == "wall" for one in opened):
                found.add(node.name)
    return found


def test_whatever_workers_run_on_rows_has_a_visible_wall():
    sent, walled, defined = set(), set(), set()
    for room in ("storage", "evaluation"):
        for path in (REPOSITORY / "synth_core" / room).glob("*.py"):
            source = path.read_text()
            sent |= {(room, name) for name in sent_functions(source)}
            walled |= {(room, name) for name in walled_functions(source)}
            defined |= {(room, node.name) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}
    known = {("storage", "_encode_piece"), ("storage", "count_partitions"), ("storage", "add_counts")}
    known |= {("evaluation", "_count_cells"), ("evaluation", "_match"), ("evaluation", "target_error")}
    assert known <= sent, "the search for functions that are sent has gone blind"
    assert (sent & defined) - walled == set()


def test_a_function_without_a_wall_is_seen():
    source = "def work(x):\n    return x\n\n\ndef run(cluster, xs):\n    return cluster.map(work, xs)\n"
    assert sent_functions(source) - walled_functions(source) == {"work"}
    walled = source.replace("    return x\n", "    with wall():\n        return x\n", 1)
    assert sent_functions(walled) - walled_functions(walled) == set()
