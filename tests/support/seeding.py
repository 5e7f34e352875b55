"""Every test draws the same privacy noise each time: this replaces the key of the noise, in tests and nowhere else.

A test (and each fixture that several tests share) has a key of its own, derived from its name and from
`EXPLORE_SEED`, so that a test alone draws what it draws in a whole run. `make test` has seed 0; `make explore` tries
others. Processes that a test starts keep the operating system's randomness.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from synth_core.privacy import entropy

SEED = int(os.environ.get("EXPLORE_SEED", "0"))

_from_the_system = entropy.SystemEntropy._rekey
_lock = threading.Lock()
_keys: Iterator[bytes] | None = None


def _keys_of(name: str) -> Iterator[bytes]:
    for number in itertools.count():
        yield hashlib.sha256(f"{SEED}/{name}/{number}".encode()).digest()


def _rekey(source: entropy.SystemEntropy) -> None:
    """Give a source the next key of the test that runs; outside of any test, one from the operating system."""
    _from_the_system(source)
    with _lock:
        key = None if _keys is None else next(_keys)
    if key is not None:
        source._stream = Cipher(AES(key), CTR(bytes(16))).encryptor()


@contextmanager
def noise_of(name: str | None) -> Iterator[None]:
    """Draw the noise that belongs to a name; None is the operating system's."""
    global _keys
    before, _keys = _keys, None if name is None else _keys_of(name)
    try:
        yield
    finally:
        _keys = before


def install() -> None:
    """Let all privacy noise of this process come from the keys of the test that runs."""
    entropy.SystemEntropy._rekey = _rekey
