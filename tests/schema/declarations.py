"""Random schemas for the laws."""

from __future__ import annotations

from hypothesis import strategies as st

from synth_core.schema import Schema
from synth_core.schema.columns import Categorical, Integer, Real

words = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=6).filter(
    lambda w: w != "OTHER"
)
wholes = st.integers(-(2**52), 2**52)
reals = st.floats(-1e300, 1e300, allow_nan=False)
nullable = st.booleans()
unseen = st.sampled_from(["refuse", "other"])
unseen_number = st.sampled_from(["refuse", "other", "clip"])
marks = st.one_of(st.none(), st.sampled_from(["N", "not in universe", "é, or so"]), st.sampled_from([-(2**52), 2**52]))


def _edges(numbers):
    return st.lists(numbers, min_size=2, max_size=6, unique=True).map(lambda edges: tuple(sorted(edges)))


def _columns(name):
    values = st.one_of(
        st.lists(words, min_size=1, max_size=6, unique=True),
        st.lists(wholes, min_size=1, max_size=6, unique=True),
    )
    common = {"name": st.just(name), "nullable": nullable}
    return st.one_of(
        st.builds(Categorical, values=values.map(tuple), unseen=unseen, **common),
        st.builds(Integer, bins=_edges(wholes), unseen=unseen_number, **common),
        st.builds(
            Integer,
            bounds=st.just((0, 9)),
            bins=st.integers(1, 10),
            unseen=unseen_number,
            not_in_universe=marks,
            **common,
        ),
        st.builds(Real, bins=_edges(reals), unseen=unseen_number, **common),
        st.builds(
            Real,
            bins=_edges(st.floats(-1e9, 1e9)),
            unseen=unseen_number,
            not_in_universe=st.one_of(marks, st.just(-1e10), st.just(1.5e9)),
            **common,
        ),
    )


schemas = (
    st.lists(words, min_size=1, max_size=4, unique=True)
    .flatmap(lambda names: st.tuples(*map(_columns, names)))
    .map(lambda columns: Schema(columns=columns))
)
