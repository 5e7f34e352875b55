"""Small random domains with rules, and what the rules leave, cell by cell."""

import numpy as np
from hypothesis import strategies as st

from support.brute_force import structures
from synth_core.domain import Domain, Impossible


@st.composite
def ruled(draw, **limits):
    """A domain with up to four rules that leave some record, and some distinct cliques on it."""
    domain, cliques = draw(structures(**limits))
    rules = []
    for number in range(draw(st.integers(1, 4))):
        names = draw(st.sets(st.sampled_from(domain.attributes), min_size=1, max_size=3))
        codes = [
            (name, tuple(sorted(draw(st.sets(st.integers(0, domain.size(name) - 1), min_size=1)))))
            for name in sorted(names)
        ]
        rules.append(Impossible(f"rule {number}", tuple(codes)))
    kept: tuple[Impossible, ...] = ()
    for rule in rules:
        if possible(Domain(domain.attributes, domain.sizes, (*kept, rule))).any():
            kept = (*kept, rule)
    return Domain(domain.attributes, domain.sizes, kept), cliques


def possible(domain):
    """Of every record of the domain, whether the rules allow it."""
    allowed = np.ones(domain.sizes, dtype=bool)
    for cell in np.ndindex(*domain.sizes):
        record = dict(zip(domain, cell, strict=True))
        for rule in domain.impossible:
            if all(record[name] in codes for name, codes in rule.codes):
                allowed[cell] = False
    return allowed
