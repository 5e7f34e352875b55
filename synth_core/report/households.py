"""What a report shows of two linked tables: households by size and composition, ages of those who live together, and
how well that follows what is known.

The public part is made of the synthetic households, the model and its noisy answers; the internal one of true errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from synth_core.evaluation.distances import tvd
from synth_core.evaluation.household_shares import GAP_YEARS, HouseholdShares, MemberShare, describe_households
from synth_core.evaluation.linked import LinkedErrors
from synth_core.evaluation.public import MeasuredMarginal, judge_answer
from synth_core.models.households import HouseholdModel
from synth_core.models.tuples import UNITS, Households, count_tuples
from synth_core.report import charts, exhibits
from synth_core.report.exhibits import Exhibit
from synth_core.report.page import MAX_LISTED, Guarantee, SpendLine, Table, Tile, page, percent, points, privacy_tile
from synth_core.report.public import answers_exhibit
from synth_core.schema.linked import SIZE, LinkedSchema

RARE_CLASS = 0.005
"""Share of the pairs below which classes of age differences at either end are drawn as one."""

EVERY = 0.9995
"""A share of the households from which on it is not worth saying that they have such people."""

MEANINGS = {
    "households": "tables of three household columns, the size among them",
    "people": "tables of two columns of people",
    "people_3": "tables of three columns of people",
    "people_in_households": "tables of a household column and two of people",
    "pairs": "tables of one person and another of the household",
    "pairs_by_size": "the same within each size of household",
    "groups": "households with at least m people who …, relative",
    "couples": "age differences of couples",
    "parents_and_children": "age differences of parents and children",
}
"""What each mean error of `LinkedErrors` is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HouseholdSection:
    """The part of a page that is about households and their people.

    Attributes:
        headline: what the households are like, in a few sentences.
        tiles: the numbers to read first.
        errors: mean errors, or the noisy answers about pairs; a table may have no rows.
        pictures: of sizes, compositions and age differences.
        pairs: what is known of two people of a household.
        across: household columns by columns of people; without rows in public.
        members: households with at least m people of a value.
        rules: households that break a rule across people.
        columns: each column of households and of people.
    """

    headline: str
    tiles: tuple[Tile, ...]
    errors: Table
    pictures: tuple[Exhibit, ...]
    pairs: Exhibit | None
    across: Table
    members: Table
    rules: Table
    columns: tuple[Exhibit, ...]


def public_section(
    schema: LinkedSchema,
    synthetic: Households,
    model: HouseholdModel,
    *,
    broken: Mapping[str, int],
    counts: tuple[int, int] | None = None,
) -> HouseholdSection:
    """Describe synthetic households to everybody.

    Args:
        schema: the public declaration of the tables.
        synthetic: the published households, at least one, in codes.
        model: what they were drawn from.
        broken: how many of them break each rule across people.
        counts: how many households and people the extract has, where these are some of them.

    Returns:
        The section; nothing in it is computed from confidential rows.
    """
    made, known = describe_households(synthetic, schema), _modelled(schema, model)
    if counts is not None:
        made = replace(made, households=counts[0], people=counts[1])
    answers = judge_pairs(schema, synthetic, model)
    sizes = np.asarray(known[SIZE])
    return HouseholdSection(
        headline=_headline(made),
        tiles=_tiles(made, broken),
        errors=_NOTHING,
        pictures=(
            _compared("Size of household", _size_captions(schema), sizes, made.sizes, name="model"),
            *_alone("Who lives together", made.compositions, "Share of the households."),
            *(
                picture
                for name, shares in made.gaps.items()
                for picture in _alone(_gap_title(name), _gap_bars(shares)[0], _GAP_NOTES[name])
            ),
        ),
        pairs=answers_exhibit(answers) if answers else None,
        across=_NOTHING,
        members=_members_table(schema, made.members),
        rules=_rules(broken, made.households),
        columns=_columns(schema, known, made.columns, name="model"),
    )


