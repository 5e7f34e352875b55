"""How large a model may be expected before anything is measured: costs of fits grow with its junction tree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from synth_core.domain import Clique, Domain
from synth_core.models.triangulation import TriangulatedGraph

TREE_CELLS = 8_000_000
"""Cells of a junction tree that methods allow at most."""
TABLES_PER_COLUMN = 5
"""Pairs that are measured for each column at most."""
USEFUL = 1.8
"""Least ratio of the records of a cell to its noise in a pair that is measured, so that trees are as large as found."""
MAX_TRIED = 300
"""Pairs that are tried at most: beyond, a tree is as large as it may be."""
DRAWS = 3
"""Trees that are drawn."""


def expected_tree(domain: Domain, *, records: float, mu2: float) -> float:
    """How large a junction tree may be expected, from public numbers alone.

    Its pairs are drawn at random among those whose cells hold enough records for the noise that is left to them, as
    long as the tree does not grow beyond what methods allow: the size jumps by factors of a hundred where columns join.

    Args:
        domain: The attributes of a model, their sizes and rules.
        records: Expected records of a model.
        mu2: Squared Gaussian-DP parameter of a release.

    Returns:
        Cells: the geometric mean of some draws.
    """
    wanted = TABLES_PER_COLUMN * len(domain)
    largest = records * math.sqrt(mu2 / wanted) / USEFUL
    pairs = [pair for pair in combinations(domain.attributes, 2) if domain.cells(pair) <= largest]
    found = [_drawn_tree(domain, pairs, wanted, seed) for seed in range(DRAWS)]
    return float(np.exp(np.mean(np.log(found))))


def _drawn_tree(domain: Domain, pairs: Sequence[Clique], wanted: int, seed: int) -> float:
    graph = TriangulatedGraph.empty(domain)
    for at in np.random.default_rng(seed).permutation(len(pairs))[: min(wanted, MAX_TRIED)]:
        larger = graph.with_edge(*pairs[at])
        if larger.cells <= TREE_CELLS:
            graph = larger
    return float(graph.retriangulated().cells)
