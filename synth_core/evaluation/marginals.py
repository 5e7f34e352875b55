"""Errors of a synthetic table's marginals, beside two yardsticks: a fresh sample and independent columns."""

from __future__ import annotations

import math

import numpy as np

from synth_core.domain import Domain
from synth_core.evaluation.result import MarginalErrors
from synth_core.metrics import Codes, alpha_way, jensen_shannon, l2, summarize, tabulate_both, tvd

YARDSTICK_MARGINALS = 60
"""Yardsticks vary little from marginal to marginal, so some of the cliques are enough for them."""
_YARDSTICK_SEED = 1


def marginal_errors(real: Codes, synthetic: Codes, *, domain: Domain, alpha: int) -> MarginalErrors | None:
    """Compare the marginals of `alpha` attributes; None where the domain has fewer attributes than that."""
    cliques = alpha_way(domain, alpha)
    if not cliques:
        return None
    fresh, apart = _fresh_sample(real, len(synthetic)), _shuffled_apart(real)
    tables = [tabulate_both(real, synthetic, domain=domain, clique=clique) for clique in cliques]
    values = tuple(tvd(*pair) for pair in tables)
    population = math.comb(len(domain), alpha)
    some = cliques[:: max(1, len(cliques) // YARDSTICK_MARGINALS)]
    return MarginalErrors(
        alpha=alpha,
        population=population,
        cliques=cliques,
        values=values,
        tvd=summarize(values, population=population),
        l2=float(np.mean([l2(*pair) for pair in tables])),
        jensen_shannon=float(np.mean([jensen_shannon(*pair) for pair in tables])),
        floor=float(np.mean([tvd(*tabulate_both(real, fresh, domain=domain, clique=c)) for c in some])),
        independent=float(np.mean([tvd(*tabulate_both(real, apart, domain=domain, clique=c)) for c in some])),
    )


def _fresh_sample(real: Codes, rows: int) -> Codes:
    return real[np.random.default_rng(_YARDSTICK_SEED).integers(len(real), size=rows)]


def _shuffled_apart(real: Codes) -> Codes:
    """The real rows with every column permuted on its own: the same columns, no dependence between them."""
    return np.random.default_rng(_YARDSTICK_SEED).permuted(real, axis=0)
