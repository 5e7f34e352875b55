"""MWEM: it measures what is declared and wrong, agrees with brute force, and refuses what is too large."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synth_core.audit.adversary import Witness
from synth_core.domain import Domain
from synth_core.errors import FeasibilityError, SpecError
from synth_core.measurement import Measurement
from synth_core.privacy.budget import mu2_of
from synth_core.privacy.curator import Curator
from synth_core.privacy.entropy import SystemEntropy
from synth_core.storage.counting import TableCounts
from synth_core.synthesizers.base import Tools
from synth_core.synthesizers.methods import synthesizer
from synth_core.synthesizers.mwem import join_groups, weights_model
from synth_core.synthesizers.workloads import Workload

DOMAIN = Domain.of({"a": 2, "b": 3, "c": 2, "d": 4})
TOTAL = 4000


def measurement(clique, noisy, sigma=10.0):
    return Measurement(clique, np.asarray(noisy, dtype=float), sigma)


def weights(measurements, **more):
    given = {"total": TOTAL, "warm": None, "passes": 2000, "limit_cells": 1000} | more
    return weights_model(DOMAIN, measurements, **given)


def copies():
    """Column b tells c exactly; the rest is even."""
    rng = np.random.default_rng(4)
    b = rng.integers(0, 3, TOTAL)
    columns = {"a": rng.integers(0, 2, TOTAL), "b": b, "c": b % 2, "d": rng.integers(0, 4, TOTAL)}
    return TableCounts(columns, DOMAIN)


def conversation(method):
    counts, heard = copies(), []
    curator = Witness((counts, counts), 0, curator=Curator, entropy=SystemEntropy())
    plan = method.plan(DOMAIN, mu2_of(3.0, 1e-6))
    structure = method.select(curator, plan, method.score(curator, plan))
    return method.fit(curator, plan, structure, Tools(progress=heard.append)), heard


@given(st.permutations(DOMAIN.attributes).map(tuple), st.integers(0, 5))
def test_groups_are_disjoint_and_hold_every_clique(order, seed):
    rng = np.random.default_rng(seed)
    cliques = [DOMAIN.clique(rng.choice(order, size=2, replace=False)) for _ in range(seed)]
    groups = join_groups(DOMAIN, cliques, limit_cells=10**6)
    assert sorted(attribute for group in groups for attribute in group) == sorted(DOMAIN.attributes)
    assert all(any(set(clique) <= set(group) for group in groups) for clique in cliques)


def test_disjoint_measurements_keep_groups_apart():
    assert set(join_groups(DOMAIN, [("a", "b"), ("c",)], limit_cells=6)) == {("a", "b"), ("c",), ("d",)}


def test_overlapping_measurements_are_refused_by_name():
    with pytest.raises(FeasibilityError, match=r"measuring b, c joins a, b, c .* 12 cells.*'default'"):
        join_groups(DOMAIN, [("a", "b"), ("b", "c")], limit_cells=11)


def test_the_weights_converge_to_what_was_measured():
    pair = np.array([[400.0, 800, 100], [900, 600, 1200]])
    model = weights([measurement(("a", "b"), pair), measurement(("d",), [500, 500, 1000, 2000])])
    np.testing.assert_allclose(model.marginal(("a", "b")), pair, atol=1.0)
    expected = np.multiply.outer(pair.sum(axis=0), [500, 500, 1000, 2000]) / TOTAL
    np.testing.assert_allclose(model.marginal(("b", "d")), expected, atol=1.0)


def test_one_update_is_the_formula():
    model = weights([measurement(("a",), [3000, 1000])], passes=1)
    wanted = 0.5 * np.exp([(0.75 - 0.5) / 2, (0.25 - 0.5) / 2])
    np.testing.assert_allclose(model.marginal(("a",)) / TOTAL, wanted / wanted.sum())


def test_going_on_from_a_model_is_more_passes():
    first = [measurement(("a",), [3000, 1000]), measurement(("b",), [1000, 1000, 2000])]
    more = [*first, measurement(("a", "b"), [[400.0, 800, 100], [900, 600, 1200]])]
    once = weights(first, passes=5)
    np.testing.assert_allclose(
        weights(first, passes=5, warm=once).marginal(("a", "b")),
        weights(first, passes=10).marginal(("a", "b")),
    )
    joint = weights(more, passes=0, warm=once)
    np.testing.assert_allclose(joint.marginal(("a", "b")), once.marginal(("a", "b")))


@pytest.mark.parametrize("preset", ["default", "factored"])
def test_the_dependent_pair_is_found_and_learned(preset):
    method = synthesizer("mwem", preset, {"rounds_per_attribute": 0.5})
    model, heard = conversation(method)
    assert heard[0].endswith("b, c measured")
    assert len(heard) == 2
    assert abs(model.marginal(("b", "c"))[0, 1]) < 200


def test_only_the_declared_marginals_are_measured():
    method = synthesizer("mwem", options={"workload": {"marginals": [["a", "d"], ["d"]]}})
    _, heard = conversation(method)
    assert {line.split(": ")[1] for line in heard} <= {"a, d measured", "d measured"}


def test_the_factored_preset_refuses_a_vector_that_is_too_large():
    method = synthesizer("mwem", "factored", {"limit_cells": 12, "rounds_per_attribute": 5.0})
    with pytest.raises(FeasibilityError, match="into one table of"):
        conversation(method)


def test_the_graphical_preset_stays_inside_its_limit():
    method = synthesizer("mwem", options={"limit_cells": 30, "rounds_per_attribute": 3.0})
    model, _ = conversation(method)
    assert model.tree.cells <= 30
    with pytest.raises(FeasibilityError, match="no marginal of the workload fits"):
        conversation(synthesizer("mwem", options={"limit_cells": 11, "workload": {"marginals": [["b", "d"]]}}))


def test_options_are_checked():
    assert synthesizer("mwem", options={"workload": {"ways": 3}}).workload == Workload(ways=3)
    with pytest.raises(SpecError, match="workload"):
        synthesizer("mwem", options={"workload": "all"})
