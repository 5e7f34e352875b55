"""Reproducible random words, for tests only."""

import numpy as np


class SeededEntropy:
    """Words of a seeded generator behind the Entropy protocol."""

    name = "seeded (tests only)"

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def words(self, n: int) -> np.ndarray:
        return self._generator.integers(0, 2**64, size=n, dtype=np.uint64)


class FixedWords:
    """The given words in their order; asking for more is an error."""

    name = "fixed (tests only)"

    def __init__(self, *words: int) -> None:
        self._words = list(words)

    def words(self, n: int) -> np.ndarray:
        taken, self._words = self._words[:n], self._words[n:]
        assert len(taken) == n
        return np.array(taken, dtype=np.uint64)
