"""Every public name is explained: what it takes, what it returns, and that it exists."""

import ast
import importlib
import inspect
import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import synth_core

PACKAGES = ("synth_core", "synth_core.evaluation", "synth_core.inference", "synth_core.models", "synth_core.release")
CODE = Path(synth_core.__file__).parent


def public():
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            yield f"{package}.{name}", getattr(module, name)


def called():
    """Functions, and the methods of classes, that a user may call."""
    for name, thing in public():
        if inspect.isclass(thing):
            for part in dir(thing):
                method = inspect.getattr_static(thing, part)
                function = method.__func__ if isinstance(method, classmethod | staticmethod) else method
                ours = str(getattr(function, "__module__", "")).startswith("synth_core")
                if inspect.isfunction(function) and ours and not part.startswith("_"):
                    yield f"{name}.{part}", function
        elif callable(thing):
            yield name, thing


CALLED = dict(called())


@pytest.mark.parametrize("name", sorted(dict(public())))
def test_it_has_a_docstring(name):
    package, _, own = name.rpartition(".")
    thing = getattr(importlib.import_module(package), own)
    assert isinstance(thing, str) or inspect.getdoc(thing), name


@pytest.mark.parametrize("name", sorted(CALLED))
def test_its_docstring_says_what_it_takes_and_returns(name):
    function, text = CALLED[name], inspect.getdoc(CALLED[name])
    signature = inspect.signature(function)
    taken = [p for p in signature.parameters if p not in ("self", "cls")]
    if taken:
        assert "Args:\n" in text, f"{name} takes {', '.join(taken)}"
        for parameter in taken:
            assert f"    {parameter}: " in text, f"{name} does not explain {parameter}"
    if signature.return_annotation not in (None, "None") and taken:
        assert "Returns:\n" in text or "Yields:\n" in text, f"{name} does not say what it returns"


def test_no_two_classes_have_the_same_name():
    trees = {path: ast.parse(path.read_text("utf-8")).body for path in CODE.rglob("*.py")}
    places = Counter(one.name for body in trees.values() for one in body if isinstance(one, ast.ClassDef))
    assert [name for name, count in places.items() if count > 1 and not name.startswith("_")] == []
    assert places["Schema"] == 1


def test_an_unknown_name_is_refused():
    for package in PACKAGES:
        with pytest.raises((AttributeError, ImportError)):
            _ = importlib.import_module(package).nothing_of_that_name


KNOWN = {"frozenset": frozenset, "range": range, "np": np}


def is_number(value):
    """Whether it is a number, or holds nothing but numbers."""
    try:
        found = eval(compile(ast.Expression(value), "", "eval"), {"__builtins__": {}, **KNOWN})
    except (AttributeError, NameError, TypeError):
        return False
    items = list(found.values() if isinstance(found, dict) else np.ravel(list(np.atleast_1d(found).flat)))
    return bool(items) and all(isinstance(item, int | float | np.number) for item in items)


def unexplained_numbers(source):
    body = ast.parse(source).body
    for statement, following in itertools.pairwise([*body, ast.Pass()]):
        if isinstance(statement, ast.Assign) and is_number(statement.value):
            target = statement.targets[0]
            name = (target if isinstance(target, ast.Name) else target.elts[0]).id
            text = following.value.value if isinstance(following, ast.Expr) else ""
            if not name.startswith("_") and not (text[:1].isupper() and text.endswith(".")):
                yield name


def test_every_number_with_a_name_has_a_sentence():
    found = {p.name: list(unexplained_numbers(p.read_text("utf-8"))) for p in CODE.rglob("*.py")}
    assert not {name: numbers for name, numbers in found.items() if numbers}
    assert list(
        unexplained_numbers('A = 2**10\n"""Bytes of a block."""\nB, C = 3, 4\nD = (5, 6.0)\nE = ("a", "b")\n')
    ) == ["B", "D"]
