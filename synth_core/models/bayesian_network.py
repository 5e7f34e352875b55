"""A Bayesian network as PrivBayes uses it: tables in the order of drawing, and three ways to make records of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Floats, Index
from synth_core.domain import Clique, Codes, Domain
from synth_core.models.calibration import Factor, split_tables
from synth_core.models.junction_tree import JunctionTree, junction_tree
from synth_core.models.sampling import code_type, count_rows, redraw_rows, sample_rows, sampling_turns
from synth_core.models.sampling_kernels import EMPTY, Turn, draw_records
from synth_core.models.stored import FittedModel, domain_header, read_domain

GENERATIONS = ("dealt", "with replacement", "without replacement")
"""How records may be drawn (see `BayesianNetwork`)."""
TRIES = 10
"""Vain attempts before going back one step further (Section 3.3.1)."""
LEAST = 1e-9
"""Records that a cell inside its group holds at least, so that a finer version can always be drawn."""
REFERENCE_ROWS = 200_000
"""Records drawn once to answer marginals, which a network of many parents cannot compute."""


@dataclass(frozen=True, eq=False)
class BayesianNetwork(FittedModel):
    """Tables of families over `versions`, the attributes of `domain` with their coarser versions, in drawing order.

    Records are dealt (each group of equal parents gets floor or ceiling of its expected counts), drawn with
    replacement, or drawn without replacement. With `step_back`, a row of a table that is empty sends a record back
    instead of being filled in. A network of many parents is no junction tree that could hold the domain's rules: where
    there are rules, records are dealt, or drawn with replacement, around them (see `sampling`).
    """

    FORMAT: ClassVar[str] = "synth-core/bayesian-network/1"

    domain: Domain
    versions: Domain
    tables: tuple[Factor, ...]
    total: float
    generation: str = "dealt"
    step_back: bool = False

    def sample(self, rows: int, rng: np.random.Generator) -> Codes:
        """Draw rows of codes, family after family.

        Args:
            rows: number of rows; `generation` says how they are drawn.
            rng: source of randomness; equal states give equal rows.

        Returns:
            One row for each record, one column for each attribute in the domain's order.
        """
        return redraw_rows(self._drawn, rows, domain=self.domain, rng=rng)

    def _drawn(self, rows: int, rng: np.random.Generator) -> Codes:
        rules = self.domain.impossible
        if rows and not rules and (self.step_back or self.generation == "without replacement"):
            codes = self._one_by_one(rows, rng)
        else:
            independent = self.generation == "with replacement"
            codes = sample_rows(self.versions, self.filled, rows, rng=rng, independent=independent, rules=rules)
        kept = codes[:, [self.versions.position(a) for a in self.domain]]
        return np.asfortranarray(kept.astype(code_type(self.domain), copy=False))

    def _tables(self, cliques: Sequence[Clique]) -> list[Floats]:
        """Counts of a fixed large sample, because a network of many parents has no closed form."""
        return [count_rows(self._reference, self.domain, clique, total=self.total) for clique in cliques]

    @property
    def cliques(self) -> tuple[Clique, ...]:
        """The attributes of each table, whatever their versions."""
        owners = [[self.domain.attributes[self._owner(name)] for name in table.clique] for table in self.tables]
        return tuple(dict.fromkeys(map(self.domain.clique, owners)))

    @cached_property
    def tree(self) -> JunctionTree:
        """The junction tree of the tables: what depends on what, for people; it may be too large to compute with."""
        return junction_tree(self.domain, self.cliques)

    @cached_property
    def filled(self) -> tuple[Factor, ...]:
        """The tables with what their own other rows say where a row of parents is empty, or emptied by rules."""
        spare = LEAST if self.domain.impossible else 0.0
        drawn: set[str] = set()
        found = []
        for table in self.tables:
            groups = self._groups(table.clique, drawn)
            found.append(Factor(table.clique, _filled(table, drawn, groups, spare=spare)))
            drawn.update(table.clique)
        return tuple(found)

    def _groups(self, clique: Clique, drawn: set[str]) -> set[str]:
        """The drawn names of the clique that a fresh one is a finer version of: conditions never left out."""
        owners = {name: self._owner(name) for name in clique}
        fresh = {owners[name] for name in clique if name not in drawn}
        return {name for name in clique if name in drawn and owners[name] in fresh}

    def _owner(self, name: str) -> int:
        """The place in the domain of the attribute that a name is a version of: versions follow their attribute."""
        place = self.versions.position(name)
        return sum(self.versions.position(attribute) <= place for attribute in self.domain) - 1

    def _one_by_one(self, rows: int, rng: np.random.Generator) -> Codes:
        """Histograms of as many records as are wanted, counted down or not, in one compiled loop."""
        countdown = self.generation == "without replacement"
        histograms = [Factor(c, values * (rows / max(values.sum(), EMPTY))) for c, values in self.tables]
        turns = list(sampling_turns(self.versions, histograms))
        left = [turn.table for turn in turns]
        whole = [turn.table for turn in sampling_turns(self.versions, self.filled)]
        columns = np.zeros((len(self.versions), rows), dtype=code_type(self.versions))
        draw_records(
            columns,
            *_places(turns),
            _flat(left),
            _flat(whole),
            countdown,
            TRIES if self.step_back else 0,
            rng.integers(2**64, dtype=np.uint64),
        )
        return columns.T

    @cached_property
    def _reference(self) -> Codes:
        return self.sample(REFERENCE_ROWS, np.random.default_rng(0))

    def _stored(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        header = {
            "sizes": dict(zip(self.domain.attributes, self.domain.sizes, strict=True)),
            "impossible": domain_header(self.domain)["impossible"],
            "versions": dict(zip(self.versions.attributes, self.versions.sizes, strict=True)),
            "cliques": [table.clique for table in self.tables],
            "total": self.total,
            "generation": self.generation,
            "step_back": self.step_back,
        }
        return header, {"tables": _flat([table.values for table in self.tables])}

    @classmethod
    def _restored(cls, header: Mapping[str, Any], stored: Mapping[str, NDArray[Any]]) -> Self:
        sizes, versions = header["sizes"], Domain.of(header["versions"])
        return cls(
            read_domain({**header, "attributes": sizes, "sizes": sizes.values()}),
            versions,
            tuple(split_tables(versions, map(tuple, header["cliques"]), stored["tables"])),
            total=header["total"],
            generation=header["generation"],
            step_back=header["step_back"],
        )


def _places(turns: Sequence[Turn]) -> tuple[Index, Index, Index, Index, Index, Index]:
    """The turns of a network as `draw_records` takes them, `places` to `starts`: given columns, then fresh ones."""
    widest = max(len(turn.given) + len(turn.fresh) for turn in turns)
    places, strides = np.zeros((2, len(turns), widest), dtype=np.int64)
    for s, turn in enumerate(turns):
        both = np.concatenate([turn.given, turn.fresh]), np.concatenate([turn.strides, turn.divisors])
        places[s, : len(both[0])], strides[s, : len(both[1])] = both
    shapes = [(len(turn.given), len(turn.fresh), turn.table.shape[1], turn.table.size) for turn in turns]
    given, fresh, widths, cells = np.array(shapes, dtype=np.int64).T.copy()
    return places, strides, given, fresh, widths, np.concatenate([[0], np.cumsum(cells)[:-1]])


def _flat(tables: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.concatenate([table.ravel() for table in tables])


def _filled(table: Factor, drawn: set[str], groups: set[str], *, spare: float) -> NDArray[np.float64]:
    """The values, with empty rows replaced by the sum over other parents, or evenly where that is empty too.

    Rows that are not empty get `spare` times that sum as well, for when nothing else is left of them.
    """
    fresh = tuple(k for k, name in enumerate(table.clique) if name not in drawn)
    others = tuple(k for k, name in enumerate(table.clique) if name in drawn and name not in groups)
    values = table.values
    elsewhere = values.sum(axis=others, keepdims=True)
    values = np.where(values.sum(axis=fresh, keepdims=True) > EMPTY, values + spare * elsewhere, elsewhere)
    return np.where(values.sum(axis=fresh, keepdims=True) > 0, values, 1.0)
