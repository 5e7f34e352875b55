import array_api_strict
import numpy as np
import pytest

from synth_core import arrays
from synth_core.errors import SpecError


@pytest.fixture(autouse=True)
def undecided():
    arrays.default_backend.cache_clear()
    yield
    arrays.default_backend.cache_clear()


class Device:
    """Stands in for a library on a GPU."""

    __name__ = "cupy"


def test_numpy_serves_where_no_gpu_answers(monkeypatch):
    monkeypatch.delenv("SYNTH_ARRAYS", raising=False)
    monkeypatch.setattr(arrays, "_cupy_with_device", lambda: None)
    assert arrays.default_backend() == arrays.NUMPY


def test_cupy_serves_where_a_gpu_answers(monkeypatch):
    monkeypatch.setenv("SYNTH_ARRAYS", "auto")
    monkeypatch.setattr(arrays, "_cupy_with_device", Device)
    assert arrays.default_backend().name == "cupy"
    assert not arrays.default_backend().compiled


def test_numpy_can_be_forced(monkeypatch):
    monkeypatch.setenv("SYNTH_ARRAYS", "numpy")
    monkeypatch.setattr(arrays, "_cupy_with_device", Device)
    assert arrays.default_backend() == arrays.NUMPY


def test_cupy_without_a_gpu_is_refused(monkeypatch):
    monkeypatch.setenv("SYNTH_ARRAYS", "cupy")
    monkeypatch.setattr(arrays, "_cupy_with_device", lambda: None)
    with pytest.raises(SpecError, match="no GPU answers"):
        arrays.default_backend()


def test_an_unknown_library_is_refused(monkeypatch):
    monkeypatch.setenv("SYNTH_ARRAYS", "torch")
    with pytest.raises(SpecError, match="numpy, cupy or auto"):
        arrays.default_backend()


def test_a_machine_without_cupy_has_no_device(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(arrays.importlib, "import_module", missing)
    assert arrays._cupy_with_device() is None


def test_arrays_know_their_namespace_and_come_back_to_numpy():
    strict = array_api_strict.asarray([1.0, 2.0])
    assert arrays.namespace(strict) is array_api_strict
    np.testing.assert_array_equal(arrays.to_numpy(strict), [1.0, 2.0])
    assert arrays.to_numpy(np.ones(2)).sum() == 2.0


def test_threads_are_asked_for_by_environment(monkeypatch):
    monkeypatch.setenv("SYNTH_ARRAYS", "numpy")
    monkeypatch.setenv("SYNTH_THREADS", "2")
    assert arrays.default_backend().threads == 2


@pytest.mark.parametrize("threads", ["0", "two", "-1"])
def test_threads_that_are_no_number_are_refused(monkeypatch, threads):
    monkeypatch.setenv("SYNTH_THREADS", threads)
    with pytest.raises(SpecError, match="at least 1"):
        arrays.default_backend()
