"""The release spec: the one YAML file a person writes to ask for a release, and the folder with one for each series."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema

from synth_core.documents import Unreadable, find_line, parse_document, read_document
from synth_core.errors import SpecError
from synth_core.names import NAME, TABLES, check_name, check_release_name, check_unit, one_line, suggest
from synth_core.release.prior import Prior
from synth_core.release.schedule import Schedule
from synth_core.release.strata import Strata

ROUTINE = ("schedule", "pool", "deadline_hours")
"""Keys about when and where releases are run: they may change without making it another release."""

REDRAWN = ("replicates",)
"""Keys about tables that are drawn from the model: until they are published they may change, and nothing is asked anew.
A model may turn out to have no replicates, and the release would have no end."""

_ADDRESS = "function-after[one_line(), constrained-str]"
ALTERNATIVES = ("constrained-int", "literal['noisy']", _ADDRESS, f"tuple[{_ADDRESS}, ...]", "LinkedSource")
"""What pydantic calls the alternatives of a field, which no person has written."""

_NUMBER, _WHOLE = "write a number such as 1.0, with a decimal point", "write a whole number such as 4"
_WORDING = {
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "int_parsing": _WHOLE,
    "int_type": _WHOLE,
    "int_from_float": _WHOLE,
    "bool_parsing": "write true or false",
    "bool_type": "write true or false",
    "string_type": "write text, in quotes if it reads as a number or a date",
}
"""What a value of another type should have been, by pydantic's name of the error."""

PAIRS_SHARE = 0.1
"""Share of the budget that measures who lives with whom, unless a spec or a call says otherwise."""

LEAST_EPSILON = 1e-6
"""Lower limit of a release's epsilon: losses are stated with six digits, rounded up."""

MAX_FILES = 20_000
"""Upper limit of the Parquet files of all synthetic tables of a release: the manifest lists each of them."""

MAX_TASKS = 500
"""Upper limit of the tasks that write them: Airflow makes at most 1,024 of one, unless it is set otherwise."""

LONGEST_NAME = 82
"""A series' name has to leave room for date and time: names of releases have at most 100 characters."""

_NAME = WithJsonSchema({"type": "string", "pattern": f"^{NAME.pattern}$"})
Name = Annotated[str, AfterValidator(check_name), _NAME]
ReleaseName = Annotated[str, AfterValidator(check_release_name), _NAME]
Address = Annotated[str, Field(min_length=1), AfterValidator(one_line)]


Addresses = Address | tuple[Address, ...]
"""A file, a glob or a folder, or a list of these."""


