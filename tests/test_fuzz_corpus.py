"""What `make fuzz` found once stays found, and some hundred of its cases are tried each time."""

import fuzz
import numpy as np
import pytest
from support.hostile_input import KINDS, Readers, judged, mutated

pytestmark = pytest.mark.slow


def test_inputs_that_failed_once_are_refused():
    found = list(fuzz.replay())
    assert [(name, wrong) for name, outcome, wrong in found if outcome == "failed"] == []
    assert found


def test_hostile_input_is_taken_or_refused_in_one_line(tmp_path):
    readers = Readers(tmp_path)
    sound = {kind: readers.sound(kind) for kind in KINDS}
    assert {kind: judged(readers, kind, content)[0] for kind, content in sound.items()} == dict.fromkeys(KINDS, "taken")
    failed = []
    for number in range(25 * len(KINDS)):
        kind = KINDS[number % len(KINDS)]
        outcome, wrong = judged(readers, kind, mutated(sound[kind], np.random.default_rng([20, number])))
        failed += [(number, kind, wrong)] * (outcome == "failed")
    assert failed == []
