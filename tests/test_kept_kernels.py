"""Compiled kernels: what is kept on disk of an older source is not read."""

import importlib.util
import pickle

SOURCE = """
from synth_core.compiled import compiled

@compiled
def twice(number):
    return 2 * number
"""


def load(path):
    spec = importlib.util.spec_from_file_location("kernels_of_before", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_kept_kernel_whose_classes_are_gone_is_compiled_anew(tmp_path):
    path = tmp_path / "kernels_of_before.py"
    path.write_text(SOURCE)
    assert load(path).twice(2) == 4
    (index,) = tmp_path.rglob("*.nbi")
    with index.open("rb") as file:
        version = pickle.load(file)
    index.write_bytes(pickle.dumps(version) + b"cno.such.module\nClass\n.")
    path.write_text(SOURCE + "\n# changed\n")
    again = load(path).twice
    assert again(3) == 6
    assert again.stats.cache_misses


def test_a_kept_kernel_of_the_same_source_is_used(tmp_path):
    path = tmp_path / "kernels_of_before.py"
    path.write_text(SOURCE)
    assert load(path).twice(2) == 4
    again = load(path).twice
    assert again(3) == 6
    assert again.stats.cache_hits
