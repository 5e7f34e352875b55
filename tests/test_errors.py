"""A refusal is one line that a terminal can show, however long and odd what it quotes is."""

import pickle

import pytest

from synth_core.errors import MAX_LETTERS, SpecError
from synth_core.release.spec import ReleaseSpec


def test_what_a_refusal_quotes_is_cut_in_the_middle():
    with pytest.raises(SpecError) as refusal:
        ReleaseSpec.parse({"x" * 1_000_000: 1})
    text = str(refusal.value)
    assert len(text) <= MAX_LETTERS + 3
    assert text.startswith("release spec: ")
    assert text.endswith("deadline_hours)"), "the end, where remedies are, stays"


def test_a_refusal_has_no_control_characters():
    refusal = SpecError("a\nb\x1b[2Jc\u202ed\u2028e")
    assert str(refusal) == "a b [2Jc d e"
    assert str(pickle.loads(pickle.dumps(refusal))) == str(refusal)
