"""PrivBayes: a Bayesian network from noisy scores of pairs, one noisy table for each of its families, and records.

Zhang et al. (2017) in the version of the NIST challenge of 2018 (Bao, Xiao, Zhao, Zhang & Ding, Journal of Privacy and
Confidentiality, 2021), whose sections the comments cite. The preset `paper` is that version. `default` asks for one-way
marginals first, which makes the scores half as noisy at a quarter of the cost, and lets a graphical model estimate the
distribution from the same tables (PB-PGM). The network grows from noisy scores alone (`network.Growth`): public
numbers in, families of names out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from synth_core.arrays import Index
from synth_core.domain import Clique, Domain
from synth_core.errors import SpecError
from synth_core.measurement import Measurement, without_impossible
from synth_core.models.bayesian_network import GENERATIONS, LEAST, BayesianNetwork
from synth_core.models.calibration import Factor
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.mixture import Model
from synth_core.privacy.budget import BudgetPlan, exact_share
from synth_core.privacy.curator import Curator
from synth_core.privacy.queries import Coarsened, Dependence, Misfit, Query, Total
from synth_core.privacy.strategies import Strategy, group_matrix
from synth_core.synthesizers.base import (
    POSITIVE,
    Scores,
    Structure,
    Tools,
    noise_by_table,
    noise_sigma,
    noise_text,
    option,
    pool_tables,
)
from synth_core.synthesizers.consistency import as_published, nearest_non_negative, non_negative, reconcile
from synth_core.synthesizers.hierarchies import NO_HIERARCHIES, Hierarchies, by_size, with_declared
from synth_core.synthesizers.independent import one_way_scores
from synth_core.synthesizers.network import Growth, shared_by_versions
from synth_core.synthesizers.structure import BY_SIZE, pair_matrix

PLENTY = 2000.0
"""Records for each standard deviation of a table's noise from which on `usefulness` grows with their number: a table
that is always filled up to n / (usefulness * sigma) cells holds the same noise at any budget."""
LIMIT_COUNTED = 20_000_000
"""Cells of the finest versions from which a table of coarser ones may be counted."""


NOT_AROUND_RULES = "privbayes: records cannot be drawn around the rules of the schema"
"""Beginning of the refusal of options that rules do not allow."""


def parse_levels(values: Any) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Read the plain values of a spec: an attribute with its groups' first codes."""
    try:
        return tuple((name, tuple(map(int, starts))) for name, starts in values.items())
    except (AttributeError, TypeError, ValueError):
        raise SpecError("options: levels must map a column to the first codes of its groups") from None