def internal_section(schema: LinkedSchema, errors: LinkedErrors, *, broken: Mapping[str, int]) -> HouseholdSection:
    """Show how far synthetic households are from the real ones.

    Args:
        schema: the declaration of the tables.
        errors: every true error.
        broken: how many synthetic households break each rule across people.

    Returns:
        The section; it is confidential.
    """
    real, made = errors.real, errors.synthetic
    people = [column.name for column in schema.person.columns]
    pictures = [_compared("Size of household", _size_captions(schema), real.sizes, made.sizes, name="real")]
    if made.compositions:
        shares = [tuple(own.compositions.values()) for own in (real, made)]
        pictures.append(_compared("Who lives together", list(made.compositions), *shares, name="real"))
    for name in made.gaps:
        both = _gap_bars(real.gaps[name], made.gaps[name])
        shares = [tuple(own.values()) for own in both]
        pictures.append(_compared(_gap_title(name), list(both[0]), *shares, name="real", note=_GAP_NOTES[name]))
    return HouseholdSection(
        headline=_headline(made) + _worst(errors, people),
        tiles=_error_tiles(errors),
        errors=_errors_table(errors),
        pictures=tuple(pictures),
        pairs=_heatmap(people, errors.of_pairs) if errors.of_pairs else None,
        across=_across_table(schema, errors, people),
        members=_members_table(schema, made.members, real.members),
        rules=_rules(broken, made.households),
        columns=_columns(schema, real.columns, made.columns, name="real"),
    )


def linked_report(
    section: HouseholdSection,
    *,
    title: str,
    internal: bool,
    facts: Mapping[str, str] | None = None,
    guarantee: Guarantee | None = None,
    spends: Sequence[SpendLine] = (),
    account: str = "",
) -> str:
    """Put a section on a page of its own.

    Args:
        section: of everybody's page or of the agency's own.
        title: heading of the page.
        internal: whether the section is confidential, which the page then says on top.
        facts: shown under the title as they are.
        guarantee: the promise of the release, if there is one to state.
        spends: what was paid for.
        account: what all releases of the data cost together, as a sentence.

    Returns:
        One HTML file; equal arguments give equal bytes.
    """
    tiles = ([privacy_tile(guarantee)] if guarantee else []) + list(section.tiles)
    return page(
        "linked.html.j2",
        title=title,
        facts=dict(facts or {}),
        internal=internal,
        guarantee=guarantee,
        account=account,
        budget=exhibits.budget_exhibit(spends, mu=guarantee.mu) if guarantee and spends else None,
        tiles=tiles,
        households=section,
    )


def judge_pairs(schema: LinkedSchema, synthetic: Households, model: HouseholdModel) -> list[MeasuredMarginal]:
    """Compare synthetic households with every noisy table of two people.

    Args:
        schema: the declaration of the tables.
        synthetic: households in codes.
        model: has the noisy tables.

    Returns:
        For each table how far the households are from it, and how far noise alone would put them.
    """
    cliques = [measured.clique for measured in model.pairs]
    if not cliques:
        return []
    counted = count_tuples(synthetic, schema.domain(2), cliques, places=2, scale=UNITS, anchor=schema.anchor)
    scale = model.total / len(synthetic.sizes) / UNITS
    judged = zip(model.pairs, counted, strict=True)
    return [judge_answer(measured, table.astype(np.float64) * scale, model.total) for measured, table in judged]


_NOTHING = Table(head=(), rows=())
_GAP_NOTES = {
    "couples": f"Age of the partner less that of the reference person, in classes of {GAP_YEARS} years.",
    "parents and children": f"Age of the reference person less that of each child, in classes of {GAP_YEARS} years.",
}


def _gap_title(name: str) -> str:
    return f"Age differences of {name}"


