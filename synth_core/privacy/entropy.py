"""Where random words for privacy noise come from: the operating system, stretched by a stream cipher."""

from __future__ import annotations

import os
from typing import Any, NoReturn, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from synth_core.errors import WallError

_BYTES_PER_KEY = 2**32
_NOTHING = memoryview(bytes(2**19))
_forks = 0  # how often this process, or one it comes from, is the child of a fork


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


class Entropy(Protocol):
    """A source of independent uniform 64-bit words; its name is written to the ledger."""

    name: str

    def words(self, n: int) -> NDArray[np.uint64]:
        """The next n words."""


class SystemEntropy:
    """AES-256 in counter mode, keyed from the operating system; no seed goes in and no state comes out.

    At most 2^28 blocks are drawn under one key. So, by the switching lemma, an adversary who cannot break AES can tell
    them from truly random words with an advantage of at most 2^-73. A forked child takes a new key before its
    first word, because one key stream used twice would give two answers the same noise. It is known by two signs: the
    interpreter counts forks, which a process number that is used again cannot hide, and the process number changes
    also where a library forks without the interpreter.
    """

    name = "aes-256-ctr(os.urandom)"

    def __init__(self) -> None:
        self._owner = (-1, -1)
        self._left = 0
        self._stream: CipherContext

    def words(self, n: int) -> NDArray[np.uint64]:
        """The next n words of the key stream (the encryption of zeros)."""
        out = np.empty(8 * n, dtype=np.uint8)
        for start in range(0, out.size, len(_NOTHING)):
            part = out[start : start + len(_NOTHING)].data
            if self._owner != (os.getpid(), _forks) or self._left < len(part):
                self._rekey()
            self._left -= len(part)
            self._stream.update_into(_NOTHING[: len(part)], part)
        return out.view(np.uint64)

    def _rekey(self) -> None:
        self._stream = Cipher(AES(os.urandom(32)), CTR(os.urandom(16))).encryptor()
        self._owner = (os.getpid(), _forks)
        self._left = _BYTES_PER_KEY

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise WallError("an entropy source cannot be copied or sent; create one where the noise is drawn")
