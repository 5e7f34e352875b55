"""Every public name is explained: what it takes, what it returns, and that it exists."""

import importlib
import inspect

import pytest

PACKAGES = ("synth_core", "synth_core.evaluation", "synth_core.models", "synth_core.release")
OTHERS = {"synth_core.schema"}  # their methods have pages of their own


def public():
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            yield f"{package}.{name}", getattr(module, name)


def called():
    """Functions, and the methods of classes, that a user may call."""
    for name, thing in public():
        if inspect.isclass(thing):
            if any(thing.__module__.startswith(other) for other in OTHERS):
                continue
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


def test_an_unknown_name_is_refused():
    for package in PACKAGES:
        with pytest.raises((AttributeError, ImportError)):
            _ = importlib.import_module(package).nothing_of_that_name
