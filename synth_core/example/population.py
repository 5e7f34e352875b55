"""The example release: a fictional population of people in households, with strong dependence and exact edit rules.

Nothing in it describes real people or places. Every table below is made up; rows are probabilities or log-odds.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from synth_core.arrays import Floats
from synth_core.documents import parse_document
from synth_core.errors import SpecError
from synth_core.ledger.sql import open_ledger
from synth_core.privacy.accounts import Account
from synth_core.release.spec import ReleaseSpec
from synth_core.schema import Schema

Indices: TypeAlias = NDArray[np.int64]
EXAMPLE_ROWS = 50_000
"""People of the example, unless another number is asked for."""
EXAMPLE_SEED = 1
"""Seed of the example's people."""

DATASET = "fictional-census"
DELTA = 1e-6
"""The account's delta."""
EPSILON = 1.0
"""The first release's epsilon."""
CAP_EPSILON = 4.0
"""The account's cap, as an epsilon."""

HEAD, PARTNER, CHILD, PARENT, LODGER = range(5)
"""Places of people in their household."""
ALONE, COUPLE, FAMILY, LONE_PARENT, THREE_GENERATIONS, SHARED = range(6)
"""Forms of a household."""
SINGLE, MARRIED, DIVORCED, WIDOWED = range(4)
"""Marital states."""
NONE, PRIMARY, LOWER_SECONDARY, UPPER_SECONDARY, VOCATIONAL, BACHELOR, POSTGRADUATE = range(7)
"""Levels of education."""
AT_HOME, STUDENT, EMPLOYED, SELF_EMPLOYED, UNEMPLOYED, HOUSEKEEPING, RETIRED = range(7)
"""Activities."""
FARMER = 5
"""The occupation of somebody who works a farm, among `OCCUPATION_ODDS`."""

