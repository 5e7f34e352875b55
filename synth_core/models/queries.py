"""Answers of a model to factored queries (Private-PGM, Algorithm 3), and a model given evidence.

A factored query set is the Kronecker product of one matrix for each attribute (see `factors`); attributes it
does not name are summed out. Each matrix joins the model as one more table between an attribute and its answers, and
variable elimination sums the attributes out: the marginal that would support the queries is never formed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from synth_core.errors import SchemaError
from synth_core.models.calibration import Table, split
from synth_core.models.elimination import conditionals, eliminate_variables
from synth_core.models.factors import Matrix, evidence
from synth_core.models.markov_random_field import MarkovRandomField

EXCLUDED = -1e4
"""Potential of a cell that evidence excludes: its exponential is exactly 0."""


def answers(model: MarkovRandomField, factors: Mapping[str, Matrix]) -> NDArray[np.float64]:
    """Expected answers, in counts: one axis for each matrix given, as long as the matrix has rows."""
    sizes = dict(zip(model.domain.attributes, model.domain.sizes, strict=True))
    tables = list(conditionals(model.tree, model.beliefs, keep=set(factors)))
    for attribute, matrix in factors.items():
        if matrix.ndim != 2 or matrix.shape[1] != model.domain.size(attribute):
            raise SchemaError(f"queries of {attribute!r} need one column for each of its codes")
        sizes[_answers_of(attribute)] = len(matrix)
        tables.append(Table((_answers_of(attribute), attribute), matrix))
    keep = tuple(map(_answers_of, factors))
    return np.asarray(eliminate_variables(tables, keep, sizes).values) * model.total


def _answers_of(attribute: str) -> str:
    return f"answers of {attribute}"


def given(model: MarkovRandomField, known: Mapping[str, int | Collection[int]]) -> MarkovRandomField:
    """The model of the records whose attributes have these codes; its total is their expected number."""
    matrices = {a: evidence(model.domain.size(a), codes) for a, codes in known.items()}
    matching = float(answers(model, matrices).sum())
    if not matching > 0:
        raise SchemaError(f"the model has no records with this evidence on {', '.join(matrices)}")
    tables = {t.clique: t.values for t in split(model.domain, model.cliques, np.array(model.potentials))}
    for attribute, matrix in matrices.items():
        excluded = np.where(matrix[0] > 0, 0.0, EXCLUDED)
        tables[(attribute,)] = tables.get((attribute,), 0.0) + excluded
    potentials = np.concatenate([values.ravel() for values in tables.values()])
    return MarkovRandomField(model.tree, tuple(tables), potentials, total=matching)
