"""The list of methods: what a spec may name, and what it tells about each option."""

from dataclasses import dataclass, fields

import pytest

from synth_core.synthesizers.base import SHARED_MEANINGS, option, option_meaning
from synth_core.synthesizers.methods import METHODS, method_options


@pytest.mark.parametrize("method", METHODS)
def test_every_option_says_what_it_changes(method):
    for name, values, meaning in method_options(method):
        assert values, name
        assert meaning.endswith("."), f"{method} says nothing of its option {name!r}"
        assert len(meaning.split()) >= 6, f"{method}, {name!r}: say the unit and what changes when it grows"


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
