"""Strata of a release: what a spec declares, the same in the schema's codes, and the parts that are modelled alone.

Everything here is public: it comes from spec and schema, and from the noisy number of rows of each stratum. DAG files
import this module through the spec, so nothing heavy is imported at its top.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from synth_core.documents import read_json
from synth_core.errors import SourceError, SpecError

if TYPE_CHECKING:
    from synth_core.domain import Domain
    from synth_core.privacy.accounts import Stratum
    from synth_core.schema import Categorical, Schema

Share = Annotated[float, Field(gt=0, le=0.5)]


class Strata(BaseModel):
    """One model for each value of a column, or for a few values together.

    The short form is one line of text: `region`, or `district within state`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    by: str = Field(min_length=1, description="categorical column whose codes are the strata")
    share: Share = Field(default=0.05, description="part of the price for the noisy rows of each stratum")
    pools: dict[str, tuple[int | str, ...]] = Field(
        default_factory=dict, description="named sets of strata that share one model"
    )
    pool_below: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="strata whose noisy number of rows is smaller share one model"
    )
    within: str | None = Field(
        default=None, min_length=1, description="the level above: a column that `by` decides, or just a name"
    )
    members: dict[str, tuple[int | str, ...]] = Field(
        default_factory=dict,
        description="strata of each value of `within`, unless the schema's hierarchy says",
    )
    upper_share: Share = Field(
        default=0.15, description="part of the price for the tables of the level above, if there is one"
    )

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if isinstance(value, dict | Strata):
            return value
        if not isinstance(value, str):
            raise ValueError("name a column, `COLUMN within LEVEL`, or give keys and values")
        words = value.split()
        if len(words) == 3 and words[1] == "within":
            return {"by": words[0], "within": words[2]}
        return {"by": value.strip()}

    @model_validator(mode="after")
    def _members_need_a_level(self) -> Strata:
        if self.members and self.within is None:
            raise ValueError("members are those of a level above; name it with `within`")
        return self


@dataclass(frozen=True, slots=True)
class Part:
    """Strata with a model of their own: one code of the column, or several that share it."""

    number: int
    name: str
    codes: tuple[int, ...]
    upper: int | None = None

    @property
    def pooled(self) -> bool:
        """Whether several strata share the model, in which the column stays an attribute."""
        return len(self.codes) > 1

    @property
    def folder(self) -> str:
        """A folder's name: unique by its number, and readable."""
        words = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")
        return f"{self.number:05d}-{words}"[:60].rstrip("-")


@dataclass(frozen=True, slots=True)
class StrataLayout:
    """The strata as declared: a name for each code of the column, pools, and the level above.

    `upper_of` gives each stratum's code in the level above. If that level is a column of the schema it is decided by
    the stratum, so no model has it and it is put back with the stratum; `level` then is its name.
    """

    by: str
    names: tuple[str, ...]
    pools: tuple[tuple[str, tuple[int, ...]], ...] = ()
    upper_names: tuple[str, ...] = ()
    upper_of: tuple[int, ...] | None = None
    level: str | None = None

    def attributes(self, domain: Domain) -> tuple[str, ...]:
        """The columns that are modelled inside a stratum."""
        return tuple(name for name in domain if name not in (self.by, self.level))