def _modelled(schema: LinkedSchema, model: HouseholdModel) -> dict[str, tuple[float, ...]]:
    """What the model says of single columns: shares of households, and of people, of whom a household of s has s."""
    found = {name: model.people.marginal((name,)) for name in (*schema.household_attributes, SIZE)}
    numbers = np.arange(1, schema.largest + 1)[:, None]
    for name in schema.person_attributes():
        found[name] = (model.people.marginal((SIZE, name)) * numbers).sum(axis=0)
    return {name: tuple((np.asarray(table) / np.sum(table)).tolist()) for name, table in found.items()}


def _headline(made: HouseholdShares) -> str:
    said = [
        f"The extract has {made.households:,} synthetic households with {made.people:,} people, "
        f"{made.people / made.households:.2f} each; {percent(made.sizes[0])} of the households are one person."
    ]
    if families := {name: share for name, share in made.compositions.items() if name != "one person"}:
        commonest = max(families, key=lambda name: families[name])
        said.append(f"Of the others most are of the kind “{commonest}”, {percent(families[commonest])} of all.")
    return " ".join(said)


def _worst(errors: LinkedErrors, people: Sequence[str]) -> str:
    if not errors.of_pairs:
        return ""
    matrix = np.triu(np.asarray(errors.of_pairs))
    one, other = divmod(int(matrix.argmax()), len(people))
    return (
        f" A table of two people of one household is off by {percent(errors.pairs)} on average, and by "
        f"{percent(float(matrix.max()))} for {people[one]} of one and {people[other]} of the other."
    )


def _tiles(made: HouseholdShares, broken: Mapping[str, int]) -> tuple[Tile, ...]:
    tiles = [
        Tile(name="Households", value=f"{made.households:,}", note="none of them is a real one"),
        Tile(name="People", value=f"{made.people:,}", note="each in one of these households"),
    ]
    if broken:
        note = f"against {len(broken)} rules about people who live together"
        tiles.append(Tile(name="Broken rules", value=f"{sum(broken.values()):,}", note=note))
    return tuple(tiles)


def _error_tiles(errors: LinkedErrors) -> tuple[Tile, ...]:
    shown = ("households", "people", "pairs", "couples", "parents_and_children")
    names = {"people": "Columns of people", "households": "Household columns", "pairs": "Pairs of people"}
    return tuple(
        Tile(
            name=names.get(name, name.replace("_", " ").capitalize()),
            value=percent(errors.numbers[name]),
            note=MEANINGS[name],
        )
        for name in shown
        if name in errors.numbers
    )


def _errors_table(errors: LinkedErrors) -> Table:
    rows = [(MEANINGS[name], percent(value)) for name, value in errors.numbers.items()]
    if errors.targets:
        extra = float(np.mean([one.synthetic - one.real for one in errors.targets]))
        rows.append(
            ("wrong predictions of people's columns beyond those learned from real rows", f"{points(extra)} points")
        )
    return Table(head=("", "mean error"), rows=tuple(rows))


def _heatmap(people: Sequence[str], distances: Sequence[Sequence[float]]) -> Exhibit:
    return replace(
        exhibits.pairs_exhibit(people, distances),
        title="A column of one person by a column of another",
        note="Distance in % of the pairs; on the diagonal both columns are the same.",
    )


def _across_table(schema: LinkedSchema, errors: LinkedErrors, people: Sequence[str]) -> Table:
    names = [*(column.name for column in schema.household.columns), SIZE]
    rows = ((name, *map(percent, own)) for name, own in zip(names, errors.across, strict=True))
    return Table(head=("", *people), rows=tuple(rows))