class LinkedSource(BaseModel):
    """Where two linked tables are: a source for each, or people alone, whose rows repeat their household's columns."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    household: Addresses | None = Field(
        default=None, description="the table of households; left out, each person's row has their columns"
    )
    person: Addresses = Field(description="the table of people")

    @property
    def addresses(self) -> dict[str, Addresses]:
        """The sources that are given, by the table they hold."""
        return {name: own for name in TABLES if (own := getattr(self, name)) is not None}


def read_source(value: object) -> object:
    """The sources of linked tables, which may be one text as YAML writes a mapping in a line, as in a form.

    Args:
        value: what a spec or a form says.

    Returns:
        The mapping; anything else as it is.
    """
    if not isinstance(value, str) or not value.strip().startswith("{"):
        return value
    try:
        return parse_document(value)
    except Unreadable:
        example = "{household: households.csv, person: people.csv}"
        raise ValueError(f"write it as {example}, with a space after each colon") from None


def _field(title: str, meaning: str, default: Any = ..., **limits: Any) -> Any:
    """A field of the spec; without a default it is required."""
    return Field(default, title=title, description=meaning, **limits)


def _read_table(value: object) -> object:
    """The columns of a protected table, which may be one text with commas, as in a form.

    A word is none: who writes [sex, veteran] means a pair. In a form `[income]` is a column alone.
    """
    names: object = value
    if isinstance(value, str):
        inside = value.strip().strip("[]")
        names = tuple(part.strip() for part in inside.split(","))
        if len(names) == 1 and inside == value.strip():
            raise ValueError(f"{value!r} is no table; write [[{value}]] for the column alone, and [[a, b]] for a pair")
    if isinstance(names, list | tuple):
        if not 1 <= len(names) <= 3:
            raise ValueError("a protected table has one to three columns, such as [sex, veteran] or [income]")
        if len({str(name) for name in names}) < len(names):
            raise ValueError("a column is named twice in a protected table; name different ones")
    return names


Protected = Annotated[
    tuple[Annotated[str, Field(min_length=1), AfterValidator(one_line)], ...],
    BeforeValidator(_read_table),
]
"""Names of the columns of a protected table."""


class ReleaseSpec(BaseModel):
    """What to release, from which source, by which method, at which price.

    Each field carries its title, meaning, limits and an example: the handbook's pages and the form in Airflow are made
    from them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    release: ReleaseName = _field(
        "Release name",
        "name of this release; running the same name again resumes it: stored answers are used again and nothing is "
        "spent twice",
        examples=["2026-q1"],
    )
    dataset: Name = _field(
        "Data set", "ledger account that pays, declared once with `synth ledger account`", examples=["census-2026"]
    )
    source: Annotated[Address | tuple[Address, ...] | LinkedSource, BeforeValidator(read_source)] = _field(
        "Source",
        "CSV (also .gz) or Parquet: a file, a glob, a folder, or an s3://, gs:// or abfs:// address; or a list of "
        "these. Of two linked tables `{household: …, person: …}`, or `{person: …}` alone where each person's row has "
        "the columns of the household too. Relative to the spec file",
        examples=["intake/*.parquet", "people.csv", "{household: households.csv, person: people.csv}"],
    )
    schema_: Address = _field(
        "Schema",
        "file with the public declaration of the columns: categories and bins come from here, never from the data. "
        "Relative to the spec file",
        alias="schema",
        examples=["schema.yaml"],
    )
    method: str = _field("Method", "what fits the model, see `synth methods`", "privmrf")
    preset: str = _field(
        "Preset", "the method's named set of constants, see `synth methods`; `default` is recommended", "default"
    )
    options: dict[str, Any] = Field(
        default_factory=dict, title="Options", description="constants of the preset to replace, by name"
    )
    epsilon: float = _field(
        "Privacy loss ε",
        "privacy loss that this release spends from the account. Smaller is more private and less accurate: below 0.1 "
        "is very strict, 0.5 to 2 is usual for an extract, above 8 protects little",
        ge=LEAST_EPSILON,
        le=100,
        examples=[1.0],
    )
    delta: float = _field(
        "Failure probability δ",
        "must be the account's delta, which is fixed for its whole life: at most 1 / (10 × the largest possible number "
        "of records)",
        gt=0,
        lt=1,
        examples=[1e-6],
    )
    strata: Strata | None = _field(
        "Strata",
        "a categorical column, for one model each of its values, fitted in parallel; together they cost what the "
        "dearest of them costs. `district within state` also keeps districts consistent with their state. Left out: "
        "one model of all records",
        None,
        examples=["region", "district within state"],
    )
    protect: tuple[Protected, ...] = _field(
        "Protected tables",
        "columns, pairs or triples of them that are measured whatever the method would choose, because relations "
        "between rare values are lost otherwise, and so are means that hang on few records; for the methods that can "
        "(`synth plan` refuses the others)",
        (),
        examples=[[["sex", "veteran"]]],
    )
    protect_share: float = _field(
        "Share for protected tables",
        "share of the method's budget that measures the tables of `protect`, all of them together; nothing is "
        "spent if there are none",
        0.1,
        gt=0,
        le=0.9,
    )
    pairs_share: float = _field(
        "Share for pairs of people",
        "of two linked tables, share of the budget that measures who lives with whom; with 0, the people of a "
        "household are independent given the household",
        PAIRS_SHARE,
        ge=0,
        lt=1,
    )
    rows: Literal["noisy"] | Annotated[int, Field(ge=1, le=10_000_000_000)] = _field(
        "Rows",
        "number of synthetic records, of linked tables that of households: `noisy` takes the noisy number of records, "
        "another number is public",
        "noisy",
    )
    shards: int = _field("Shards", "number of files of the extract, drawn in parallel", 4, ge=1, le=10_000)
    csv: bool = _field("CSV", "whether the shards are written as CSV files too, in a folder of their own", False)
    escape_formulas: bool = _field(
        "Escape formulas",
        "whether text in CSV files that a spreadsheet would run as a formula (it begins with =, +, - or @) gets an "
        "apostrophe before it",
        False,
    )
    uncertainty: int = _field(
        "Replicates of the model",
        "how often the model is fitted again to redrawn noise, which gives every number its error (`synth ask`) and "
        "costs no privacy; more give steadier intervals and take longer, 0 gives none",
        12,
        ge=0,
        le=200,
    )
    publish_answers: bool = _field(
        "Noisy answers",
        "whether `answers.parquet` with every noisy answer and its standard deviation is published; the certificate "
        "covers it either way",
        True,
    )
    replicates: int = _field(
        "Replicate tables",
        "number of further synthetic tables, each drawn from a replicate of the model, so that an analysis shows how "
        "far its result may be off (`synth combine`); 10 are good, and each takes the space of the extract",
        0,
        ge=0,
        le=100,
    )
    seed: int = _field(
        "Sampling seed",
        "seed of the row sampler, which is post-processing; privacy noise has no seed",
        0,
        ge=0,
        lt=2**63,
    )
    quality_share: float = _field(
        "Share for published quality",
        "share of the budget that buys noisy true errors for the public report; 0 buys none",
        0.0,
        ge=0,
        le=0.5,
    )
    evaluate: Literal["full", "quick", "none"] = _field(
        "Comparison with real rows",
        "what the internal report holds: `full` has every measure, `quick` those of up to three columns at a time "
        "and no classifiers, `none` compares nothing and writes no report. What is published does not depend on it",
        "full",
    )
    bins_share: float = _field(
        "Share for bins",
        "share of the budget that buys the bins of columns with `private_quantiles`, all of them together; 0 if there "
        "are none",
        0.0,
        ge=0,
        le=0.25,
    )
    moments_share: float = _field(
        "Share for sums",
        "share of the budget that buys the sums of numbers inside bins for columns with `moments: true`, all of them "
        "together; 0 if there are none",
        0.0,
        ge=0,
        le=0.25,
    )
    unit: Annotated[str, AfterValidator(check_unit)] = _field(
        "Unit of privacy", "whom one record belongs to, as the account declares it", "person"
    )
    reuse: tuple[ReleaseName, ...] = _field(
        "Reused releases",
        "earlier releases of this account that were made from the same rows: their noisy answers are used again, which "
        "costs nothing. That the rows are the same is declared here and never looked up; a release whose noisy answers "
        "disagree with the new ones is set aside. For privmrf, without strata",
        (),
        examples=[["2026-q1"]],
    )
    prior: Prior | None = _field(
        "Public prior",
        "a public table with some or all of the columns, such as an earlier extract: what it says is taken over as "
        "far as noisy answers bear it out, else it is set aside. For privmrf, without strata, `protect` and `reuse`",
        None,
        examples=["public/2025.parquet because the office published it as a public-use file in 2025"],
    )
    approval: bool = _field(
        "Approval",
        "whether a person must approve the release before it is published, after seeing the certificate",
        False,
    )
    schedule: Schedule | None = _field(
        "Schedule",
        "when Airflow makes a release: a cron line, a calendar in words, or an asset; left out: never",
        None,
        examples=["third Tuesday after quarter end"],
    )
    pool: str | None = _field(
        "Pool",
        "Airflow pool of the release's tasks; made with one slot if there is none",
        None,
        examples=["census"],
    )
    deadline_hours: Annotated[float, Field(gt=0, le=8760)] | None = _field(
        "Deadline", "hours after which people are notified that an Airflow run is not finished", None, examples=[12]
    )

    @classmethod
    def parse(cls, values: dict[str, Any], *, where: str = "release spec", text: str | None = None) -> ReleaseSpec:
        """Validate a mapping; every problem is named in one line.

        Args:
            values: The keys and values of a spec.
            where: What a refusal begins with, such as the file's name.
            text: The YAML text that the values were read from, for the lines of what is wrong.

        Returns:
            The spec.

        Raises:
            SpecError: A key is unknown, missing or has a value outside its limits.
        """
        if not isinstance(values, dict):
            raise SpecError(f"{where}: expected keys and values; see `synth init` for an example")
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise SpecError(f"{where}: {_in_words(error, text)}") from None

    @classmethod
    def load(cls, path: Path) -> ReleaseSpec:
        """Read a spec file.

        Args:
            path: The YAML file.

        Returns:
            The spec, with source and schema relative to the caller's directory.

        Raises:
            SpecError: The file cannot be read, is not YAML, or is no valid spec.
        """
        try:
            text = read_document(path)
            values = parse_document(text)
        except Unreadable as wrong:
            raise SpecError(f"{path}: {wrong}; `synth init DIR` writes an example") from None
        spec = cls.parse(values, where=str(path), text=text)
        return spec.placed(lambda address: _beside(path, address))

    def placed(self, place: Callable[[str], str]) -> ReleaseSpec:
        """The spec with other addresses of source, schema and prior.

        Args:
            place: gives the address that stands for one of the spec's.

        Returns:
            The same spec but for these.
        """

        def each(own: Addresses) -> Addresses:
            return place(own) if isinstance(own, str) else tuple(map(place, own))

        source: Addresses | LinkedSource
        if isinstance(self.source, LinkedSource):
            source = LinkedSource.model_validate({name: each(own) for name, own in self.source.addresses.items()})
        else:
            source = each(self.source)
        prior = self.prior and self.prior.model_copy(update={"source": place(self.prior.source)})
        return self.model_copy(update={"source": source, "schema_": place(self.schema_), "prior": prior})

    @property
    def linked(self) -> bool:
        """Whether it is about two linked tables."""
        return isinstance(self.source, LinkedSource)

    @property
    def sources(self) -> dict[str, Addresses]:
        """Its sources, by the name of the table where it has two."""
        return self.source.addresses if isinstance(self.source, LinkedSource) else {"": self.source}

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the synthetic tables, each a folder of the extract; a single one has no name and no folder."""
        return TABLES if self.linked else ("",)

    @property
    def refits(self) -> int:
        """How often the model is fitted again; that of linked tables is not."""
        return 0 if self.linked else self.uncertainty

    @property
    def table_files(self) -> int:
        """Number of Parquet files of all synthetic tables: the extract's shards, then those of each replicate table."""
        return self.shards * (1 + self.replicates)

    @property
    def sampling_tasks(self) -> int:
        """Number of tasks that share these files where each is a task of its own."""
        return min(self.table_files, MAX_TASKS)

    def dump(self) -> dict[str, Any]:
        """The spec as plain values, with the keys of the YAML file; of one table without those of linked tables."""
        plain = self.model_dump(by_alias=True)
        if isinstance(self.source, LinkedSource):
            return {**plain, "source": self.source.addresses}
        del plain["pairs_share"]
        return plain

    def save(self, path: Path) -> None:
        """Write the spec as YAML.

        Args:
            path: The file to write.
        """
        path.write_text(yaml.safe_dump(self.dump(), sort_keys=False, allow_unicode=True), encoding="utf-8")


