"""A few rows, all alike, as a distribution: what a method leaves that looks for rows and not for a model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Codes, Domain
from synth_core.models.junction_tree import JunctionTree, junction_tree
from synth_core.models.sampling import code_type
from synth_core.models.stored import StoredModel, domain_header, read_domain


class RowModel(StoredModel):
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

    def marginal(self, clique: Iterable[str]) -> NDArray[np.float64]:
        """Expected counts of the clique's cells.

        Args:
            clique: attributes, in any order.

        Returns:
            Expected counts, one axis for each attribute in the order given.
        """
        names = tuple(clique)
        shape = self.domain.shape(names)
        columns = [self.rows[:, self.domain.position(name)] for name in names]
        index = np.ravel_multi_index(columns, shape) if names else np.zeros(len(self.rows), dtype=np.int64)
        counts = np.bincount(index, minlength=math.prod(shape)).reshape(shape)
        return np.asarray(counts * (self.total / len(self.rows)))

    def sample(self, rows: int, rng: np.random.Generator) -> Codes:
        """Draw rows of codes: each row equally often, but for a remainder that is drawn, in random order.

        Args:
            rows: number of rows.
            rng: source of randomness; equal states give equal rows.

        Returns:
            One row for each record, one column for each attribute in the domain's order.
        """
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
