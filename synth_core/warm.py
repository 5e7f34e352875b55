"""Compile every kernel once, at installation, so that no release waits for it: `python -m synth_core.warm`.

With `--small` only what a release needs whose columns have at most 256 codes, by a method without kernels of its own.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd

from synth_core.api import synthesize
from synth_core.arrays import NUMPY
from synth_core.domain import Domain
from synth_core.evaluation.cells import align_cells, count_cells, find_occupied
from synth_core.evaluation.classification import find_nearest
from synth_core.evaluation.support_vectors import Lessons
from synth_core.evaluation.tables import add_sums, count_matches
from synth_core.models import inference
from synth_core.models.junction_tree import junction_tree
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.plan import plan
from synth_core.models.sampling import sample_rows
from synth_core.privacy.entropy import SystemEntropy
from synth_core.privacy.noise import grid_noise
from synth_core.schema import LinkedSchema, Schema
from synth_core.schema.codec import decode_table
from synth_core.storage.counting import count_codes

CODE_TYPES = (2**8, 2**16, 2**16 + 1)
"""Sizes of an attribute whose codes take one, two and four bytes."""
OWN_KERNELS = (("absyn", "default"), ("privbayes", "paper"))
"""Methods with kernels of their own, as (method, preset); they are run on a few made-up rows."""


def warm_up() -> None:
    """Run each kernel on something tiny; the machine code stays on disk beside the source."""
    warm_release(CODE_TYPES)
    _warm_shared_pass()
    rng = np.random.default_rng(0)
    for size in (3, 300):  # codes of one byte and of two
        sizes = {"a": size, "b": 3, "c": 2}
        rows = pd.DataFrame({name: rng.integers(0, n, 200) for name, n in sizes.items()})
        for method, preset in OWN_KERNELS:
            synthesize(rows, Schema.from_sizes(sizes), method=method, preset=preset, epsilon=1.0, delta=1e-6)
    _warm_linked()


def warm_release(sizes: Sequence[int]) -> None:
    """Run what any release of columns of these sizes needs, from counting to evaluation."""
    for size in sizes:
        _warm_engine(size)
        domain = Domain.of({"a": size, "b": 2})
        none = {name: np.zeros(1, dtype=np.min_scalar_type(size - 1)) for name in domain}
        count_codes(none, domain, [("a", "b")])
        cells = count_cells(list(none.values()), domain.sizes)
        align_cells(cells, cells)
        find_nearest(np.column_stack(list(none.values())), np.array(list(none.values())))
        numbers = Schema.model_validate({"columns": [{"name": "n", "kind": "integer", "bins": [0, 2, 4]}]})
        decode_table(none["a"][:, None], numbers, np.random.default_rng(0))
    few = np.array([[0, 0], [1, 1]], dtype=np.uint8)
    Lessons.of(few, Domain.of({"a": 2, "b": 2})).predict("a", few)
    one = np.ones(1, dtype=np.int64)
    find_occupied(one)
    add_sums(one[:, None], one, one[:, None], one, one)
    count_matches(few.astype(np.int64), few, np.zeros(2, dtype=np.int64))
    grid_noise(Fraction(1), 1, SystemEntropy())


def _warm_linked() -> None:
    """Run what two linked tables need besides."""
    codes = [{"name": "a", "kind": "categorical", "values": [0, 1]}]
    one = {"name": "some", "people": {"a": 1}, "at_most": 2}
    raw = {"link": "h", "largest": 2, "household": {"columns": codes}, "person": {"columns": codes}, "together": [one]}
    frame = pd.DataFrame({"h": np.arange(100), "a": np.arange(100) % 2})
    tables = {"household": frame, "person": pd.concat([frame, frame])}
    synthesize(tables, LinkedSchema.model_validate({"tables": raw}), method="independent", epsilon=50.0, delta=1e-6)


def _warm_engine(size: int) -> None:
    """Inference and sampling over codes of one type."""
    domain = Domain.of({"a": size, "b": 2, "c": 2})
    cliques = (("a",), ("b", "c"))
    potentials = np.zeros(sum(map(domain.cells, cliques)))
    tree = junction_tree(domain, cliques)
    inference.CompiledOracle(plan(tree, cliques))(potentials)
    model = MarkovRandomField(tree, cliques, potentials, total=1.0)
    sample_rows(domain, model.beliefs, 2, rng=np.random.default_rng(0), independent=True)
    model.sample(2, np.random.default_rng(0))


def _warm_shared_pass() -> None:
    """Inference over a clique large enough to be shared between threads."""
    size = math.ceil(inference.SHARED_CELLS ** (1 / 3)) + 1
    large = Domain.of({"a": size, "b": size, "c": size, "d": size, "e": size, "f": 2})
    pairs = tuple((x, y) for x, y in ("ab", "bc", "ac", "cd", "de", "ce", "ef"))
    shared = inference.marginal_oracle(junction_tree(large, pairs), pairs, replace(NUMPY, threads=2))
    shared(np.zeros(sum(map(large.cells, pairs))))


if __name__ == "__main__":
    if "--small" in sys.argv:
        warm_release(CODE_TYPES[:1])
    else:
        warm_up()
