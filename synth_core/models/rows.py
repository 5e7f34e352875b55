"""A few rows, all alike, as a distribution: what a method leaves that looks for rows and not for a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Floats
from synth_core.domain import Clique, Codes, Domain
from synth_core.models.junction_tree import JunctionTree, junction_tree
from synth_core.models.sampling import code_type, count_rows
from synth_core.models.stored import FittedModel, domain_header, read_domain


class RowModel(FittedModel):
    """Records that are copies of these rows, each as often as any other.

    Attributes:
        domain: the attributes the rows are about.
        cliques: the marginals that were asked about when the rows were found.
        rows: codes, one row for each record and one column for each attribute.
        total: estimated number of records.
    """

    FORMAT: ClassVar[str] = "synth-core/rows/1"

    def __init__(self, domain: Domain, cliques: Sequence[Clique], rows: NDArray[np.int64], *, total: float) -> None:
        if rows.ndim != 2 or not len(rows) or rows.shape[1] != len(domain):
            raise ValueError("at least one row with a code for each attribute is needed")
        self.domain = domain
        self.cliques = tuple(cliques)
        self.rows = rows
        self.total = float(total)

    def _tables(self, cliques: Sequence[Clique]) -> list[Floats]:
        return [count_rows(self.rows, self.domain, clique, total=self.total) for clique in cliques]

    def sample(self, rows: int, rng: np.random.Generator) -> Codes:
        """Draw rows of codes: each row equally often, but for a remainder that is drawn, in random order."""
        order = np.tile(rng.permutation(len(self.rows)), -(-rows // len(self.rows)))[:rows]
        return np.asfortranarray(self.rows[rng.permutation(order)].astype(code_type(self.domain)))

    @cached_property
    def tree(self) -> JunctionTree:
        """The junction tree of the cliques, for people; it may be too large to compute with."""
        return junction_tree(self.domain, self.cliques)

    def _stored(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return domain_header(self.domain) | {"cliques": self.cliques, "total": self.total}, {"rows": self.rows}

    @classmethod
    def _restored(cls, header: Mapping[str, Any], stored: Mapping[str, NDArray[Any]]) -> Self:
        rows = stored["rows"].astype(np.int64)
        domain = read_domain(header)
        if rows.size and ((rows < 0).any() or (rows >= np.array(domain.sizes)).any()):
            raise ValueError("codes")
        return cls(domain, tuple(map(tuple, header["cliques"])), rows, total=header["total"])
