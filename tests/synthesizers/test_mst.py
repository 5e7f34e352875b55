"""MST: the tree it finds, what it spends, and that merging rare codes spares noise."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.conversations import chain, conversation

from synth_core.domain import Domain
from synth_core.errors import SpecError
from synth_core.synthesizers.methods import synthesizer
from synth_core.synthesizers.mst import MST


def connected(domain, edges):
    reached = {domain.attributes[0]}
    for _ in edges:
        reached |= {a for edge in edges if reached & set(edge) for a in edge}
    return reached == set(domain)


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(2, 5), min_size=2, max_size=7), st.integers(0, 99))
def test_edges_are_a_spanning_tree_whatever_the_noise(sizes, seed):
    domain, codes = chain(sizes, 50, seed=seed)
    _, structure, model, _ = conversation(MST(), domain, codes, epsilon=0.1)
    assert len(structure.initial) == len(domain) - 1
    assert connected(domain, structure.initial)
    assert model.domain == domain


def test_finds_the_tree_of_a_chain():
    domain, codes = chain([3, 4, 3, 5, 4, 3], 8000)
    structure = conversation(MST(), domain, codes, epsilon=2.0).structure
    assert set(structure.initial) == set(zip(domain.attributes, domain.attributes[1:], strict=False))


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_shares_of_the_presets(preset):
    domain = Domain.of({"a": 2, "b": 2})
    shares = dict(synthesizer("mst", preset).plan(domain, Fraction(1)).shares)
    third = Fraction(1, 3)
    expected = (third, third, third) if preset == "paper" else (Fraction(1, 4), Fraction(1, 20), Fraction(7, 10))
    assert tuple(shares.values()) == expected


def test_merging_rare_codes_spares_noise():
    """Most codes are unused: without merging, every one of their cells would hold noise."""
    rng = np.random.default_rng(1)
    first = rng.integers(0, 3, 3000)
    second = np.where(rng.random(3000) < 0.8, first, rng.integers(0, 3, 3000))
    domain = Domain.of({"a": 40, "b": 40})
    codes = {"a": first.astype(np.uint8), "b": second.astype(np.uint8)}
    real = np.zeros((40, 40))
    np.add.at(real, (first, second), 1 / 3000)

    def error(method):
        made = conversation(method, domain, codes, epsilon=0.5).model.marginal(("a", "b"))
        return 0.5 * np.abs(made / made.sum() - real).sum()

    merged = np.mean([error(MST()) for _ in range(3)])
    apart = np.mean([error(MST(rare=-1e9)) for _ in range(3)])
    assert merged < 0.8 * apart


def test_options_are_checked():
    assert synthesizer("mst", "default", {"rare": 5}).rare == 5.0
    with pytest.raises(SpecError, match="mst/default has no option 'tree'"):
        synthesizer("mst", "default", {"tree": 1})


def test_preview_tells_the_noise():
    domain = Domain.of({"a": 3, "b": 4})
    method = MST()
    assert [name for name, _ in method.preview(domain, method.plan(domain, Fraction(1, 20)))] == [
        "noise on each one-way count",
        "noise on each count of a pair, about",
    ]
