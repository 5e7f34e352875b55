"""Marginals must equal those of mbi, the library of Private-PGM's authors, where it is installed.

It lives in an environment of its own: the one `tests/benchmarks/engine.py` makes, or the one whose interpreter
MBI_PYTHON names.
"""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from synth_core.arrays import NUMPY, generic
from synth_core.domain import Domain
from synth_core.models.inference import marginal_oracle
from synth_core.models.junction_tree import junction_tree
from synth_core.models.markov_random_field import MarkovRandomField

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("MBI_PYTHON", ROOT / "bench-out" / "mbi" / "bin" / "python"))
DOMAIN = Domain.of({"a": 2, "b": 3, "c": 4, "d": 5})
CLIQUES = {
    "tree": [("a", "b"), ("b", "c"), ("c", "d")],
    "cycle": [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")],
    "missing attribute": [("a",), ("b", "d")],
    "one clique": [("a", "b", "c", "d")],
    "nested": [("a", "b", "c"), ("a", "b"), ("c",), ("c", "d")],
    "all pairs": [("a", "b"), ("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"), ("c", "d")],
    "independent": [("a",), ("b",), ("c",), ("d",)],
    "permuted duplicates": [("a", "b"), ("d", "c"), ("b", "a"), ("d", "b")],
}

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason="mbi is not installed; run tests/benchmarks/engine.py once"
)


def potentials(name):
    rng = np.random.default_rng(sorted(CLIQUES).index(name))
    return [rng.normal(size=DOMAIN.shape(clique)) * 2 for clique in CLIQUES[name]]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """The peer's marginals of every case, in the order of the case's cliques, from one process."""
    folder = tmp_path_factory.mktemp("cases")
    for name, cliques in CLIQUES.items():
        np.savez(
            folder / f"{name}.npz",
            attributes=np.array(DOMAIN.attributes),
            sizes=np.array(DOMAIN.sizes),
            cliques=np.array(["|".join(clique) for clique in cliques]),
            values=np.concatenate([table.ravel() for table in potentials(name)]),
        )
    script = ROOT / "tests" / "benchmarks" / "peers" / "engine_mbi.py"
    done = subprocess.run([PYTHON, script, "marginals", folder], capture_output=True, text=True, check=True)
    return {name: np.array(found) for name, found in json.loads(done.stdout.splitlines()[-1]).items()}


@pytest.mark.parametrize("name", CLIQUES)
@pytest.mark.parametrize("arrays", [NUMPY, generic(np)], ids=["compiled", "generic"])
def test_marginals_equal_those_of_mbi(theirs, name, arrays):
    ours = {}
    for clique, table in zip(CLIQUES[name], potentials(name), strict=True):
        ordered = DOMAIN.clique(clique)
        turned = np.transpose(table, [clique.index(a) for a in ordered])
        ours[ordered] = ours.get(ordered, 0.0) + turned
    cliques = tuple(ours)
    vector = np.concatenate([table.ravel() for table in ours.values()])
    tree = junction_tree(DOMAIN, cliques)
    marginals, _ = marginal_oracle(tree, cliques, arrays)(vector)
    model = MarkovRandomField(tree, cliques, vector, total=1.0)
    np.testing.assert_allclose(
        marginals, np.concatenate([model.marginal(c).ravel() for c in cliques]), atol=1e-12
    )
    found = np.concatenate([model.marginal(clique).ravel() for clique in CLIQUES[name]])
    np.testing.assert_allclose(found, theirs[name], atol=1e-8)
