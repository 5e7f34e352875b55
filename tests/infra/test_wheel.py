"""What is installed with the package: its files, its entry points, and the packages that each part of it asks for."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from synth_core import __version__
from synth_core.__main__ import main
from synth_core.cluster import Cluster, connect
from synth_core.errors import MissingExtra, needing
from synth_core.evaluation.classification import propensity_mse
from synth_core.report.page import _environment, page
from synth_core.storage.locations import _by_fsspec

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = {"synth_core": ROOT / "synth_core", "synth_airflow": ROOT / "plugins" / "synth_airflow"}
DISTRIBUTIONS = {"airflow": "apache-airflow", "sklearn": "scikit-learn", "yaml": "pyyaml"}
"""Packages that are imported by another name than they are installed by."""

ROOMS = {"cli": "cli", "bench": "cli", "__main__": "cli", "web": "web", "synth_airflow": "airflow"}
"""Rooms that the core never imports, and the extra that each belongs to."""

DATABASE = {
    f"synth_core/{name}.py"
    for name in ("ledger/chain", "ledger/database", "ledger/restore", "ledger/sql", "ledger/tables", "release/verify")
}
"""Modules that `synthesize` imports only where it is given a ledger, or not at all."""

FULL = ("cluster", "evaluation", "ledger", "report", "cli", "web", "airflow")
"""Extras whose packages our own code imports; those of the others are plugins of a database, of Airflow or of Dask."""

WITHOUT_EXTRAS = """
import sys
from importlib.abc import MetaPathFinder

class OnlyCore(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {optional}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, OnlyCore())
import numpy as np
import pandas as pd
from synth_core import Schema, synthesize

frame = pd.DataFrame(np.random.default_rng(1).integers(2, size=(500, 3)), columns=list("abc"))
release = synthesize(frame, Schema.from_sizes(dict(a=2, b=2, c=2)), epsilon=1.0, delta=1e-6)
print(len(release.table) > 0, sorted({optional} & set(sys.modules)))
"""


class Import(NamedTuple):
    """One imported package: where, under which guard, and when: with the module, by a "call", or for "types" only."""

    file: Path
    package: str
    guard: str
    when: str

    @property
    def distribution(self) -> str:
        return DISTRIBUTIONS.get(self.package, self.package)

    @property
    def room(self) -> str:
        return self.file.relative_to(ROOT).with_suffix("").parts[1]


def declared(*extras: str) -> set[str]:
    """Names of the packages that the extras ask for; those of the core without any."""
    lines = (
        [line for extra in extras for line in PYPROJECT["project"]["optional-dependencies"][extra]]
        if extras
        else PYPROJECT["project"]["dependencies"]
    )
    found = set()
    for line in lines:
        if own := re.fullmatch(r"synth-core\[(.+)\]", line):
            found |= declared(*own[1].split(","))
        else:
            found.add(re.match(r"[\w.-]+", line)[0])
    return found


def imports(file: Path) -> Iterator[Import]:
    """Imports of packages that are neither Python's nor ours."""

    def below(node: ast.AST, guard: str, when: str) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            names = []
            if isinstance(child, ast.Import):
                names = [alias.name for alias in child.names]
            elif isinstance(child, ast.ImportFrom):
                names = [child.module]
            for name in names:
                package = name.partition(".")[0]
                if package not in sys.stdlib_module_names and package not in PACKAGES:
                    yield Import(file, package, guard, when)
            inside = guard
            if isinstance(child, ast.With) and (of := re.match(r"needing\('(\w+)'\)", ast.unparse(child.items[0]))):
                inside = of[1]
            later = when
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                later = "call"
            elif isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                later = "types"
            yield from below(child, inside, later)

    yield from below(ast.parse(file.read_text(encoding="utf-8")), "", "module")


IMPORTS = [one for folder in PACKAGES.values() for file in sorted(folder.rglob("*.py")) for one in imports(file)]


def problem(one: Import) -> str:
    """Why a package may not be imported there; empty if it may."""
    if one.distribution in declared():
        return ""
    in_core = one.room not in ROOMS and str(one.file.relative_to(ROOT)) not in DATABASE
    extra = one.guard or ROOMS.get(one.room, "" if in_core else "ledger")
    if extra and one.distribution in declared(extra):
        return "is imported with a module of the core" if one.when == "module" and in_core else ""
    if one.when == "types" and one.distribution in declared(*FULL):
        return ""
    if one.when == "call" and one.room == "cluster" and one.distribution in declared("cluster"):
        return ""  # `connect` has asked for the extra before
    return f"is not asked for by {extra or 'the core'}"


