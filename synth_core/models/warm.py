"""Compile every kernel of the engine once; `python -m synth_core.warm` does it at installation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from synth_core.arrays import NUMPY
from synth_core.domain import Domain
from synth_core.models import inference
from synth_core.models.junction_tree import junction_tree
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.plan import plan
from synth_core.models.sampling import sample_rows

CODE_TYPES = (2**8, 2**16, 2**16 + 1)
"""An attribute of each size makes codes of another type."""


def warm_up() -> None:
    """Run each kernel on a tiny model; the machine code stays on disk beside the source."""
    for size in CODE_TYPES:
        domain = Domain.of({"a": size, "b": 2, "c": 2})
        cliques = (("a",), ("b", "c"))
        potentials = np.zeros(sum(map(domain.cells, cliques)))
        tree = junction_tree(domain, cliques)
        inference.CompiledOracle(plan(tree, cliques))(potentials)
        model = MarkovRandomField(tree, cliques, potentials, total=1.0)
        sample_rows(domain, model.beliefs, 2, rng=np.random.default_rng(0), independent=True)
        model.sample(2, np.random.default_rng(0))
    size = math.ceil(inference.SHARED_CELLS ** (1 / 3)) + 1
    large = Domain.of({"a": size, "b": size, "c": size, "d": size, "e": size, "f": 2})
    pairs = tuple((x, y) for x, y in ("ab", "bc", "ac", "cd", "de", "ce", "ef"))
    shared = inference.marginal_oracle(junction_tree(large, pairs), pairs, replace(NUMPY, threads=2))
    shared(np.zeros(sum(map(large.cells, pairs))))
