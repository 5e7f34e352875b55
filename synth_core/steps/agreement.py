"""What the parts of a stratified release must agree on: the rows of each stratum, and the tables of the level above.

Everything here is post-processing of noisy answers. Before the parts are fitted their one-way tables are made to agree;
afterwards the models are, because a fit follows its tables only as closely as their noise deserves, and what every
stratum leaves out in the same direction would add up above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique
from synth_core.measurement import Measurement
from synth_core.release.division import Division, Part
from synth_core.synthesizers.base import Model, Scores
from synth_core.synthesizers.consistency import nearest_non_negative
from synth_core.synthesizers.levels import agreed_tables, with_margins

Table = NDArray[np.float64]


def agreed_scores(division: Division, known: Scores, scores: Sequence[Scores]) -> list[Scores]:
    """The parts' scores, their one-way tables changed to agree with the rows of strata and the tables above."""
    by = division.layout.by
    tables: list[dict[Clique, Measurement]] = [
        {m.clique: m for m in one.measurements if len(m.clique) == 1} for one in scores
    ]
    for part, own in zip(division.parts, tables, strict=True):
        if (by,) in own:
            own[by,] = _with_rows(own[by,], division, part, known.measurements[0])
    for upper in known.measurements[1:]:
        clique = upper.clique[1:]
        for code, parts in _parts_above(division):
            if all(clique in tables[part.number] for part in parts):
                found = agreed_tables(
                    [tables[part.number][clique] for part in parts],
                    upper.noisy[code],
                    sigma=upper.sigma,
                    rows=[division.rows_of(part) for part in parts],
                )
                for part, table in zip(parts, found, strict=True):
                    tables[part.number][clique] = table
    return [
        replace(one, measurements=tuple(own.get(m.clique, m) for m in one.measurements))
        for one, own in zip(scores, tables, strict=True)
    ]


def agreed_marginals(
    division: Division, known: Scores, agreed: Sequence[Scores], models: Sequence[Model]
) -> list[dict[str, Table]]:
    """For each part the one-way marginals that its model must have, as near as possible to those it has.

    A pooled part has its strata's rows. Parts of one upper code add up to the upper table they agreed on, and each
    keeps its rows.
    """
    targets: list[dict[str, Table]] = [
        {division.layout.by: np.array([division.rows[code] for code in part.codes])} if part.pooled else {}
        for part in division.parts
    ]
    for upper in known.measurements[1:]:
        clique = upper.clique[1:]
        for code, parts in _parts_above(division):
            rows = np.array([division.rows_of(part) for part in parts])
            tables = [
                m.noisy for part in parts for m in agreed[part.number].measurements if m.clique == clique
            ]
            above = np.sum(tables, axis=0) if len(tables) == len(parts) else upper.noisy[code]
            above = nearest_non_negative(above + (rows.sum() - above.sum()) / above.size)
            shares = [models[part.number].marginal(clique) / models[part.number].total for part in parts]
            found = with_margins(np.stack(shares) * rows[:, None], rows, above)
            for part, table in zip(parts, found, strict=True):
                targets[part.number][clique[0]] = table
    return targets


def _parts_above(division: Division) -> list[tuple[int, list[Part]]]:
    """The codes of the level above that hold parts, with these."""
    codes = sorted({part.upper for part in division.parts if part.upper is not None})
    return [(code, [part for part in division.parts if part.upper == code]) for code in codes]


def _with_rows(table: Measurement, division: Division, part: Part, counts: Measurement) -> Measurement:
    """A pooled part's table of its strata, averaged by inverse variance with their numbers of rows."""
    rows = np.array([division.rows[code] for code in part.codes])
    weight = table.sigma**2 / (table.sigma**2 + counts.sigma**2)
    mean = weight * rows + (1 - weight) * table.noisy
    return Measurement(table.clique, mean, table.sigma * counts.sigma / np.hypot(table.sigma, counts.sigma))
