"""What a comparison of a real and a synthetic table found: plain numbers that can be stored and drawn.

All of them are computed from confidential rows without noise: an evaluation stays in the confidential zone.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from synth_core.domain import Clique
from synth_core.errors import SourceError
from synth_core.evaluation.distances import Cell, Summary

ROW_MEASURES = "SVM errors, propensity and closeness"
"""What is computed from single rows rather than from counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginalErrors:
    """Errors over the marginals of `alpha` attributes; `values` holds the TVD of each clique.

    Two yardsticks are measured on the same cliques: `floor` is the mean TVD of a bootstrap of the real rows,
    as many as the synthetic table has (what sampling alone costs), `independent` that of the real columns
    shuffled apart (every tie between columns lost). Of the values, `estimated` come from a random part of the cells.
    """

    alpha: int
    population: int
    cliques: tuple[Clique, ...]
    values: tuple[float, ...]
    tvd: Summary
    l2: float
    jensen_shannon: float
    floor: float
    independent: float
    estimated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetError:
    """Share of held-out real rows whose `target` was predicted wrongly from all other columns.

    `synthetic` and `real` name the rows a linear SVM was trained on; `majority` always guesses the commonest.
    """

    target: str
    synthetic: float
    real: float
    majority: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Subgroup:
    """The rows with one value of one column: their share of each table, and the mean TVD of all other columns.

    `floor` is the error that sampling as many rows would give by itself.
    """

    attribute: str
    code: int
    real: float
    synthetic: float
    error: float
    floor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Closeness:
    """How near synthetic rows are to real ones, beside how near fresh real rows are (`by_nature`).

    `same` is the share of probed rows that equal a real row in every column, `distance` the mean number of columns
    in which a probed row differs from the nearest real one.
    """

    same: float
    same_by_nature: float
    distance: float
    distance_by_nature: float
    suspicious: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Every true error of a synthetic table; in `worst_cells`, left is real and right is synthetic.

    `scores` holds the summary scores by name (workload error, NIST scores, propensity); `correlations` the
    differences of Pearson correlations of codes, laid out like `pairs`. `judged_rows` is how many rows of the real and
    the synthetic table the measures over single rows (`ROW_MEASURES`) saw: all of them, or a random sample.
    """

    real_rows: int
    synthetic_rows: int
    judged_rows: tuple[int, int]
    one_way: dict[str, float]
    marginals: tuple[MarginalErrors, ...]
    pairs: tuple[tuple[float, ...], ...]
    worst_cells: tuple[Cell, ...]
    targets: tuple[TargetError, ...]
    violations: dict[str, int]
    subgroups: tuple[Subgroup, ...]
    correlations: tuple[tuple[float, ...], ...]
    scores: dict[str, float]
    closeness: Closeness

    @property
    def attributes(self) -> tuple[str, ...]:
        """The compared columns, in the order of the rows and columns of `pairs`."""
        return tuple(self.one_way)

    def marginal(self, alpha: int) -> MarginalErrors | None:
        """The errors over marginals of `alpha` attributes, if the tables have so many."""
        return next((errors for errors in self.marginals if errors.alpha == alpha), None)

    @property
    def sampling(self) -> str:
        """In words, what was not computed from all rows; empty where everything was."""
        notes = []
        if self.judged_rows != (self.real_rows, self.synthetic_rows):
            real, synthetic = self.judged_rows
            notes.append(
                f"{ROW_MEASURES} computed on a random sample of {real:,} real and {synthetic:,} synthetic rows"
            )
        for errors in self.marginals:
            if errors.estimated:
                share = f"{errors.estimated} of {len(errors.values)} {errors.alpha}-way marginals"
                notes.append(f"{share} on a random part of their cells, counted over all rows")
        return "; ".join(notes)

    def to_json(self) -> str:
        """The evaluation as one JSON text; equal evaluations give equal texts."""
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Evaluation:
        """Read what `to_json` wrote."""
        try:
            raw = json.loads(text)
            return cls(
                **raw
                | {
                    "judged_rows": tuple(raw["judged_rows"]),
                    "marginals": tuple(_marginal_errors(item) for item in raw["marginals"]),
                    "pairs": tuple(tuple(row) for row in raw["pairs"]),
                    "worst_cells": tuple(_cell(item) for item in raw["worst_cells"]),
                    "targets": tuple(TargetError(**item) for item in raw["targets"]),
                    "subgroups": tuple(Subgroup(**item) for item in raw["subgroups"]),
                    "correlations": tuple(tuple(row) for row in raw["correlations"]),
                    "closeness": Closeness(**raw["closeness"]),
                }
            )
        except (KeyError, TypeError, ValueError):
            raise SourceError("the stored evaluation cannot be read; run the evaluate step again") from None


def _marginal_errors(raw: dict[str, Any]) -> MarginalErrors:
    cliques = tuple(tuple(clique) for clique in raw["cliques"])
    return MarginalErrors(
        **raw | {"cliques": cliques, "values": tuple(raw["values"]), "tvd": Summary(**raw["tvd"])}
    )


def _cell(raw: dict[str, Any]) -> Cell:
    return Cell(**raw | {"clique": tuple(raw["clique"]), "codes": tuple(raw["codes"])})