_OWNERS: dict[str, type[BaseModel]] = {"strata": Strata, "source": LinkedSource, "prior": Prior}
"""What the keys below a key of the spec belong to."""


def _beside(spec: Path, address: str) -> str:
    return address if "://" in address else os.path.realpath(spec.parent / address)


def _in_words(error: ValidationError, text: str | None) -> str:
    words = []
    for problem in error.errors(include_url=False, include_input=False, include_context=False):
        key = ".".join(str(part) for part in problem["loc"] if part not in ALTERNATIVES)
        line = f"line {find_line(text, problem['loc'])}: " if text is not None else ""
        if problem["type"] == "extra_forbidden":
            owner: type[BaseModel] = _OWNERS.get(str(problem["loc"][0]), ReleaseSpec)
            known = [field.alias or name for name, field in owner.model_fields.items()]
            all_keys = f" (known keys: {', '.join(known)})"
            words.append(f"{line}unknown key {key!r}{suggest(problem['loc'][-1], known) or all_keys}")
        elif problem["type"] == "missing":
            words.append(f"key {key!r} is missing")
        else:
            said = _WORDING.get(problem["type"], problem["msg"].removeprefix("Value error, "))
            words.append(f"{line}{key}: {said}")
    return "; ".join(dict.fromkeys(words))


