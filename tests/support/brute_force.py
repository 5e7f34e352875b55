"""The oracle of the model tests: whole joint tables, and small random domains with cliques on them."""

import numpy as np
from hypothesis import strategies as st

from synth_core.domain import Domain
from synth_core.models.calibration import calibrate_in, split_tables
from synth_core.models.inference import marginal_oracle
from synth_core.models.junction_tree import junction_tree


def joint(domain, cliques, potentials):
    """Log-partition function and the full joint distribution, cell by cell."""
    logs = np.zeros(domain.sizes)
    for table in split_tables(domain, cliques, potentials):
        logs = logs + table.values.reshape([domain.size(a) if a in table.clique else 1 for a in domain])
    peak = logs.max()
    mass = np.exp(logs - peak)
    return peak + np.log(mass.sum()), mass / mass.sum()


def onto(domain, table, clique):
    """Marginal of a full joint table, axes in the clique's own order."""
    kept = domain.clique(clique)
    summed = table.sum(axis=tuple(k for k, a in enumerate(domain) if a not in kept))
    return np.transpose(summed, [kept.index(a) for a in clique])


def random_potentials(domain, cliques, seed, scale):
    """Normal numbers for the cells of the cliques' tables, one table after the other."""
    return np.random.default_rng(seed).normal(size=sum(map(domain.cells, cliques))) * scale


def stacked(domain, table, cliques):
    """The marginals of a full joint table in one vector, as potentials are."""
    return np.concatenate([np.zeros(0), *(onto(domain, table, clique).ravel() for clique in cliques)])


def propagate_random(domain, cliques, seed, scale, *, arrays, oracle=joint):
    """Belief propagation on random potentials, whose marginals must be the oracle's.

    Returns the marginals, and the log-partition function as found and as expected.
    """
    potentials = random_potentials(domain, cliques, seed, scale)
    log_mass, table = oracle(domain, cliques, potentials)
    propagate = marginal_oracle(junction_tree(domain, cliques), cliques, arrays)
    marginals, found = propagate(arrays.xp.asarray(potentials))
    np.testing.assert_allclose(np.asarray(marginals), stacked(domain, table, cliques), atol=1e-9)
    return np.asarray(marginals), found, log_mass


def calibrate_random(algebra, domain, cliques, seed):
    """Beliefs and mass of random potentials, in the given algebra."""
    tables = split_tables(domain, cliques, random_potentials(domain, cliques, seed, 2.0))
    return calibrate_in(algebra, junction_tree(domain, cliques), tables)


@st.composite
def structures(draw, largest=4, attributes=6):
    """A small domain and some distinct cliques on it."""
    count = draw(st.integers(1, attributes))
    sizes = draw(st.lists(st.integers(1, largest), min_size=count, max_size=count))
    domain = Domain.of({f"x{k}": size for k, size in enumerate(sizes)})
    subsets = st.sets(st.sampled_from(domain.attributes), min_size=1, max_size=3)
    cliques = draw(st.lists(subsets, max_size=6))
    return domain, list(dict.fromkeys(domain.clique(clique) for clique in cliques))


def running_intersection_holds(tree):
    """Each attribute's cliques have exactly one top: the attribute appears below one clique only."""
    for attribute in tree.domain:
        tops = [
            i for i, clique in enumerate(tree.cliques) if attribute in clique and attribute not in tree.separator(i)
        ]
        if len(tops) != 1:
            return False
    return all(parent < i for i, parent in enumerate(tree.parents))