@dataclass(frozen=True, slots=True)
class PrivBayes:
    """Scores of pairs, a network, one table for each family; options are named as in the paper where it names them.

    Attributes of more than g^2 codes get coarser versions by their number of codes, by the schema's hierarchy, or as
    `levels` declares. With `pgm` a graphical model estimates the coarsest versions, and finer ones are drawn inside
    their groups; otherwise tables are made consistent, or not, and records are drawn by `generation`.
    """

    beta: float = option(0.2, "Share of the budget before the tables; more selects more surely with noisier tables.")
    one_way: float = option(
        0.15, "Part of `beta` for one-way marginals; more gives less noise, 0 asks for n instead.", limits=(0.0, 1.0)
    )
    usefulness: float = option(4.0)
    growth: float = option(
        0.75, "Power by which `usefulness` grows once there are 2,000 records to a sigma; 0 leaves it as in the paper."
    )
    g: int = option(8, "Neighbouring codes joined in columns of more than g² codes; larger is coarser, 0 joins none.")
    levels: tuple[tuple[str, tuple[int, ...]], ...] = option((), parse=parse_levels)
    every_level: bool = option(False, "Whether all pairs of coarser versions are scored, as printed, for more budget.")
    sized: bool = option(True)
    pgm: bool = option(True, "Whether a graphical model estimates the columns, large ones in their coarsest versions.")
    usefulness_pgm: float = option(1.2, "The same as `usefulness` where a graphical model estimates.", limits=POSITIVE)
    limit_cells: int = option(4_000_000)
    last_fit: float = option(0.4)
    consistency: bool = option(True, "Whether tables are made to agree; otherwise a record steps back from empty rows.")
    generation: str = option(
        "dealt",
        "How records are drawn: `dealt` (expected counts, rounded), `with replacement`, or `without replacement`.",
    )

    def __post_init__(self) -> None:
        if self.generation not in GENERATIONS:
            raise SpecError(f"options: generation must be one of: {', '.join(GENERATIONS)}")
        if self.g == 1 or self.g < 0:
            raise SpecError("options: g must be at least 2, or 0 for no coarser versions")
        if not 0 <= self.one_way < self.beta < 1 or min(self.usefulness, self.usefulness_pgm) <= 0 or self.growth < 0:
            raise SpecError("options: one_way < beta < 1, a positive usefulness and no negative growth are needed")

    def plan(self, domain: Domain, total_mu2: Fraction) -> BudgetPlan:
        """The shares of Section 2.4, n and every pair alike; or one-way marginals, scores and tables.

        Where there are rules, records that are counted down or step back would break them, and are refused.
        """
        if domain.impossible and (not self.pgm or self._hierarchies(domain).levels):
            if self.generation == "without replacement":
                raise SpecError(f"{NOT_AROUND_RULES} without replacement; set options: {{generation: dealt}}")
            if not self.consistency:
                raise SpecError(f"{NOT_AROUND_RULES} from tables that disagree; set options: {{consistency: true}}")
        beta, one_way = exact_share(self.beta), exact_share(self.one_way)
        pairs = len(self._pairs(domain))
        first = ("one-way", one_way if pairs else beta) if one_way else ("n", beta / (pairs + 1))
        return BudgetPlan(total_mu2, (first, ("scores", beta - first[1]), ("tables", 1 - beta)))

    def can_protect(self, domain: Domain) -> bool:
        """A graphical model takes what was measured before; a network has no place for it."""
        return self.pgm and not self._hierarchies(domain).levels

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
            questions = [_coarsened(Dependence(_attributes(pair, hierarchies)), pair, groups) for pair in pairs]
            scores = curator.score(questions, plan.mu2("scores"), purpose=purpose)
            return Scores(max(1.0, total), self._named(pairs, scores, hierarchies))
        known = one_way_scores(curator, plan.mu2("one-way"))
        guesses = _guesses(known.measurements, total=known.total)
        for name, own in groups.items():
            fine = guesses[hierarchies.attribute(name)]
            guesses[name] = np.bincount(own, weights=fine).astype(np.float64)
        queries = [
            Misfit(_attributes((a, b), hierarchies), np.multiply.outer(guesses[a], guesses[b]) / known.total)
            for a, b in pairs
        ]
        questions = [_coarsened(query, pair, groups) for query, pair in zip(queries, pairs, strict=True)]
        misfits = curator.score(questions, plan.mu2("scores"), purpose=purpose)
        excess = [(m - sampling_misfit(q.reference)) / 2 for m, q in zip(misfits, queries, strict=True)]
        return replace(known, pairs=self._named(pairs, excess, hierarchies))

    def select(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> Structure:
        """Section 2.1.2, on the noisy scores alone."""
        domain = curator.domain
        records = scores.total / self._sigma(domain, plan)
        finer = records / (self.usefulness * max(1.0, records / PLENTY) ** self.growth)
        tau, limit = finer, math.inf
        if self.pgm:
            limit = float(self.limit_cells)
            tau = min(limit, finer * self.usefulness / self.usefulness_pgm)
        hierarchies = self._hierarchies(domain)
        if self.every_level:
            affinity = pair_matrix(hierarchies.domain(domain), scores.pairs, scale=scores.total)
        else:
            alike = pair_matrix(domain, scores.pairs, scale=scores.total)
            affinity = shared_by_versions(domain, hierarchies, alike)
        any_parent = self.every_level and not self.pgm
        growth = Growth(
            domain,
            hierarchies,
            affinity,
            tau,
            LIMIT_COUNTED,
            limit,
            any_parent=any_parent,
            tau_finer=finer,
            begun=scores.tables,
        )
        return Structure(scores, tuple(growth.families()), largest_table=int(tau))

    def fit(self, curator: Curator, plan: BudgetPlan, structure: Structure, tools: Tools) -> Model:
        """Algorithm 4, then a graphical model, or consistency (Section 3.2) and a network to draw from."""
        domain, scores, families = curator.domain, structure.scores, structure.cliques
        hierarchies = self._hierarchies(domain)
        versions = hierarchies.domain(domain)
        tables = self._measured(curator, plan, [versions.clique(family) for family in families], hierarchies)
        tools.progress(f"{len(tables)} tables measured")
        coarse = domain if not hierarchies.levels else versions.project(hierarchies.coarsest(domain))
        model = self._estimated(coarse, [*scores.measurements, *tables], tools) if self.pgm else None
        if model is not None and not hierarchies.levels:
            return model
        ready = self._ready(plan, scores, tables, hierarchies)
        pairs = [(family, _possible(domain, m)) for family, m in zip(families, ready, strict=True)]
        factors = within_groups(pairs, versions, hierarchies)
        if model is not None:
            beliefs = [Factor(belief.clique, belief.values * model.total) for belief in model.beliefs]
            finer = (f for (*_, name), f in zip(families, factors, strict=True) if name not in coarse)
            factors = [*beliefs, *finer]
        return BayesianNetwork(
            domain,
            versions,
            tuple(factors),
            total=scores.total,
            generation=self.generation,
            step_back=not self.consistency,
        )

    def _estimated(self, coarse: Domain, known: Sequence[Measurement], tools: Tools) -> MarkovRandomField:
        """PB-PGM: the field of what was measured of the coarsest versions."""
        own = [m for m in known if all(name in coarse for name in m.clique)]
        if self.one_way:
            own = pool_tables(own, order=2)
        return tools.estimate(coarse, own, until=self.last_fit, limit_cells=2 * self.limit_cells)

    def _ready(
        self, plan: BudgetPlan, scores: Scores, tables: Sequence[Measurement], hierarchies: Hierarchies
    ) -> list[Measurement]:
        """The tables to draw from, without negative counts; n and one-way marginals help them to agree."""
        if not self.consistency:
            return [Measurement(m.clique, non_negative(m.noisy), m.sigma) for m in tables]
        if self.one_way:
            return reconcile([*tables, *scores.measurements], hierarchies=hierarchies)[: len(tables)]
        n = Measurement((), np.array(scores.total), noise_sigma(plan.mu2("n"), count=1))
        return as_published([*tables, n], hierarchies=hierarchies)[: len(tables)]

    def can_refit(self, domain: Domain) -> bool:
        """See `MayRefit`; a model with coarser versions is a network."""
        return self.pgm and not self._hierarchies(domain).levels

    def count_noise(self, domain: Domain, plan: BudgetPlan) -> dict[Clique, float]:
        """See `CountNoise`; without one-way marginals of its own a column is known from its tables."""
        table = self._sigma(domain, plan)
        column = noise_sigma(plan.mu2("one-way"), count=len(domain)) if self.one_way else table
        return noise_by_table(domain, column=column, pair=table)

    def preview(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        """Noise of each phase, in records."""
        versions = self._hierarchies(domain).domain(domain)
        lines = [
            ("tables measured", f"at most {len(versions)}"),
            ("noise on each count of a table", f"sigma {self._sigma(domain, plan):.1f} records or less"),
        ]
        if pairs := len(self._pairs(domain)):
            sensitivity = Fraction(1, 2) if self.one_way else Fraction(2)
            text = noise_text(plan.mu2("scores"), count=pairs, sensitivity=sensitivity)
            lines.append(("noise on each score", text))
        if len(versions) > len(domain):
            lines.append(("coarser versions of attributes", str(len(versions) - len(domain))))
        return lines

    def _hierarchies(self, domain: Domain) -> Hierarchies:
        return with_declared(by_size(domain, group=self.g) if self.g else NO_HIERARCHIES, domain, self.levels)

    def _pairs(self, domain: Domain) -> list[Clique]:
        """The pairs of versions, of two attributes each, that are scored."""
        hierarchies = self._hierarchies(domain)
        if self.every_level:
            every, attribute = combinations(hierarchies.domain(domain), 2), hierarchies.attribute
            return [(a, b) for a, b in every if attribute(a) != attribute(b)]
        return list(combinations(hierarchies.coarsest(domain), 2))

    def _named(
        self, pairs: Sequence[Clique], scores: Sequence[float], hierarchies: Hierarchies
    ) -> tuple[tuple[str, str, float], ...]:
        """The scores by versions, or by attributes where all versions share them."""
        named = pairs if self.every_level else [_attributes(pair, hierarchies) for pair in pairs]
        return tuple((a, b, score) for (a, b), score in zip(named, scores, strict=True))

    def _sigma(self, domain: Domain, plan: BudgetPlan) -> float:
        """Noise of a table if every version gets one: the pessimistic case of a head of one attribute."""
        count = len(self._hierarchies(domain).domain(domain))
        return noise_sigma(plan.mu2("tables"), count=count)

    def _measured(
        self, curator: Curator, plan: BudgetPlan, cliques: Sequence[Clique], hierarchies: Hierarchies
    ) -> list[Measurement]:
        """The noisy tables; those of coarser versions one by one, because each is counted finely first."""
        versions = hierarchies.domain(curator.domain)
        weights = [float(versions.cells(c)) ** BY_SIZE if self.sized else 1.0 for c in cliques]
        plain = [k for k, clique in enumerate(cliques) if not any(name in hierarchies.levels for name in clique)]
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


def within_groups(
    tables: Sequence[tuple[Clique, NDArray[np.float64]]], versions: Domain, hierarchies: Hierarchies
) -> list[Factor]:
    """The tables as a network draws from them: a version whose coarser one is drawn before gets it as a condition.

    Its table is extended by the coarser version (PrivBayes, Section 3.2.2), with zeros outside the groups, so that a
    record never holds two versions that contradict each other.
    """
    found = []
    for clique, values in tables:
        name = clique[-1]
        family = versions.clique(clique)
        finer_first = hierarchies.versions(hierarchies.attribute(name))
        coarser = finer_first[finer_first.index(name) + 1 :][:1]
        for other in coarser:
            axis = family.index(name)
            inside = np.eye(versions.size(other))[hierarchies.regrouping(name, other)]
            shape = [1] * (values.ndim + 1)
            shape[axis], shape[axis + 1] = inside.shape
            inside = inside.reshape(shape)
            values = np.expand_dims(values, axis + 1) * inside + LEAST * inside
            family = (*family[: axis + 1], other, *family[axis + 1 :])
        found.append(Factor(family, values))
    return found


def sampling_misfit(expected: NDArray[np.float64]) -> float:
    """The mean L1 distance of Poisson counts from their means: for a mean e, 2 exp(-e) e^(k+1) / k! with k = floor(e).

    So far from independence are samples of independent attributes; what exceeds it is dependence.
    """
    e = np.maximum(expected, 1e-12)
    k = np.floor(e)
    return float(2 * np.exp((k + 1) * np.log(e) - e - gammaln(k + 1)).sum())


def _coarsened(query: Dependence | Misfit, versions: Clique, groups: Mapping[str, Index]) -> Query:
    own = tuple(groups.get(name) for name in versions)
    return query if all(g is None for g in own) else Coarsened(query, own)


def _attributes(versions: Clique, hierarchies: Hierarchies) -> Clique:
    return tuple(map(hierarchies.attribute, versions))


def _guesses(measured: Sequence[Measurement], *, total: float) -> dict[str, NDArray[np.float64]]:
    """One-way counts without negative ones, all of the same total."""
    return {m.clique[0]: nearest_non_negative(m.noisy + (total - m.noisy.sum()) / m.noisy.size) for m in measured}


def _possible(domain: Domain, measurement: Measurement) -> NDArray[np.float64]:
    """The table with nothing in the cells that rules about its own attributes exclude."""
    own = all(name in domain for name in measurement.clique)
    return (without_impossible(measurement, domain) if own else measurement).noisy


def _shares(weights: Sequence[float]) -> list[Fraction]:
    """Exact shares of a budget in proportion to the weights; they sum to 1."""
    grid = [max(1, round(w / math.fsum(weights) * 2**30)) for w in weights]
    return [Fraction(part, sum(grid)) for part in grid]


def _strategy(clique: Clique, domain: Domain, hierarchies: Hierarchies) -> Strategy:
    """The table of some versions as sums over the table of their attributes."""
    levels = hierarchies.levels
    groups = [levels[name].groups if name in levels else np.arange(domain.size(name)) for name in clique]
    return Strategy(_attributes(clique, hierarchies), tuple(map(group_matrix, groups)))


PAPER = PrivBayes(
    one_way=0.0,
    every_level=True,
    sized=False,
    pgm=False,
    usefulness_pgm=4.0,
    growth=0.0,
    last_fit=0.7,
    generation="without replacement",
)
PRESETS = {"default": PrivBayes(), "paper": PAPER, "pgm": replace(PAPER, pgm=True)}