REGION_SHARES = np.array([0.34, 0.24, 0.18, 0.14, 0.10])
"""Shares of the households in each region."""
DISTRICT_SHARES = np.array(
    [[0.70, 0.18, 0.12], [0.52, 0.20, 0.28], [0.35, 0.45, 0.20], [0.25, 0.60, 0.15], [0.15, 0.30, 0.55]]
)
"""Shares of the households in the three districts of each region, the first of which is a city."""
HOUSEHOLD_SHARES = np.array(
    [
        [0.38, 0.26, 0.12, 0.07, 0.00, 0.17],
        [0.17, 0.14, 0.50, 0.11, 0.03, 0.05],
        [0.25, 0.40, 0.22, 0.05, 0.06, 0.02],
        [0.47, 0.45, 0.03, 0.02, 0.00, 0.03],
    ]
)
"""Shares of the forms of a household, by the head's age: under 30, 50, 65, and older."""
EDUCATION_CUTS = np.array([-2.2, -1.5, -0.7, 0.3, 0.9, 1.8])
"""Scores, of mean 0, at which the next level of education begins."""
ACTIVITY_ODDS = np.array(
    [
        [-99.0, 2.5, 0.6, -2.5, 0.0, -2.0, -99.0],
        [-99.0, 1.0, 1.7, -1.0, 0.2, -1.0, -99.0],
        [-99.0, -3.0, 2.8, 0.8, 0.0, 0.0, -99.0],
        [-99.0, -6.0, 2.4, 1.0, 0.0, 0.3, -0.8],
        [-99.0, -6.0, 1.4, 0.7, -0.6, 0.3, 1.4],
        [-99.0, -6.0, -0.8, -0.3, -3.0, -0.4, 2.8],
        [-99.0, -6.0, -3.0, -2.0, -6.0, -1.0, 3.4],
    ]
)
"""Logarithms of odds of each activity, by age from 16: under 20, 25, 50, 60, 65, 70, and older; a child has none."""
OCCUPATION_ODDS = np.array(
    [
        [-3.0, -6.0, -3.0, -2.0, 0.6, 1.0, 0.3, 0.8, 2.2],
        [-2.5, -6.0, -2.5, -1.0, 0.9, 1.0, 0.6, 1.1, 1.8],
        [-1.5, -4.0, -1.0, 0.2, 1.5, 0.5, 1.1, 1.2, 1.0],
        [-0.2, -1.5, 0.6, 1.6, 1.4, -0.2, 0.6, 0.5, -0.3],
        [-0.2, -1.2, 1.5, 0.6, 0.9, 0.1, 2.1, 0.8, -1.0],
        [1.3, 2.5, 1.5, 0.8, -0.3, -1.8, -1.6, -2.2, -2.8],
        [1.9, 3.8, 0.8, -0.5, -1.8, -2.8, -3.0, -4.0, -4.0],
    ]
)
"""Logarithms of odds of each occupation, by education."""
OCCUPATION_ODDS_OF_MEN = np.array([0.4, -0.2, 0.1, -0.9, -0.8, 0.4, 1.7, 1.4, -0.1])
"""What is added to them for men."""
INDUSTRY_ODDS = np.array(
    [
        [-1.0, 0.9, 0.4, 1.0, 0.2, 1.4, 0.4, -0.1],
        [-3.0, 0.2, -0.8, -1.0, -1.2, 1.4, 1.9, 1.6],
        [-2.0, 1.2, 0.4, 0.0, 0.2, 0.9, 0.3, 1.1],
        [-2.0, 0.3, -0.6, 0.6, 0.7, 1.4, 1.3, 0.4],
        [-2.5, -1.5, -2.5, 2.2, 0.2, 0.1, 0.2, 1.6],
        [4.0, -1.5, -2.5, -1.5, -2.0, -3.0, -2.0, -3.0],
        [-1.5, 1.7, 2.3, 0.1, -0.5, -1.5, -1.0, -2.0],
        [-0.5, 2.2, 0.4, 0.0, 2.0, -2.0, -1.0, -2.5],
        [0.6, 0.9, 0.8, 0.7, 0.5, 0.3, -0.2, 0.2],
    ]
)
"""Logarithms of odds of each industry, by occupation."""
INDUSTRY_ODDS_OF_REGIONS = np.array(
    [
        [-1.5, -0.5, 0.0, 0.1, 0.2, 0.9, 0.4, 0.0],
        [-0.6, 1.0, 0.0, 0.0, 0.2, 0.0, 0.0, 0.0],
        [0.3, 0.4, 0.1, 0.0, 0.0, -0.4, 0.0, 0.1],
        [1.3, 0.0, 0.2, 0.0, -0.2, -0.7, 0.0, 0.1],
        [0.9, -0.6, 0.2, 0.5, 0.6, -0.5, 0.0, 0.2],
    ]
)
"""What is added to them, by region."""
LOG_PAY_OF_OCCUPATIONS = np.array([8.30, 8.10, 7.90, 7.65, 7.40, 7.30, 7.65, 7.60, 7.25])
"""Mean logarithm of a month's pay, by occupation."""
LOG_PAY_OF_EDUCATION = np.array([-0.20, -0.12, -0.05, 0.02, 0.08, 0.22, 0.38])
"""What is added to it, by education."""
LOG_PAY_OF_REGIONS = np.array([0.15, 0.05, 0.00, -0.10, -0.06])
"""What is added to it, by region."""


def population_schema() -> Schema:
    """The public declaration of the fictional table, with its edit rules."""
    return Schema.model_validate(parse_document(_schema_text(), words=True))


def generate(rows: int, seed: int) -> pd.DataFrame:
    """People of the fictional country, household after household (the last one may be cut), in decoded form."""
    if rows < 1:
        raise SpecError("the number of rows must be at least 1")
    rng = np.random.default_rng(seed)
    return in_words(describe_people(draw_people(rows, rng).iloc[:rows], rng), population_schema())


def draw_people(households: int, rng: np.random.Generator) -> pd.DataFrame:
    """Draw the people of some households, in codes.

    Args:
        households: how many.
        rng: source of randomness.

    Returns:
        A row for each person, household after household, with role, sex and age; `home` is the number of the
        household, `form` says who lives in it.
    """
    return _people(_households(households, rng), rng)