@dataclass(frozen=True, slots=True)
class Division:
    """All parts, which together hold each stratum once, and the noisy number of rows of each stratum."""

    layout: StrataLayout
    parts: tuple[Part, ...]
    rows: tuple[float, ...]

    @property
    def partition(self) -> str:
        """The ledger's name of this division.

        It ends in a fingerprint of the parts, so parts of two divisions that overlap never pass for parts of one: their
        prices would add up.
        """
        codes = json.dumps([part.codes for part in self.parts])
        return f"{self.layout.by} {hashlib.sha256(codes.encode()).hexdigest()[:12]}"

    def stratum(self, part: Part) -> Stratum:
        """The part as the ledger knows it; the number keeps apart parts whose names look the same."""
        from synth_core.privacy.accounts import Stratum

        return Stratum(partition=self.partition, part=f"{part.number} {part.name}")

    def domain(self, whole: Domain, part: Part) -> Domain:
        """What the part's model is about: a pooled one keeps the stratum column, with its own codes only."""
        for column, code in self.constants(part).items():
            whole = whole.given(column, code)
        return _only(whole, self.layout.by, part.codes) if part.pooled else whole

    def constants(self, part: Part) -> dict[str, int]:
        """Columns that have one and the same code in all records of the part."""
        fixed = {} if part.pooled else {self.layout.by: part.codes[0]}
        if self.layout.level is not None and part.upper is not None:
            fixed[self.layout.level] = part.upper
        return fixed

    def rows_of(self, part: Part) -> float:
        """The noisy number of the part's records."""
        return sum(self.rows[code] for code in part.codes)

    def save(self, path: Path) -> None:
        """Write the division as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Division:
        """Read a division that `save` wrote."""
        try:
            return TypeAdapter(cls).validate_python(read_json(path))
        except (OSError, ValueError):
            raise SourceError("the strata are not known yet; run the step `score` first") from None


def lay_out_strata(strata: Strata, schema: Schema) -> StrataLayout:
    """The declared strata in codes; whatever does not fit the schema is refused by name."""
    column = _column(strata.by, schema)
    names = [str(value) for value in column.values]
    names += ["(other)"] if column.unseen == "other" else []
    names += ["(missing)"] if column.nullable else []
    if len(names) < 2:
        raise SpecError(f"strata: column {strata.by!r} has only one code; leave strata out")
    pools = _codes_by_name(strata.pools, column, what="pools")
    upper_names, upper_of, level = _upper(strata, column, schema)
    layout = StrataLayout(strata.by, tuple(names), pools, upper_names, upper_of, level)
    if not layout.attributes(schema.domain):
        raise SpecError("strata: the schema has no column besides; there is nothing to model inside a stratum")
    for name, codes in pools:
        if len(codes) < 2:
            raise SpecError(f"strata: pool {name!r} needs two strata or more")
        if upper_of is not None and len({upper_of[code] for code in codes}) > 1:
            raise SpecError(f"strata: pool {name!r} joins strata of different {strata.within}; keep them apart")
    return layout


def divide_strata(layout: StrataLayout, rows: Sequence[float], *, pool_below: int | None) -> Division:
    """One part for each stratum, but one for each declared pool and one for all small strata of an upper code.

    What is small is decided by noisy numbers alone, so the division is post-processing.
    """
    sets = [(name, codes) for name, codes in layout.pools]
    taken = {code for _, codes in sets for code in codes}
    small: dict[int | None, list[int]] = {}
    for code, number in enumerate(rows):
        if code in taken:
            continue
        if pool_below is not None and number < pool_below:
            small.setdefault(_upper_code(layout, code), []).append(code)
        else:
            sets.append((layout.names[code], (code,)))
    for upper, codes in small.items():
        where = "" if upper is None else f" of {layout.upper_names[upper]}"
        name = f"small strata{where}" if len(codes) > 1 else layout.names[codes[0]]
        sets.append((name, tuple(codes)))
    parts = [
        Part(number, name, codes, _upper_code(layout, codes[0]))
        for number, (name, codes) in enumerate(sorted(sets, key=lambda item: item[1]))
    ]
    return Division(layout, tuple(parts), tuple(float(number) for number in rows))


def most_parts(strata: Strata, schema: Schema) -> int:
    """Returns how many parts there are if none is too small to have a model of its own."""
    layout = lay_out_strata(strata, schema)
    return len(divide_strata(layout, [math.inf] * len(layout.names), pool_below=None).parts)


def _only(domain: Domain, attribute: str, kept: tuple[int, ...]) -> Domain:
    """The domain of the records that have one of these codes, which are numbered anew."""
    from synth_core.domain import Domain, Impossible

    sizes = [len(kept) if name == attribute else domain.size(name) for name in domain]
    impossible = []
    for excluded in domain.impossible:
        codes = dict(excluded.codes)
        if attribute in codes:
            codes[attribute] = tuple(kept.index(code) for code in codes[attribute] if code in kept)
        if all(codes.values()):
            impossible.append(Impossible(excluded.rule, tuple(codes.items())))
    return Domain(domain.attributes, tuple(sizes), tuple(impossible))


def _upper_code(layout: StrataLayout, code: int) -> int | None:
    return None if layout.upper_of is None else layout.upper_of[code]


def _column(name: str, schema: Schema) -> Categorical:
    if name not in schema.domain:
        raise SpecError(f"strata: column {name!r} is not in the schema")
    column = schema.column(name)
    if column.kind != "categorical":
        raise SpecError(f"strata: column {name!r} is not categorical; only declared values can be strata")
    return column


def _codes_by_name(
    sets: dict[str, tuple[int | str, ...]], column: Categorical, *, what: str
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    found = []
    seen: set[int | str] = set()
    for name, values in sets.items():
        for value in values:
            if value not in column.values:
                raise SpecError(f"strata: {what}: {value!r} is not among the values of {column.name!r}")
            if value in seen:
                raise SpecError(f"strata: {what}: {value!r} is named twice; keep it in one")
            seen.add(value)
        found.append((name, tuple(sorted(column.values.index(value) for value in values))))
    return tuple(found)


def _upper(
    strata: Strata, column: Categorical, schema: Schema
) -> tuple[tuple[str, ...], tuple[int, ...] | None, str | None]:
    """Names of the level above, each stratum's code in it, and the level's name if it is a column."""
    if strata.within is None:
        return (), None, None
    members = strata.members or column.hierarchy
    if not members:
        raise SpecError(
            f"strata: which {strata.by} lies within which {strata.within} is not declared; give {strata.by!r} a "
            "hierarchy in the schema, or list the members in the spec"
        )
    if column.nullable or column.unseen == "other":
        raise SpecError(
            f"strata: a missing or other {strata.by} lies within no {strata.within}; declare {strata.by!r} without"
        )
    level = None
    names = list(members)
    if strata.within in schema.domain:
        level, above = strata.within, _column(strata.within, schema)
        declared = [str(value) for value in above.values]
        for name in names:
            if name not in declared:
                raise SpecError(f"strata: {name!r} is not among the values of {level!r}")
        names = declared
    codes = _codes_by_name(dict(members), column, what="members")
    upper_of = {code: names.index(name) for name, own in codes for code in own}
    for code, value in enumerate(column.values):
        if code not in upper_of:
            raise SpecError(f"strata: members: {value!r} lies within no {strata.within}; every stratum needs one")
    if len(set(upper_of.values())) == len(upper_of):
        raise SpecError(f"strata: every {strata.within} has one {strata.by} only; leave `within` out")
    return tuple(names), tuple(upper_of[code] for code in range(len(column.values))), level
