"""Expected counts of a table by any stored model, of all records or of those that a condition names.

A condition is summed inside the elimination, so that its columns never become axes of a table. Where a model cannot
sum a table out, the rows of a large sample of it are counted instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

import numpy as np

from synth_core.arrays import Floats
from synth_core.domain import Clique, Codes
from synth_core.errors import FeasibilityError
from synth_core.models.linear import Matrix, contract_axes, evidence, identity
from synth_core.models.markov_random_field import MarkovRandomField, answer_queries
from synth_core.models.mixture import Component, Mixture, Model
from synth_core.models.refined import Refined
from synth_core.models.sampling import count_rows

Where: TypeAlias = Mapping[str, Collection[int]]
"""The codes that records may have, by column; a record has one of them in each of these columns."""

SAMPLE_ROWS = 1_000_000
"""Rows drawn of a model that cannot sum a table out."""
SAMPLE_SEED = 20_260_101
"""Seed of that sample: public, so that the same question has the same answer everywhere."""
DIRECT_CELLS = 2**20
"""Cells up to which a table inside one clique is formed whole, condition columns included."""


def expected_counts(model: Model, attributes: Clique, where: Where) -> Floats:
    """What a model expects.

    Args:
        model: any stored model.
        attributes: columns of the table, in the order of its axes.
        where: condition on other columns.

    Returns:
        Expected counts of the records that meet the condition.

    Raises:
        FeasibilityError: the model cannot sum the table out.
    """
    if isinstance(model, Mixture):
        return _of_mixture(model, attributes, where)
    return _answers(model, _matrices(model, attributes, where)).reshape(model.domain.shape(attributes))


def sampled_counts(model: Model, attributes: Clique, where: Where) -> Floats:
    """The same, counted in a large sample of the model and scaled to its total.

    Args:
        model: any stored model.
        attributes: columns of the table.
        where: condition on other columns.

    Returns:
        Counts of the sample's rows, in records.
    """
    rows, domain = _sample(model), model.domain
    kept = np.ones(len(rows), dtype=np.bool_)
    for name, codes in where.items():
        kept &= np.isin(rows[:, domain.position(name)], list(codes))
    return count_rows(rows, domain, attributes, total=model.total, kept=kept)


def _sample(model: Model) -> Codes:
    return model.sample(SAMPLE_ROWS, np.random.default_rng(SAMPLE_SEED))


def _of_mixture(model: Mixture, attributes: Clique, where: Where) -> Floats:
    table = np.zeros(model.domain.shape(attributes))
    for part in model.components:
        if any(part.constants[name] not in codes for name, codes in where.items() if name in part.constants):
            continue
        inside = tuple(name for name in attributes if name not in part.constants)
        own = {name: _own_codes(part, name, codes) for name, codes in where.items() if name not in part.constants}
        if not all(own.values()):
            continue
        counts = expected_counts(part.model, inside, own) * (part.rows / part.model.total)
        places = [table_codes(model, part, name) for name in attributes]
        table[np.ix_(*places)] += counts.reshape([len(place) for place in places])
    return table


def table_codes(model: Mixture, part: Component, name: str) -> list[int]:
    """The table's codes that a part's codes of a column stand for."""
    if name in part.constants:
        return [part.constants[name]]
    return list(part.codes.get(name, range(model.domain.size(name))))


def _own_codes(part: Component, name: str, codes: Collection[int]) -> list[int]:
    """Those of a part's codes of a column that stand for some of the table's codes."""
    known = part.codes.get(name)
    return sorted(codes) if known is None else [own for own, code in enumerate(known) if code in codes]


def _matrices(model: Model, attributes: Clique, where: Where) -> dict[str, Matrix]:
    """One query matrix for each column that is named: each of its codes, or those of the condition summed."""
    matrices = {name: identity(model.domain.size(name)) for name in attributes}
    for name, codes in where.items():
        row = evidence(model.domain.size(name), sorted(codes))
        matrices[name] = matrices[name] * row if name in matrices else row
    return matrices


def _answers(model: Model, matrices: Mapping[str, Matrix]) -> Floats:
    if isinstance(model, Refined):
        inside = {name: matrix @ _of_groups(model, name) for name, matrix in matrices.items()}
        return _answers(model.field, inside)
    names = tuple(matrices)
    whole = model.domain.cells(names)
    if isinstance(model, MarkovRandomField):
        hosted = model.tree.host(model.domain.clique(names)) is not None
        if not (hosted and whole <= DIRECT_CELLS):
            return answer_queries(model, matrices)
    elif whole > DIRECT_CELLS:
        raise FeasibilityError(f"a table over {', '.join(names)} has {whole:,} cells; ask for fewer columns at once")
    return np.asarray(contract_axes(model.marginal(names), list(matrices.values())))


def _of_groups(model: Refined, name: str) -> Matrix:
    """How many records with each code a record of each group stands for."""
    place = model.domain.position(name)
    group, share = model.groups[place], model.shares[place]
    matrix = np.zeros((len(group), int(group.max()) + 1))
    matrix[np.arange(len(group)), group] = share
    return matrix