def describe_people(people: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Draw what else is known of people, in codes.

    Args:
        people: as they were drawn, all or the first of them.
        rng: source of randomness.

    Returns:
        The same people with the other columns of the fictional table.
    """
    people = people.reset_index(drop=True)
    people["marital"] = _marital(people, rng)
    people["education"] = _education(people, rng)
    people["activity"] = _activity(people, rng)
    people["occupation"] = _occupation(people, rng)
    people["industry"] = _industry(people, rng)
    people["hours"] = _hours(people, rng)
    people["income"] = _income(people, rng)
    people["tenure"] = _tenure(people, rng)
    return people


def in_words(coded: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """Write codes of categories as the words of a schema.

    Args:
        coded: a column of codes (-1 for none) or of numbers for each column of the schema, and maybe others.
        schema: whose columns are taken.

    Returns:
        A table as the schema declares it.
    """
    columns: dict[str, Any] = {}
    for column in schema.columns:
        numbers = coded[column.name]
        if column.kind == "categorical":
            words = pd.Series([*column.values, None], dtype="str")
            columns[column.name] = words.take(numbers.to_numpy()).reset_index(drop=True)
        else:
            columns[column.name] = numbers.astype("Int64" if column.nullable else "int64")
    return pd.DataFrame(columns)


def write_example(directory: str | Path, *, rows: int = EXAMPLE_ROWS, seed: int = EXAMPLE_SEED) -> None:
    """Write schema.yaml and data/people.csv of a fictional population."""
    folder = Path(directory)
    (folder / "data").mkdir(parents=True, exist_ok=True)
    (folder / "schema.yaml").write_text(_schema_text(), encoding="utf-8")
    generate(rows, seed).to_csv(folder / "data" / "people.csv", index=False)


def example_spec() -> ReleaseSpec:
    """A spec that runs as it is beside the example's schema and data."""
    return ReleaseSpec.parse(
        {
            "release": "example",
            "dataset": DATASET,
            "source": "data/people.csv",
            "schema": "schema.yaml",
            "method": "privmrf",
            "epsilon": EPSILON,
            "delta": DELTA,
        }
    )


def declare_example_account(workspace: Path, *, dataset: str = DATASET, unit: str = "person") -> None:
    """Declare the account of an example; declaring it again changes nothing."""
    workspace.mkdir(parents=True, exist_ok=True)
    account = Account(dataset=dataset, unit=unit, delta=DELTA, cap_epsilon=CAP_EPSILON, largest_n=100_000)
    open_ledger(workspace, create=True).declare(account, actor="example")


def _schema_text() -> str:
    return resources.files("synth_core.example").joinpath("population.yaml").read_text(encoding="utf-8")


def _households(count: int, rng: np.random.Generator) -> pd.DataFrame:
    region = rng.choice(len(REGION_SHARES), size=count, p=REGION_SHARES)
    part = _draw(DISTRICT_SHARES[region], rng)
    # Cities are younger, the last regions older.
    age = 22 + 66 * rng.beta(1.6 + 0.15 * region + 0.5 * (part > 0), 2.0, size=count)
    return pd.DataFrame(
        {
            "region": region,
            "district": 3 * region + part,
            "head_age": age.astype(np.int64),
            "form": _draw(HOUSEHOLD_SHARES[np.digitize(age, [30, 50, 65])], rng),
            "head_sex": rng.integers(0, 2, size=count),
        }
    )


def _people(households: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    form = households["form"].to_numpy()
    has_children = np.isin(form, [FAMILY, LONE_PARENT, THREE_GENERATIONS])
    members = {
        HEAD: np.ones_like(form),
        PARTNER: np.isin(form, [COUPLE, FAMILY, THREE_GENERATIONS]).astype(np.int64),
        CHILD: has_children * np.minimum(1 + rng.poisson(0.9, size=len(form)), 6),
        PARENT: (form == THREE_GENERATIONS).astype(np.int64),
        LODGER: (form == SHARED) * np.minimum(1 + rng.poisson(0.8, size=len(form)), 5),
    }
    home = np.concatenate([np.repeat(np.arange(len(form)), number) for number in members.values()])
    role = np.concatenate([np.full(number.sum(), role) for role, number in members.items()])
    order = np.lexsort((role, home))
    home, role = home[order], role[order]
    of_home = households.iloc[home].reset_index(drop=True)
    head_sex = of_home["head_sex"].to_numpy()
    same_sex = rng.random(len(home)) < 0.03
    sex = np.where(role == PARTNER, np.where(same_sex, head_sex, 1 - head_sex), rng.integers(0, 2, size=len(home)))
    return pd.DataFrame(
        {
            "region": of_home["region"],
            "district": of_home["district"],
            "household_size": sum(members.values())[home],
            "role": role,
            "sex": np.where(role == HEAD, head_sex, sex),
            "age": _age(role, of_home["head_age"].to_numpy(), rng),
            "home": home,
            "form": of_home["form"],
        }
    )


def _age(role: Indices, head_age: Indices, rng: np.random.Generator) -> Indices:
    count = len(role)
    child = head_age - 19 - rng.gamma(4.0, 2.6, size=count)
    candidates = [
        head_age,
        np.clip(head_age + rng.normal(-1, 4, size=count), 18, 99),
        np.where(child < 30, child.clip(min=0), rng.integers(16, 30, size=count)),
        np.clip(head_age + 20 + rng.gamma(4.0, 2.0, size=count), 40, 99),
        18 + rng.gamma(2.0, 5.0, size=count).clip(max=60),
    ]
    return np.choose(role, candidates).astype(np.int64)


def _marital(people: pd.DataFrame, rng: np.random.Generator) -> Indices:
    """Couples share their state; without a partner, it follows from age and sex."""
    age, role, home = (people[name].to_numpy() for name in ("age", "role", "home"))
    u_home, u = rng.random(home.max() + 1)[home], rng.random(len(people))
    in_couple = np.isin(role, [HEAD, PARTNER]) & people["form"].isin([COUPLE, FAMILY, THREE_GENERATIONS]).to_numpy()
    head_age = people.loc[people["role"] == HEAD].set_index("home")["age"].reindex(home).to_numpy()
    wed = u_home < np.interp(head_age, [22, 30, 40, 60], [0.25, 0.55, 0.80, 0.93])
    widowed = np.interp(age, [45, 60, 75, 90], [0.01, 0.12, 0.45, 0.80]) * np.where(people["sex"] == 0, 1.0, 0.5)
    divorced = np.interp(age, [22, 35, 50, 70], [0.0, 0.18, 0.42, 0.30]) * (age >= 22)
    apart = np.select([age < 22, u < widowed, u < widowed + divorced], [SINGLE, WIDOWED, DIVORCED], SINGLE)
    together = np.where(wed, MARRIED, np.where((u < 0.25) & (age >= 28), DIVORCED, SINGLE))
    return np.where(in_couple, together, np.where(role == CHILD, SINGLE, apart))


def _education(people: pd.DataFrame, rng: np.random.Generator) -> Indices:
    """A latent score, higher for later cohorts, in cities, and shared in part within a household."""
    age, home = people["age"].to_numpy(), people["home"].to_numpy()
    shared = rng.normal(size=home.max() + 1)[home]
    city = np.array([0.35, -0.15, 0.0])[people["district"].to_numpy() % 3]
    score = 0.55 * shared + 0.75 * rng.normal(size=len(people)) + city - 0.018 * (age - 45)
    adult = np.digitize(score, EDUCATION_CUTS)
    youth = np.minimum(adult, np.where(score > 0, UPPER_SECONDARY, LOWER_SECONDARY)).clip(min=LOWER_SECONDARY)
    return np.select(
        [age < 6, age < 11, age < 16, age < 20, age < 23],
        [NONE, PRIMARY, np.where(age < 13, PRIMARY, LOWER_SECONDARY), youth, np.minimum(adult, BACHELOR)],
        adult,
    )


def _activity(people: pd.DataFrame, rng: np.random.Generator) -> Indices:
    age, education = people["age"].to_numpy(), people["education"].to_numpy()
    odds = ACTIVITY_ODDS[np.digitize(age, [20, 25, 50, 60, 65, 70])].copy()
    odds[age < 50, RETIRED] = -99.0
    odds[:, EMPLOYED] += 0.25 * (education - 3)
    odds[:, UNEMPLOYED] -= 0.35 * (education - 3)
    odds[:, HOUSEKEEPING] += np.where(people["sex"] == 0, 0.8 + 0.9 * (people["household_size"] >= 4), -1.8)
    odds[:, STUDENT] += np.where((people["role"] == CHILD) & (age < 25), 1.0, 0.0)
    return np.where(age < 16, AT_HOME, draw_by_odds(odds, rng))


def _in_work(people: pd.DataFrame) -> NDArray[np.bool_]:
    return people["activity"].isin([EMPLOYED, SELF_EMPLOYED]).to_numpy(dtype=np.bool_)


def _occupation(people: pd.DataFrame, rng: np.random.Generator) -> Indices:
    """Index of the occupation, -1 out of work."""
    odds = OCCUPATION_ODDS[people["education"]] + people["sex"].to_numpy()[:, None] * OCCUPATION_ODDS_OF_MEN
    odds[:, FARMER] += 0.6 * people["region"].to_numpy() - 1.2
    odds[people["activity"] == SELF_EMPLOYED, FARMER] += 1.5
    return np.where(_in_work(people), draw_by_odds(odds, rng), -1)


def _industry(people: pd.DataFrame, rng: np.random.Generator) -> Indices:
    """Index of the industry, -1 out of work."""
    odds = 1.3 * INDUSTRY_ODDS[people["occupation"]] + INDUSTRY_ODDS_OF_REGIONS[people["region"]]
    return np.where(_in_work(people), draw_by_odds(odds, rng), -1)


def _hours(people: pd.DataFrame, rng: np.random.Generator) -> Floats:
    """Weekly hours, NaN out of work."""
    part_time = np.where(people["sex"] == 0, 0.15 + 0.30 * (people["household_size"] >= 3), 0.07)
    part_time = np.where((people["age"] < 22) | (people["age"] >= 65), 0.65, part_time)
    own_boss = (people["activity"] == SELF_EMPLOYED) | (people["occupation"] == 0)
    full = np.where(own_boss, rng.normal(50, 9, len(people)), rng.normal(39.5, 2.8, len(people)))
    hours = np.where(rng.random(len(people)) < part_time, rng.normal(20, 6, len(people)), full)
    return np.where(_in_work(people), np.rint(hours).clip(1, 80), np.nan)


def _income(people: pd.DataFrame, rng: np.random.Generator) -> Floats:
    """Monthly earnings, NaN out of work."""
    age = people["age"].to_numpy()
    log_pay = (
        LOG_PAY_OF_OCCUPATIONS[people["occupation"]]
        + LOG_PAY_OF_EDUCATION[people["education"]]
        + LOG_PAY_OF_REGIONS[people["region"]]
        + np.log(people["hours"].to_numpy() / 39.5)
        + np.interp(age, [16, 25, 45, 60, 75], [-0.55, -0.25, 0.10, 0.08, -0.20])
        + 0.12 * people["sex"].to_numpy()
        + rng.normal(0, 0.22, size=len(people))
    )
    income: Floats = np.rint(np.exp(log_pay)).clip(0, 50_000)
    return income


def _tenure(people: pd.DataFrame, rng: np.random.Generator) -> Indices:
    """One for each household, from its head's age, pay and place."""
    home = people["home"].to_numpy()
    head = people.loc[people["role"] == HEAD].set_index("home")
    age, rich = head["age"].to_numpy(), np.log(head["income"].fillna(900).to_numpy() / 2200)
    city = (head["district"] % 3 == 0).to_numpy()
    odds = np.stack(
        [
            np.interp(age, [25, 45, 65, 80], [-4.0, -1.2, 2.0, 2.6]) - 0.6 * city,
            np.interp(age, [22, 32, 50, 65], [-2.0, 1.2, 1.4, -1.5]) + 1.2 * rich,
            np.interp(age, [22, 35, 60], [1.8, 0.4, -0.6]) + 0.6 * city,
            -0.4 - 1.3 * rich,
        ],
        axis=1,
    )
    tenure: Indices = pd.Series(draw_by_odds(1.4 * odds, rng), index=head.index).reindex(home).to_numpy()
    return tenure


def _draw(shares: Floats, rng: np.random.Generator) -> Indices:
    """One index for each row of probabilities."""
    bounds = shares.cumsum(axis=1)
    drawn: Indices = (rng.random(len(shares))[:, None] * bounds[:, -1:] >= bounds[:, :-1]).sum(axis=1)
    return drawn


def draw_by_odds(odds: Floats, rng: np.random.Generator) -> Indices:
    """Draw one index for each row of logarithms of odds.

    Args:
        odds: one column for each index.
        rng: source of randomness.

    Returns:
        The indices.
    """
    return _draw(np.exp(odds - odds.max(axis=1, keepdims=True)), rng)
