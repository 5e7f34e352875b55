"""The list of methods: what a spec may name, and what it tells about each option."""

import math
from dataclasses import dataclass, fields

import pytest

from synth_core.errors import SpecError
from synth_core.synthesizers.base import SHARED_MEANINGS, option, option_meaning
from synth_core.synthesizers.methods import METHODS, method_options, synthesizer


@pytest.mark.parametrize("method", METHODS)
def test_every_option_says_what_it_changes(method):
    for name, values, meaning in method_options(method):
        assert values, name
        assert meaning.endswith("."), f"{method} says nothing of its option {name!r}"
        assert len(meaning.split()) >= 6, f"{method}, {name!r}: say the unit and what changes when it grows"


@pytest.mark.parametrize("method", METHODS)
def test_a_number_with_which_a_method_cannot_go_on_is_no_option(method):
    """Before, they were found out when something had been paid."""
    for preset in METHODS[method].presets:
        for name, values, _ in method_options(method):
            if isinstance(values.get(preset), float | int) and not isinstance(values[preset], bool):
                kind = type(values[preset])
                assert synthesizer(method, preset, {name: values[preset]}), "its own value is allowed"
                for wrong in (kind(-1), *((math.nan, math.inf) if kind is float else ())):
                    with pytest.raises(SpecError, match=f"{name} must be a number from|options: "):
                        synthesizer(method, preset, {name: wrong})


WITHOUT_END = [
    *(("absyn", "default", name) for name in ("one_way", "scores", "triple_scores", "depth", "candidates")),
    *(("privmrf", "default", name) for name in ("rounds", "choices", "proposals", "last_gain", "emphasis")),
    *(("mst", "default", name) for name in ("one_way", "choices", "last_fit")),
    *(("aim", "default", name) for name in ("annealing", "passes", "candidates")),
]


@pytest.mark.parametrize(("method", "preset", "name"), WITHOUT_END)
def test_a_zero_by_which_something_is_divided_is_refused(method, preset, name):
    ((_, values, _),) = [one for one in method_options(method) if one[0] == name]
    with pytest.raises(SpecError, match="options: "):
        synthesizer(method, preset, {name: type(values[preset])(0)})


def test_triples_without_scores_are_refused():
    with pytest.raises(SpecError, match="triples are chosen by their scores"):
        synthesizer("absyn", "paper", {"triples": 0.2})


def test_an_option_of_one_preset_alone_has_no_value_in_the_others():
    values = {name: values for name, values, _ in method_options("privmrf")}
    assert set(values["k"]) == {"paper"}
    assert set(values["theta"]) == {"default", "paper"}


def test_an_option_carries_its_default_and_its_meaning():
    @dataclass(frozen=True, slots=True)
    class One:
        share: float = option(0.2, "A share.")
        penalty: float = option(1.0)
        tau: float = option(1e6, "limit_cells")

    assert One() == One(0.2, 1.0, 1e6)
    shared = [SHARED_MEANINGS[name] for name in ("penalty", "limit_cells")]
    assert [option_meaning(field) for field in fields(One)] == ["A share.", *shared]
