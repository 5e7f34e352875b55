"""PrivBayes: a Bayesian network from noisy scores of pairs, one noisy table for each of its families, and records.

Zhang et al. (2017) in the version of the NIST challenge of 2018 (Bao, Xiao, Zhao, Zhang & Ding, Journal of Privacy and
Confidentiality, 2021), whose sections the comments cite. The preset `paper` is that version. `default` asks for one-way
marginals first, which makes the scores four times less noisy, and lets a graphical model estimate the
distribution from the same tables (PB-PGM) wherever its junction tree stays small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from synth_core.domain import Clique, Domain
from synth_core.errors import SpecError
from synth_core.exclusions import forbidden_cells
from synth_core.measurement import Measurement, total_by_inverse_variance
from synth_core.privacy.budget import BudgetPlan, exact_share, gaussian_for
from synth_core.privacy.curator import Curator
from synth_core.privacy.queries import Coarsened, Dependence, Misfit, Query, Total
from synth_core.privacy.strategies import Strategy
from synth_core.synthesizers.base import Model, Scores, Structure, Tools, with_options
from synth_core.synthesizers.consistency import (
    as_published,
    nearest_non_negative,
    non_negative,
    reconciled,
)
from synth_core.synthesizers.hierarchies import NO_HIERARCHIES, Codes, Hierarchies, by_size, with_declared
from synth_core.synthesizers.pooling import pooled
from synth_core.synthesizers.privbayes_model import GENERATIONS, BayesianNetwork, within_groups
from synth_core.synthesizers.privbayes_network import Growth, shared_by_versions, version_pairs
from synth_core.synthesizers.structure import all_pairs, pair_matrix

LIMIT_COUNTED = 20_000_000
"""Cells of the finest versions from which a table of coarser ones may be counted."""


@dataclass(frozen=True, slots=True)
class PrivBayes:
    """Scores of pairs, a network, one table for each family; options are named as in the paper where it names them.

    `beta` is the share of all that comes before the tables, `one_way` that of the one-way marginals in it (0: none; the
    noisy n and the scores (2.1) instead). Attributes of more than g^2 codes get coarser versions in groups of g (0:
    none), or one by the schema's hierarchy, or the one that `levels` declares by its groups' first codes. Scored are
    pairs of the coarsest versions, or with `every_level` all pairs of the enlarged set, as printed. A table has at most
    tau = n / (usefulness * sigma) cells; `sized` shares the budget in proportion to cells^(2/3), which adds up to the
    least absolute noise.

    Without coarser versions, `pgm` estimates by a graphical model of at most `limit_cells`, on tables of
    `usefulness_pgm`, down to `last_fit` of the loss that noise alone leaves at the truth. Otherwise
    tables are made consistent, or not, and records are drawn by `generation`.
    """

    beta: float = 0.2
    one_way: float = 0.15
    usefulness: float = 4.0
    g: int = 8
    levels: tuple[tuple[str, tuple[int, ...]], ...] = ()
    every_level: bool = False
    sized: bool = True
    pgm: bool = True
    usefulness_pgm: float = 1.2
    limit_cells: int = 4_000_000
    last_fit: float = 0.4
    consistency: bool = True
    generation: str = "dealt"

    def __post_init__(self) -> None:
        if self.generation not in GENERATIONS:
            raise SpecError(f"options: generation must be one of: {', '.join(GENERATIONS)}")
        if self.g == 1 or self.g < 0:
            raise SpecError("options: g must be at least 2, or 0 for no coarser versions")
        if not 0 <= self.one_way < self.beta < 1 or min(self.usefulness, self.usefulness_pgm) <= 0:
            raise SpecError("options: one_way < beta < 1 and a positive usefulness are needed")

    def plan(self, domain: Domain, total_mu2: Fraction) -> BudgetPlan:
        """The shares of Section 2.4, n and every pair alike; or one-way marginals, scores and tables."""
        beta, one_way = exact_share(self.beta), exact_share(self.one_way)
        pairs = len(self._pairs(domain))
        first = ("one-way", one_way if pairs else beta) if one_way else ("n", beta / (pairs + 1))
        return BudgetPlan(total_mu2, (first, ("scores", beta - first[1]), ("tables", 1 - beta)))

    def score(self, curator: Curator, plan: BudgetPlan) -> Scores:
        """Section 2.1.1: the scores (2.1) of all pairs; or how far pairs are from the measured one-way marginals.

        Columns of many codes are scored in their coarsest versions, in which tables hold them as parents.
        """
        domain, pairs = curator.domain, self._pairs(curator.domain)
        hierarchies = self._hierarchies(domain)
        groups = {name: level.groups for name, level in hierarchies.levels.items()}
        purpose = f"scores in groups of {self.g}" if groups else "scores"
        if not self.one_way:
            (total,) = curator.score([Total()], plan.mu2("n"), purpose="n")
            questions = [
                _coarsened(Dependence(_attributes(pair, hierarchies)), pair, groups) for pair in pairs
            ]
            scores = curator.score(questions, plan.mu2("scores"), purpose=purpose)
            return Scores(max(1.0, total), self._named(pairs, scores, hierarchies))
        singles = [(attribute,) for attribute in domain]
        measured = curator.measure(singles, plan.mu2("one-way"), purpose="one-way marginals")
        total = max(1.0, total_by_inverse_variance(measured))
        guesses = _guesses(measured, total=total)
        for name, own in groups.items():
            fine = guesses[hierarchies.attribute(name)]
            guesses[name] = np.bincount(own, weights=fine).astype(np.float64)
        queries = [
            Misfit(_attributes((a, b), hierarchies), np.multiply.outer(guesses[a], guesses[b]) / total)
            for a, b in pairs
        ]
        questions = [_coarsened(query, pair, groups) for query, pair in zip(queries, pairs, strict=True)]
        misfits = curator.score(questions, plan.mu2("scores"), purpose=purpose)
        excess = [(m - sampling_misfit(q.reference)) / 2 for m, q in zip(misfits, queries, strict=True)]
        return Scores(total, self._named(pairs, excess, hierarchies), tuple(measured))

    def select(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> Structure:
        """Section 2.1.2, on the noisy scores alone."""
        domain = curator.domain
        limit, usefulness = math.inf, self.usefulness
        if self._graphical(domain):
            limit, usefulness = float(self.limit_cells), self.usefulness_pgm
        tau = min(limit, scores.total / (usefulness * self._sigma(domain, plan)))
        hierarchies = self._hierarchies(domain)
        if self.every_level:
            affinity = pair_matrix(hierarchies.domain(domain), scores.pairs, scale=scores.total)
        else:
            alike = pair_matrix(domain, scores.pairs, scale=scores.total)
            affinity = shared_by_versions(domain, hierarchies, alike)
        growth = Growth(domain, hierarchies, affinity, tau, LIMIT_COUNTED, limit, any_parent=self.every_level)
        return Structure(scores, tuple(growth.families()), largest_table=int(tau))

    def fit(self, curator: Curator, plan: BudgetPlan, structure: Structure, tools: Tools) -> Model:
        """Algorithm 4, then a graphical model, or consistency (Section 3.2) and a network to draw from."""
        domain, scores, families = curator.domain, structure.scores, structure.cliques
        hierarchies = self._hierarchies(domain)
        versions = hierarchies.domain(domain)
        tables = self._measured(curator, plan, [versions.clique(family) for family in families], hierarchies)
        tools.progress(f"{len(tables)} tables measured")
        if self._graphical(domain):
            known = [*scores.measurements, *tables]
            if self.one_way:
                known = pooled(known, order=2)
            return tools.estimate(domain, known, until=self.last_fit, limit_cells=2 * self.limit_cells)
        ready = self._ready(plan, scores, tables, hierarchies)
        pairs = [(family, _possible(domain, m)) for family, m in zip(families, ready, strict=True)]
        return BayesianNetwork(
            domain,
            versions,
            tuple(within_groups(pairs, versions, hierarchies)),
            total=scores.total,
            generation=self.generation,
            step_back=not self.consistency,
        )

    def _ready(
        self, plan: BudgetPlan, scores: Scores, tables: Sequence[Measurement], hierarchies: Hierarchies
    ) -> list[Measurement]:
        """The tables to draw from, without negative counts; n and one-way marginals help them to agree."""
        if not self.consistency:
            return [Measurement(m.clique, non_negative(m.noisy), m.sigma) for m in tables]
        if self.one_way:
            return reconciled([*tables, *scores.measurements], hierarchies=hierarchies)[: len(tables)]
        sigma = math.sqrt(gaussian_for(plan.mu2("n"), sensitivity=Fraction(1), count=1).scale)
        n = Measurement((), np.array(scores.total), sigma)
        return as_published([*tables, n], hierarchies=hierarchies)[: len(tables)]

    def preview(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        """Noise of each phase, in records."""
        versions = self._hierarchies(domain).domain(domain)
        lines = [
            ("tables measured", f"at most {len(versions)}"),
            ("noise on each count of a table", f"sigma {self._sigma(domain, plan):.1f} records or less"),
        ]
        if pairs := len(all_pairs(domain)):
            sensitivity = Fraction(1, 2) if self.one_way else Fraction(2)
            noise = gaussian_for(plan.mu2("scores"), sensitivity=sensitivity, count=pairs)
            lines.append(("noise on each score", f"sigma {math.sqrt(noise.scale):.1f} records"))
        if len(versions) > len(domain):
            lines.append(("coarser versions of attributes", str(len(versions) - len(domain))))
        return lines

    def _hierarchies(self, domain: Domain) -> Hierarchies:
        return with_declared(by_size(domain, group=self.g) if self.g else NO_HIERARCHIES, domain, self.levels)

    def _pairs(self, domain: Domain) -> list[Clique]:
        """The pairs of versions that are scored."""
        hierarchies = self._hierarchies(domain)
        if self.every_level:
            return version_pairs(domain, hierarchies)
        last = {attribute: hierarchies.versions(attribute)[-1] for attribute in domain}
        return [(last[a], last[b]) for a, b in all_pairs(domain)]

    def _named(
        self, pairs: Sequence[Clique], scores: Sequence[float], hierarchies: Hierarchies
    ) -> tuple[tuple[str, str, float], ...]:
        """The scores by versions, or by attributes where all versions share them."""
        named = pairs if self.every_level else [_attributes(pair, hierarchies) for pair in pairs]
        return tuple((a, b, score) for (a, b), score in zip(named, scores, strict=True))

    def _graphical(self, domain: Domain) -> bool:
        return self.pgm and not self._hierarchies(domain).levels

    def _sigma(self, domain: Domain, plan: BudgetPlan) -> float:
        """Noise of a table if every version gets one: the pessimistic case of a head of one attribute."""
        count = len(self._hierarchies(domain).domain(domain))
        return math.sqrt(gaussian_for(plan.mu2("tables"), sensitivity=Fraction(1), count=count).scale)

    def _measured(
        self, curator: Curator, plan: BudgetPlan, cliques: Sequence[Clique], hierarchies: Hierarchies
    ) -> list[Measurement]:
        """The noisy tables; those of coarser versions one by one, because each is counted finely first."""
        versions = hierarchies.domain(curator.domain)
        weights = [float(versions.cells(c)) ** (2 / 3) if self.sized else 1.0 for c in cliques]
        plain = [
            k for k, clique in enumerate(cliques) if not any(name in hierarchies.levels for name in clique)
        ]
        found: dict[int, Measurement] = {}
        shares = _shares(weights)
        if plain:
            asked, own = [cliques[k] for k in plain], [weights[k] for k in plain]
            mu2 = plan.mu2("tables") * sum(shares[k] for k in plain)
            found |= zip(plain, curator.measure(asked, mu2, purpose="tables", weights=own), strict=True)
        for k in sorted(set(range(len(cliques))) - found.keys()):
            strategy = _strategy(cliques[k], curator.domain, hierarchies)
            mu2 = plan.mu2("tables") * shares[k]
            (answers,) = curator.answer([strategy], mu2, purpose=f"table {k}")
            found[k] = Measurement(cliques[k], answers.noisy, answers.sigma)
        return [found[k] for k in range(len(cliques))]


def sampling_misfit(expected: NDArray[np.float64]) -> float:
    """The mean L1 distance of Poisson counts from their means: for a mean e, 2 exp(-e) e^(k+1) / k! with k = floor(e).

    So far from independence are samples of independent attributes; what exceeds it is dependence.
    """
    e = np.maximum(expected, 1e-12)
    k = np.floor(e)
    return float(2 * np.exp((k + 1) * np.log(e) - e - gammaln(k + 1)).sum())


def _coarsened(query: Dependence | Misfit, versions: Clique, groups: Mapping[str, Codes]) -> Query:
    own = tuple(groups.get(name) for name in versions)
    return query if all(g is None for g in own) else Coarsened(query, own)


def _attributes(versions: Clique, hierarchies: Hierarchies) -> Clique:
    return tuple(map(hierarchies.attribute, versions))


def _guesses(measured: Sequence[Measurement], *, total: float) -> dict[str, NDArray[np.float64]]:
    """One-way counts without negative ones, all of the same total."""
    return {
        m.clique[0]: nearest_non_negative(m.noisy + (total - m.noisy.sum()) / m.noisy.size) for m in measured
    }


def _possible(domain: Domain, measurement: Measurement) -> NDArray[np.float64]:
    """The table with nothing in the cells that rules about its own attributes exclude."""
    if not all(name in domain for name in measurement.clique):
        return measurement.noisy
    return np.where(forbidden_cells(domain, measurement.clique), 0.0, measurement.noisy)


def _shares(weights: Sequence[float]) -> list[Fraction]:
    """Exact shares of a budget in proportion to the weights; they sum to 1."""
    grid = [max(1, round(w / math.fsum(weights) * 2**30)) for w in weights]
    return [Fraction(part, sum(grid)) for part in grid]


def _strategy(clique: Clique, domain: Domain, hierarchies: Hierarchies) -> Strategy:
    """The table of some versions as sums over the table of their attributes."""
    matrices = []
    for name in clique:
        size = domain.size(hierarchies.attribute(name))
        groups = hierarchies.levels[name].groups if name in hierarchies.levels else np.arange(size)
        matrices.append((np.arange(groups.max() + 1)[:, None] == groups).astype(np.int64))
    return Strategy(tuple(hierarchies.attribute(name) for name in clique), tuple(matrices))


PAPER = PrivBayes(
    one_way=0.0,
    every_level=True,
    sized=False,
    pgm=False,
    usefulness_pgm=4.0,
    last_fit=0.7,
    generation="without replacement",
)
PRESETS = {"default": PrivBayes(), "paper": PAPER, "pgm": replace(PAPER, pgm=True)}


def build(preset: str, options: dict[str, Any]) -> PrivBayes:
    """PrivBayes by preset; `levels` is read from the spec's plain values, an attribute with its groups' first codes."""
    if "levels" in options:
        try:
            levels = tuple((name, tuple(map(int, starts))) for name, starts in options["levels"].items())
        except (AttributeError, TypeError, ValueError):
            raise SpecError("options: levels must map a column to the first codes of its groups") from None
        options = options | {"levels": levels}
    built: PrivBayes = with_options(PRESETS[preset], options, method=f"privbayes/{preset}")
    return built
