"""Marginals must equal those of mbi, the library of Private-PGM's authors, as `record_mbi.py` recorded them."""

import json
from pathlib import Path

import numpy as np
import pytest

from synth_core.arrays import NUMPY, generic
from synth_core.domain import Domain
from synth_core.models.inference import marginal_oracle
from synth_core.models.junction_tree import junction_tree
from synth_core.models.markov_random_field import MarkovRandomField

RECORD = json.loads(Path(__file__).with_name("mbi_marginals.json").read_text(encoding="utf-8"))
DOMAIN = Domain.of(RECORD["sizes"])


def potentials(cliques, values):
    """The log potentials, one vector over the distinct cliques in the domain's order; permuted duplicates are added."""
    tables, start = {}, 0
    for clique in cliques:
        shape = DOMAIN.shape(clique)
        end = start + int(np.prod(shape))
        ordered = DOMAIN.clique(clique)
        turned = np.reshape(values[start:end], shape).transpose([clique.index(a) for a in ordered])
        tables[ordered] = tables.get(ordered, 0.0) + turned
        start = end
    assert start == len(values)
    return tuple(tables), np.concatenate([table.ravel() for table in tables.values()])


@pytest.mark.parametrize("name", RECORD["cases"])
@pytest.mark.parametrize("arrays", [NUMPY, generic(np)], ids=["compiled", "generic"])
def test_marginals_equal_those_of_mbi(name, arrays):
    case = RECORD["cases"][name]
    asked = [tuple(clique) for clique in case["cliques"]]
    cliques, vector = potentials(asked, case["potentials"])
    tree = junction_tree(DOMAIN, cliques)
    marginals, _ = marginal_oracle(tree, cliques, arrays)(vector)
    model = MarkovRandomField(tree, cliques, vector, total=1.0)
    np.testing.assert_allclose(marginals, np.concatenate([model.marginal(c).ravel() for c in cliques]), atol=1e-12)
    found = np.concatenate([model.marginal(clique).ravel() for clique in asked])
    np.testing.assert_allclose(found, case["marginals"], atol=1e-8)