def _members_table(
    schema: LinkedSchema, made: Sequence[MemberShare], real: Sequence[MemberShare] | None = None
) -> Table:
    """Households with at least m people of a value: those most off where both are known, else the commonest."""
    lines: list[tuple[float, tuple[str, ...]]] = []
    for place, one in enumerate(made):
        caption = f"at least {one.least} with {one.column} = {schema.person.column(one.column).captions[one.code]}"
        if real is None:
            if one.share < EVERY:
                lines.append((one.share, (caption, percent(one.share))))
        else:
            off = one.share - real[place].share
            lines.append((abs(off), (caption, percent(real[place].share), percent(one.share), points(off))))
    lines.sort(key=lambda line: -line[0])
    head = ("households with", "share") if real is None else ("households with", "real", "synthetic", "points")
    return Table(head=head, rows=tuple(row for _, row in lines[: 2 * MAX_LISTED]))


def _rules(broken: Mapping[str, int], households: int) -> Table:
    rows = ((rule, f"{count:,}", percent(count / households)) for rule, count in broken.items())
    return Table(head=("rule", "households that break it", "share"), rows=tuple(rows))


def _columns(
    schema: LinkedSchema,
    reference: Mapping[str, Sequence[float]],
    synthetic: Mapping[str, Sequence[float]],
    *,
    name: str,
) -> tuple[Exhibit, ...]:
    found: list[Exhibit] = []
    for table, own in (("household", schema.household), ("person", schema.person)):
        left, right = (
            {column.name: np.asarray(shares[f"{table}.{column.name}"]) for column in own.columns}
            for shares in (reference, synthetic)
        )
        distances = {column: tvd(left[column], right[column]) for column in left}
        found += exhibits.column_exhibits(own.columns, left, right, reference_name=name, tvd=distances)
    return tuple(found)


def _size_captions(schema: LinkedSchema) -> list[str]:
    return [f"{size} {'person' if size == 1 else 'people'}" for size in range(1, schema.largest + 1)]


def _gap_bars(*shares: Mapping[int, float]) -> list[dict[str, float]]:
    """The classes that are drawn, by caption, with the rare ones at both ends in one bar each."""
    common = [middle for own in shares for middle, share in own.items() if share >= RARE_CLASS]
    low, high = min(common, default=0), max(common, default=0)
    captions = {middle: str(middle).replace("-", "−") for middle in range(low, high + 1, GAP_YEARS)}
    below, above = f"below {captions[low]}", f"above {captions[high]}"
    bars = [dict.fromkeys([below, *captions.values(), above], 0.0) for _ in shares]
    for own, found in zip(shares, bars, strict=True):
        for middle, share in own.items():
            found[below if middle < low else above if middle > high else captions[middle]] += share
    return bars


def _alone(title: str, shares: Mapping[str, float], note: str) -> tuple[Exhibit, ...]:
    """A picture of the synthetic households by themselves; none of nothing."""
    if not shares:
        return ()
    words = ", ".join(f"{name} {percent(share)}" for name, share in shares.items())
    return (
        Exhibit(
            title=title,
            svg=charts.share_bars(list(shares), list(shares.values()), nothing="0", width=charts.NARROW),
            alt=f"{title} in the synthetic households: {words}.",
            note=note,
            table=Table(head=("", "share"), rows=tuple((name, percent(share)) for name, share in shares.items())),
        ),
    )


def _compared(
    title: str,
    captions: Sequence[str],
    reference: Sequence[float] | NDArray[np.float64],
    synthetic: Sequence[float],
    *,
    name: str,
    note: str = "",
) -> Exhibit:
    left, right = [float(value) for value in reference], [float(value) for value in synthetic]
    distance = (
        f" Total variation distance {percent(tvd(np.array(left), np.array(right)))}."
        if any(left) and any(right)
        else ""
    )
    rows = zip(captions, left, right, strict=True)
    return Exhibit(
        title=title,
        svg=charts.paired_bars(captions, reference=left, synthetic=right),
        alt=f"{title}: bars of the shares, {name} beside synthetic.{distance}",
        note=(note + distance).strip(),
        table=Table(
            head=("", name, "synthetic", "points"),
            rows=tuple((label, percent(a), percent(b), points(b - a)) for label, a, b in rows),
        ),
        key=(("reference", name), ("synthetic", "synthetic")),
    )
