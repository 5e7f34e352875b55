"""The wrapper of confidential values refuses every accident, and only listed modules may open it."""

import ast
import copy
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from synth_core.errors import WallError
from synth_core.privacy.wall import Private, open_private

PACKAGE = Path(__file__).resolve().parents[2] / "synth_core"
DOORS = {"privacy/curator.py", "audit/adversary.py"}
SECRET = 987_654_321


@pytest.mark.parametrize(
    "accident",
    [
        lambda p: p + 1,
        lambda p: 1 + p,
        lambda p: p == SECRET,
        lambda p: p < SECRET,
        bool,
        len,
        list,
        int,
        float,
        hash,
        copy.copy,
        copy.deepcopy,
        pickle.dumps,
        json.dumps,
        np.asarray,
        lambda p: np.add(p, 1),
        lambda p: p.value,
        vars,
    ],
)
def test_accidents_are_refused(accident):
    with pytest.raises((WallError, TypeError, AttributeError)) as refusal:
        accident(Private(SECRET))
    assert str(SECRET) not in str(refusal.value)


def test_text_tells_nothing():
    private = Private(SECRET)
    for text in (
        repr(private),
        str(private),
        f"{private}",
        f"{private:>30}",
        repr([private]),
    ):
        assert str(SECRET) not in text


def test_airflow_cannot_serialize_it_into_an_xcom():
    serde = pytest.importorskip("airflow.sdk.serde")
    with pytest.raises(TypeError) as refusal:
        serde.serialize({"answer": Private(SECRET)})
    assert str(SECRET) not in str(refusal.value)


def test_the_door_opens():
    assert open_private(Private(SECRET)) == SECRET


def test_only_listed_modules_use_the_door():
    users = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
            attribute = node.attr if isinstance(node, ast.Attribute) else ""
            if "open_private" in names or attribute in ("open_private", "_Private__value"):
                users.add(str(path.relative_to(PACKAGE)))
    assert users - DOORS == {"privacy/wall.py"}
