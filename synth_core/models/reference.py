"""A distribution that a fit departs from only as far as the answers ask: least relative entropy, not greatest entropy.

A reference is a product of log potentials, like a model, over some or all of the attributes; those it does not name are
uniform in it. With it the fit minimises the loss plus w times the relative entropy (of n records) to the reference. Its
solution is the reference times potentials on the measured cliques, so nothing changes but that the potentials of the
reference take part in every pass (`RelativeOracle`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from synth_core.arrays import Floats, namespace
from synth_core.domain import Clique, Domain
from synth_core.models.calibration import Factor, split_tables
from synth_core.models.inference import Oracle
from synth_core.models.markov_random_field import MarkovRandomField


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """Log potentials of cliques, and the number of records that they were learned from.

    Attributes:
        tables: for each clique its log potentials, with an axis for each attribute in the domain's order.
        rows: number of records behind them.
    """

    tables: tuple[Factor, ...]
    rows: float

    @classmethod
    def of(cls, model: MarkovRandomField, rows: float) -> Reference:
        """What a model says, without its total.

        Args:
            model: the model.
            rows: number of records that it was fitted to.

        Returns:
            The reference.
        """
        return cls(tuple(split_tables(model.domain, model.cliques, np.asarray(model.potentials))), rows)

    @property
    def cliques(self) -> tuple[Clique, ...]:
        """The cliques that have potentials."""
        return tuple(table.clique for table in self.tables)

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes of which it says something."""
        return frozenset(attribute for clique in self.cliques for attribute in clique)

    @property
    def joined(self) -> frozenset[str]:
        """The attributes of which it says how they go together with others."""
        return frozenset(attribute for clique in self.cliques if len(clique) > 1 for attribute in clique)

    def on(self, domain: Domain, cliques: tuple[Clique, ...]) -> Floats:
        """The potentials on these cliques as one vector, 0 where the reference has none."""
        known = dict(self.tables)
        tables = [known.get(clique, np.zeros(domain.shape(clique))) for clique in cliques]
        return np.concatenate([np.ravel(table) for table in tables]) if tables else np.zeros(0)


def with_reference(cliques: tuple[Clique, ...], reference: Reference | None) -> tuple[Clique, ...]:
    """The measured cliques, then those that only the reference has."""
    return tuple(dict.fromkeys((*cliques, *(reference.cliques if reference else ()))))


class RelativeOracle:
    """Marginals of the measured cliques where the potentials are those of the reference and some on them."""

    def __init__(self, oracle: Oracle, base: Any, measured: int) -> None:
        """Wrap an oracle.

        Args:
            oracle: marginals of all cliques, the measured ones first.
            base: potentials of the reference on all of them.
            measured: length of the part of the measured ones.
        """
        self._oracle, self._base, self._measured = oracle, base, measured

    def __call__(self, potentials: Any) -> tuple[Any, float]:
        """One pass."""
        own, beyond = self._base[: self._measured], self._base[self._measured :]
        marginals, log_mass = self._oracle(namespace(potentials).concat([own + potentials, beyond]))
        return marginals[: self._measured], log_mass