class Series(NamedTuple):
    """A spec file of the folder and what it says."""

    path: Path
    spec: ReleaseSpec


class Releases(NamedTuple):
    """All that a releases folder holds: the series that can run, and for each other file what is wrong with it."""

    series: tuple[Series, ...]
    broken: tuple[str, ...]


def read_releases(folder: Path) -> Releases:
    """Read every YAML file of the folder, not of its subfolders; one that is wrong does not hide the others."""
    if not folder.is_dir():
        raise SpecError(f"SYNTH_RELEASES: {folder} is not a folder; create it, or name the folder of the specs")
    found: dict[str, Series] = {}
    broken = []
    for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        try:
            spec = ReleaseSpec.load(path)
            if len(spec.release) > LONGEST_NAME:
                raise SpecError(f"{path}: release names of a series get a date; use at most {LONGEST_NAME} characters")
            if spec.release in found:
                raise SpecError(
                    f"{path}: release {spec.release!r} is also in {found[spec.release].path.name}; "
                    "give each series a name of its own"
                )
            found[spec.release] = Series(path, spec)
        except SpecError as wrong:
            broken.append(str(wrong))
    return Releases(tuple(found.values()), tuple(broken))


def date_release(spec: ReleaseSpec, moment: datetime, *, planned: bool) -> ReleaseSpec:
    """The spec of the single release that a series makes at a moment; its name carries the date.

    `planned` says that cron or calendar named the moment. Moments that may share a day carry the time too.
    """
    zone = ZoneInfo(spec.schedule.timezone if spec.schedule else "UTC")
    alone = planned and spec.schedule is not None and spec.schedule.at_most_daily
    date = f"{moment.astimezone(zone):{'%Y-%m-%d' if alone else '%Y-%m-%d-%H%M%S'}}"
    return ReleaseSpec.parse({**spec.dump(), "release": f"{spec.release}-{date}", "schedule": None})
