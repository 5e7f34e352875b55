"""How spends add up: in parallel over the parts of one partition of one snapshot, and in no other case."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from synth_core.privacy.accounts import Composition, Stratum, pure_epsilon, snapshot_numbers, which_count
from synth_core.privacy.budget import Mechanism, gaussian_for

NORTH, SOUTH = (Stratum(partition="region", part=part) for part in ("north", "south"))
OTHER = Stratum(partition="age", part="north")
ONE = Fraction(1)

spends = st.lists(
    st.tuples(
        st.sampled_from(("first", "second")),
        st.sampled_from((None, NORTH, SOUTH, OTHER)),
        st.integers(1, 9).map(Fraction),
    ),
    max_size=12,
)


def price(*spent) -> Fraction:
    composition = Composition()
    for spend in spent:
        composition.add(*spend)
    return composition.mu2


def test_parts_compose_in_parallel_inside_one_snapshot() -> None:
    assert price(("first", NORTH, ONE), ("first", SOUTH, 2 * ONE)) == 2


def test_parts_of_two_snapshots_add_up() -> None:
    """A unit may lie in the north of one snapshot and in the south of the next: it pays for both."""
    assert price(("first", NORTH, ONE), ("second", SOUTH, ONE)) == 2
    assert price(("first", NORTH, ONE), ("second", NORTH, ONE)) == 2


def test_partitions_and_questions_about_all_records_add_up() -> None:
    assert price(("first", NORTH, ONE), ("first", OTHER, ONE), ("first", None, ONE)) == 3


@given(spends)
def test_the_spends_that_count_add_up_to_the_price(spent) -> None:
    counted = sum((spend[2] for spend, counts in zip(spent, which_count(spent), strict=True) if counts), 0)
    assert counted == price(*spent)


@given(spends, st.tuples(st.sampled_from(("first", "third")), st.sampled_from((None, NORTH, OTHER))))
def test_the_price_of_one_more_spend_is_known_before_it_is_made(spent, more) -> None:
    composition = Composition()
    for spend in spent:
        composition.add(*spend)
    assert composition.mu2_with(*more, 5 * ONE) == price(*spent, (*more, 5 * ONE))
    assert composition.mu2 == price(*spent), "asking changes nothing"


@given(spends)
def test_a_refund_leaves_the_price_of_the_others(spent) -> None:
    if spent:
        (snapshot, stratum, mu2), *others = spent
        assert price(*spent, (snapshot, stratum, -mu2)) == price(*others)


def test_snapshots_are_numbered_as_they_appear() -> None:
    assert snapshot_numbers(["b", "a", "b", "c"]) == [1, 2, 1, 3]


def test_pure_epsilons_add_up_but_for_parts_of_one_partition():
    """Two parts share no record, so the larger counts; snapshots and questions about all records add up."""
    tenth, third = (Mechanism("discrete_laplace", sensitivity=ONE, scale=Fraction(n), count=1) for n in (10, 3))
    assert pure_epsilon([("s", None, tenth), ("s", NORTH, tenth)]) == 0.2
    assert pure_epsilon([("s", NORTH, tenth), ("s", SOUTH, tenth), ("s", SOUTH, tenth)]) == 0.2
    assert pure_epsilon([("s", NORTH, tenth), ("t", SOUTH, tenth)]) == 0.2
    assert pure_epsilon([("s", NORTH, tenth)], rows_per_unit=3) == 0.3
    assert pure_epsilon([("s", None, third)]) == 0.333334, "rounded up"
    assert pure_epsilon([]) is None
    assert pure_epsilon([("s", None, tenth), ("s", SOUTH, gaussian_for(ONE, sensitivity=ONE, count=1))]) is None
