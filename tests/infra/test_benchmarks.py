"""`make bench` runs every program without an argument, and goes on after one that fails."""

import ast
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = sorted((ROOT / "tests" / "benchmarks").glob("[a-z]*.py"))


def wanted(source):
    """Arguments without which a program refuses to run: it stopped `make bench` at the first program."""
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            given = {k.arg: getattr(k.value, "value", None) for k in call.keywords}
            name = call.args[0].value
            if given.get("required") or (not name.startswith("-") and given.get("nargs") not in ("*", "?")):
                yield name


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_benchmark_needs_no_argument(program):
    assert list(wanted(program.read_text(encoding="utf-8"))) == []
    assert list(wanted('parser.add_argument("part", choices=("one",))')) == ["part"]


def test_one_that_fails_is_named_at_the_end_and_does_not_stop_the_others(tmp_path):
    for name, code in (
        ("first", "import support.brute_force; raise SystemExit(3)"),
        ("second", "print('ran', __name__)"),
    ):
        (tmp_path / f"{name}.py").write_text(code)
    recipe = subprocess.run(["make", "-n", "-o", ".venv/.kernels", "bench"], cwd=ROOT, capture_output=True, text=True)
    script = recipe.stdout.replace("tests/benchmarks/[a-z]*.py", f"{tmp_path}/[a-z]*.py")
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert "ran __main__" in done.stdout
    assert done.returncode == 1
    assert done.stderr.strip().endswith(f"these benchmarks failed: {tmp_path}/first.py"), done.stderr
    assert "ModuleNotFoundError" not in done.stderr
