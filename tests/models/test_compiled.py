from synth_core import compiled
from synth_core.models import arrangement_kernels, kernels, sampling_kernels, tuples
from synth_core.warm import warm_up


def test_warming_up_compiles_every_kernel_for_every_type_of_code():
    warm_up()
    for module in (kernels, sampling_kernels, arrangement_kernels):
        for name, kernel in vars(module).items():
            if hasattr(kernel, "signatures") and not name.startswith("_"):
                assert kernel.signatures, f"{name} was not compiled"
    assert tuples._add_tuples.signatures
    assert len(sampling_kernels.deal.signatures) >= 3
    assert len(sampling_kernels.draw.signatures) >= 3


def test_kernels_compile_where_nothing_can_be_written(monkeypatch):
    def refusing(**options):
        if options.get("cache"):
            raise RuntimeError("no locator available")
        return lambda function: (function, options)

    monkeypatch.setattr(compiled, "njit", refusing)
    _, options = compiled.compiled(len)
    assert options["nogil"]
    assert "cache" not in options