def test_every_package_that_is_imported_is_asked_for_where_it_is_imported():
    wrong = {f"{one.file.relative_to(ROOT)}: {one.package} {why}" for one in IMPORTS if (why := problem(one))}
    assert not wrong


@pytest.mark.parametrize(
    ("file", "source", "says"),
    [
        ("synth_core/api.py", "import dask", "is not asked for by the core"),
        ("synth_core/api.py", "def f():\n    import dask", "is not asked for by the core"),
        ("synth_core/api.py", "with needing('cluster'):\n    import dask", "is imported with a module of the core"),
        ("synth_core/api.py", "def f():\n  with needing('report'):\n    import dask", "is not asked for by report"),
        ("synth_core/web/pages.py", "import typer", "is not asked for by web"),
    ],
)  # fmt: skip
def test_a_package_that_is_not_asked_for_is_found(tmp_path, monkeypatch, file, source, says):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(source)
    assert [problem(one) for one in imports(path)] == [says]


def test_every_package_that_is_asked_for_is_imported():
    used = {one.distribution for one in IMPORTS}
    assert declared() <= used
    assert declared(*FULL) <= used


def test_every_file_is_part_of_the_wheel():
    found = PYPROJECT["tool"]["setuptools"]["packages"]["find"]
    data = PYPROJECT["tool"]["setuptools"]["package-data"]
    for name, folder in PACKAGES.items():
        assert folder.parent in [(ROOT / where).resolve() for where in found["where"]]
        assert any(fnmatch(name, pattern) for pattern in found["include"])
        for file in folder.rglob("*"):
            if file.is_dir() or "__pycache__" in file.parts:
                continue
            if file.suffix == ".py":
                assert (file.parent / "__init__.py").exists(), f"{file.parent} is no package"
            else:
                patterns = [pattern.removeprefix("**/") for pattern in data.get(name, ())]
                assert any(fnmatch(file.name, pattern) for pattern in patterns), f"{file} is left out"


def test_entry_points_can_be_loaded():
    project = PYPROJECT["project"]
    for target in [*project["scripts"].values(), *project["entry-points"]["airflow.plugins"].values()]:
        module, _, name = target.partition(":")
        file = ROOT / f"{module.replace('.', '/')}.py"
        file = file if file.exists() else ROOT / "plugins" / f"{module.replace('.', '/')}.py"
        names = {node.name for node in ast.parse(file.read_text(encoding="utf-8")).body if hasattr(node, "name")}
        assert name in names, target


def test_the_version_is_written_in_one_place():
    assert PYPROJECT["project"]["dynamic"] == ["version"]
    assert PYPROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "synth_core.__version__"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)


@pytest.mark.slow
def test_synthesize_needs_the_core_alone():
    optional = {one.package for one in IMPORTS if one.distribution not in declared()}
    assert {"dask", "jinja2", "sklearn", "typer", "airflow"} <= optional
    code = WITHOUT_EXTRAS.format(optional=optional)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert ended.stdout.split("\n")[0] == "True []", ended.stderr


@pytest.fixture
def without(monkeypatch):
    """Makes a package look as if it were not installed."""

    def hide(package):
        for name in [name for name in sys.modules if name.startswith((f"{package}.", "synth_core.cli"))]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, package, None)

    return hide


def _connected():
    with connect("local"):
        pass


@pytest.mark.parametrize(
    ("package", "extra", "use"),
    [
        ("dask", "cluster", lambda: Cluster().map(abs, [1])),
        ("distributed", "cluster", _connected),
        ("fsspec", "cluster", lambda: _by_fsspec("memory://x.csv")),
        ("sklearn", "evaluation", lambda: propensity_mse(np.zeros((9, 1), int), np.zeros((9, 1), int))),
        ("jinja2", "report", lambda: page("public.html.j2")),
    ],
)
def test_what_an_extra_brings_is_asked_for_in_one_line(without, package, extra, use):
    without(package)
    _environment.cache_clear()
    with pytest.raises(MissingExtra, match=rf"^this needs {package}; install synth-core\[{extra}\]$"):
        use()


def test_the_command_says_what_it_needs(without, capsys):
    without("typer")
    with pytest.raises(SystemExit, match="2"):
        main()
    assert capsys.readouterr().err == "synth: this needs typer; install synth-core[cli]\n"


def test_a_missing_module_of_our_own_is_no_missing_extra():
    with pytest.raises(ModuleNotFoundError, match=r"synth_core\.nothing"), needing("cli"):
        importlib.import_module("synth_core.nothing")
