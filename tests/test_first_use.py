"""Kernels are compiled once, and the process that has to do it says so."""

import os
import subprocess
import sys

import pytest

from synth_core.compiled import COMPILING

SCRIPT = """
import numpy as np
from synth_core.evaluation.cells import _hash
from synth_core.storage.counting import count_codes
_hash(np.zeros(1, dtype=np.int64))
"""


def messages(cache) -> str:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    return done.stderr


@pytest.mark.slow
def test_a_process_that_compiles_says_so_once_and_the_next_one_compiles_nothing(tmp_path):
    assert messages(tmp_path).splitlines() == [COMPILING]
    assert messages(tmp_path) == ""
