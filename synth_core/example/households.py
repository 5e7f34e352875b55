"""The example of two linked tables: the households of the fictional country, and the people in them.

They are drawn as the one table of people is (`example.population`): couples of similar age, children a generation
younger, and parents one older; what a household shares, such as its tenure, follows from its people and its place.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd

from synth_core.documents import parse_document
from synth_core.errors import SpecError
from synth_core.example.population import (
    CHILD,
    DELTA,
    EPSILON,
    EXAMPLE_SEED,
    FARMER,
    HEAD,
    PARTNER,
    Indices,
    declare_example_account,
    describe_people,
    draw_by_odds,
    draw_people,
    in_words,
)
from synth_core.release.spec import ReleaseSpec
from synth_core.schema.linked import LinkedSchema

LINKED_DATASET = "fictional-households"
"""The account of the example."""

EXAMPLE_HOUSEHOLDS = 20_000
"""Households of the example, unless another number is asked for."""

FLAT, FARM = 2, 3
"""Dwellings, among those of `DWELLING_ODDS`."""

YOUNGEST_PARENT = 16
"""Least years between a partner of the reference person and a child of the household."""

DWELLING_ODDS = np.array(
    [[1.3, 0.3, -0.8, -3.0], [0.9, 1.0, -0.6, -4.0], [-1.4, 0.0, 1.6, -3.5], [-2.0, 0.6, 1.6, -5.0]]
)
"""Logarithms of odds of each dwelling (detached, terraced, flat, farm), by tenure."""

DWELLING_ODDS_OF_PARTS = np.array([[-1.2, 0.2, 1.0, -4.0], [0.5, -0.3, -0.5, 0.8], [0.3, 0.2, -0.2, -0.8]])
"""What is added to them in the city, the valley and on the coast of a region."""

ROOMS_OF_DWELLINGS = np.array([4.2, 3.4, 2.2, 4.6])
"""Mean rooms of a dwelling of each kind for somebody who lives alone and rents."""


def households_schema() -> LinkedSchema:
    """Read the public declaration of both tables.

    Returns:
        The schema, with edit rules for one person and rules across the people of a household.
    """
    return LinkedSchema.model_validate(parse_document(_schema_text(), words=True))


def generate_households(households: int, seed: int) -> dict[str, pd.DataFrame]:
    """Draw households of the fictional country with their people.

    Args:
        households: how many.
        seed: equal seeds give equal tables.

    Returns:
        The tables `household` and `person`, in decoded form, joined by `household_id`.

    Raises:
        SpecError: fewer than one household is asked for.
    """
    if households < 1:
        raise SpecError("the number of households must be at least 1")
    schema, rng = households_schema(), np.random.default_rng(seed)
    people = describe_people(_fitting(draw_people(households, rng), schema.largest), rng)
    home = people["home"].to_numpy()
    first = people.loc[people["role"] == HEAD].set_index("home")
    homes = pd.DataFrame({name: first[name] for name in ("district", "tenure")})
    homes["dwelling"] = _dwelling(first, rng)
    homes["rooms"] = _rooms(homes, np.bincount(home), rng)
    tables = {"household": in_words(homes.reset_index(drop=True), schema.household)}
    tables["person"] = in_words(people, schema.person)
    for name, numbers in (("household", np.arange(households)), ("person", home)):
        tables[name].insert(0, schema.link, numbers + 1)
    return tables


def write_linked_example(
    directory: str | Path, *, households: int = EXAMPLE_HOUSEHOLDS, seed: int = EXAMPLE_SEED
) -> None:
    """Write linked.yaml, data/household.csv and data/person.csv of fictional households.

    Args:
        directory: where to; it is made if it is not there.
        households: how many.
        seed: equal seeds give equal files.

    Raises:
        SpecError: fewer than one household is asked for.
    """
    folder = Path(directory)
    (folder / "data").mkdir(parents=True, exist_ok=True)
    (folder / "linked.yaml").write_text(_schema_text(), encoding="utf-8")
    for name, table in generate_households(households, seed).items():
        table.to_csv(folder / "data" / f"{name}.csv", index=False)


def linked_example_spec() -> ReleaseSpec:
    """A spec that runs as it is beside the example's schema and data."""
    return ReleaseSpec.parse(
        {
            "release": "example",
            "dataset": LINKED_DATASET,
            "source": {"household": "data/household.csv", "person": "data/person.csv"},
            "schema": "linked.yaml",
            "epsilon": EPSILON,
            "delta": DELTA,
            "unit": "household",
        }
    )


def declare_linked_account(workspace: Path) -> None:
    """Declare the account of the example's households; declaring it again changes nothing."""
    declare_example_account(workspace, dataset=LINKED_DATASET, unit="household")


def _schema_text() -> str:
    return resources.files("synth_core.example").joinpath("linked.yaml").read_text(encoding="utf-8")


def _fitting(people: pd.DataFrame, largest: int) -> pd.DataFrame:
    """People who keep the rules: too many children leave, and no partner is too young for a child."""
    child, home = people["role"] == CHILD, people["home"]
    turn = child.groupby(home).cumsum()
    kept = turn.groupby(home).transform("max") - (people["household_size"] - largest).clip(lower=0)
    people = people.loc[~child | (turn <= kept)].reset_index(drop=True)
    people["household_size"] = people.groupby("home")["home"].transform("size")
    eldest = people["age"].where(people["role"] == CHILD, -1).groupby(people["home"]).transform("max")
    parents = (people["role"] == PARTNER) & (eldest >= 0)
    people["age"] = people["age"].where(~parents, np.maximum(people["age"], eldest + YOUNGEST_PARENT))
    return people


def _dwelling(first: pd.DataFrame, rng: np.random.Generator) -> Indices:
    """One for each household, from its tenure, its place, its size and whether its reference person farms."""
    odds = DWELLING_ODDS[first["tenure"]] + DWELLING_ODDS_OF_PARTS[first["district"] % 3]
    odds[:, FLAT] -= 0.35 * (first["household_size"].to_numpy() - 2)
    odds[:, FARM] += 6.0 * (first["occupation"] == FARMER).to_numpy()
    return draw_by_odds(odds, rng)


def _rooms(homes: pd.DataFrame, sizes: Indices, rng: np.random.Generator) -> Indices:
    owned = np.array([0.9, 0.7, 0.0, -0.4])[homes["tenure"]]
    rooms = ROOMS_OF_DWELLINGS[homes["dwelling"]] + owned + 0.45 * (sizes - 1) + rng.normal(0, 0.9, len(sizes))
    whole: Indices = np.rint(rooms).clip(1, 9).astype(np.int64)
    return whole
