"""Random words: uniform, never twice the same, and bound to the process that draws them."""

import copy
import os
import pickle

import numpy as np
import pytest
from scipy.stats import chi2

from synth_core.errors import WallError
from synth_core.privacy import entropy
from synth_core.privacy.entropy import SystemEntropy

pytestmark = pytest.mark.system_entropy  # nothing here fails by chance more often than once in 10^9 runs


def test_bytes_are_uniform():
    seen = np.bincount(SystemEntropy().words(200_000).view(np.uint8), minlength=256)
    expected = seen.sum() / 256
    assert chi2.sf(((seen - expected) ** 2 / expected).sum(), 255) > 1e-9


def test_words_of_any_number():
    source = SystemEntropy()
    assert [source.words(n).size for n in (0, 1, 7, 70_000, 200_001)] == [0, 1, 7, 70_000, 200_001]
    assert source.words(3).dtype == np.uint64


def test_no_two_words_are_the_same_within_or_between_sources():
    """Of 140,010 words two would be the same by chance once in 1.9 * 10^9 runs."""
    words = np.concatenate([source.words(n) for source in (SystemEntropy(), SystemEntropy()) for n in (5, 70_000)])
    assert len(np.unique(words)) == len(words)


def test_a_used_up_key_is_replaced(monkeypatch):
    monkeypatch.setattr(entropy, "_BYTES_PER_KEY", 64)
    source = SystemEntropy()
    source.words(8)
    first = source._stream
    source.words(1)
    assert source._stream is not first


def words_after_a_fork(source):
    """Four words of a forked child, of its own child, and of this process, drawn from what was one source."""
    source.words(1)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        grandchild = os.fork()
        if grandchild:
            os.waitpid(grandchild, 0)
        os.write(writer, source.words(4).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = np.frombuffer(os.read(reader, 64), dtype=np.uint64)
    return [*theirs.tolist(), *source.words(4).tolist()]


def test_a_forked_child_draws_other_words():
    words = words_after_a_fork(SystemEntropy())
    assert len(set(words)) == len(words) == 12


def test_a_forked_child_with_the_same_process_number_draws_other_words(monkeypatch):
    """In another namespace, or when numbers are used again, a child may have the number of its parent."""
    monkeypatch.setattr(os, "getpid", lambda: 7)
    words = words_after_a_fork(SystemEntropy())
    assert len(set(words)) == len(words) == 12


def test_a_fork_that_the_interpreter_does_not_see_is_noticed_by_the_process_number(monkeypatch):
    source = SystemEntropy()
    source.words(1)
    first = source._stream
    monkeypatch.setattr(os, "getpid", lambda: -5)
    source.words(1)
    assert source._stream is not first


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_source_cannot_be_duplicated(duplicate):
    with pytest.raises(WallError, match="cannot be copied"):
        duplicate(SystemEntropy())
