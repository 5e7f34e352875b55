"""The public declaration of a table: its columns, their codes, and the combinations that cannot occur.

A schema is written by hand as YAML and read before any data is opened:

    columns:
      - {name: sex, kind: categorical, values: [F, M], labels: {F: female, M: male}}
      - {name: age, kind: integer, bounds: [0, 99], bins: 20, hierarchy: [0, 20, 65, 100]}
      - {name: income, kind: real, bins: [0, 500, 1000, 5000], nullable: true, unseen: clip}
    rules:
      - {name: children earn nothing, when: {age: {max: 14}}, never: {income: {min: 0}}}

What is written is a `DeclaredSchema`, in which bins may still have to be bought. A `Schema` is one in which every
column has its codes; nothing else can encode, count, model or judge. `DeclaredSchema.resolve` is the one way to it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar, get_args

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, ModelWrapValidatorHandler, ValidationError, ValidationInfo, model_validator

from synth_core.documents import Unreadable, parse_document, read_document
from synth_core.domain import Domain, Impossible
from synth_core.errors import SchemaError
from synth_core.markup import table_html
from synth_core.names import one_line
from synth_core.schema.attached import Attached, Lookup, inline_tables
from synth_core.schema.checks import check_columns, check_declared_rules, describe_errors
from synth_core.schema.columns import AnyColumn, Column
from synth_core.schema.columns.base import Declaration
from synth_core.schema.columns.numbers import NumberBase
from synth_core.schema.rules import AnyRule, Dependency, Rule, columns_of
from synth_core.schema.template import declare_columns
from synth_core.schema.value_rules import RuleGroup, ValueRule, group_rules

if TYPE_CHECKING:
    import pandas as pd

Edges = Mapping[str, tuple[Any, ...]]
"""Edges of bins, by column."""


class DeclaredSchema(Declaration):
    """What a schema file says: columns in the order of the table, and the rules between them.

    Anything wrong is one SchemaError. Bins may still have to be bought, so a column need not have codes yet.
    """

    columns: tuple[Column, ...] = Field(min_length=1)
    rules: tuple[AnyRule, ...] = ()
    attached: tuple[Attached, ...] = Field(
        default=(), description="columns that are looked up or computed from published ones, in decoded rows alone"
    )
    unit_column: Annotated[str, Field(min_length=1), AfterValidator(one_line)] | None = Field(
        default=None,
        description="names the unit of each row; read to bound contributions, never kept",
    )
    unit_kind: Literal["text", "integer"] = Field(
        default="text",
        description="how that column is read: `integer` takes 7, 007 and 7.0 for one unit, `text` compares letters",
    )

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a schema file.

        Args:
            path: a YAML file.

        Returns:
            The schema.

        Raises:
            SchemaError: if it cannot be read, declares something wrong or, read as a `Schema`, leaves bins to be
                bought; begins with the file's name.
        """
        try:
            text = read_document(path)
            schema: Self = _read_with_tables(text, cls, Path(path).parent) if "table" in text else _read(text, cls)
            return schema
        except (Unreadable, SchemaError) as wrong:
            raise SchemaError(f"{path}: {wrong}") from None

    def save(self, path: str | Path) -> None:
        """Write the schema as YAML that `load` reads back to an equal schema.

        Args:
            path: the file to write.
        """
        text = yaml.safe_dump(self._plain(), sort_keys=False, allow_unicode=True, width=110)
        Path(path).write_text(text, encoding="utf-8")

    def digest(self) -> str:
        """SHA-256 of the canonical JSON: equal for equal declarations, however the file is laid out."""
        return declaration_digest(self._plain())

    @property
    def private_columns(self) -> tuple[NumberBase, ...]:
        """The columns whose edges are measured privately, bought or not."""
        return tuple(own for column in self.columns if (own := column.private_bins) is not None)

    @property
    def private_bin_columns(self) -> tuple[str, ...]:
        """Names of columns whose edges are measured privately."""
        return tuple(column.name for column in self.private_columns)

    def resolve(self, edges: Edges | None = None) -> Schema:
        """Put bought bins in their places.

        Args:
            edges: the edges of bins that were bought, by column; left out where the declaration has them all.

        Returns:
            The schema in which every column has its codes.

        Raises:
            SchemaError: if a column is left whose bins are to be bought; names it and the remedy.
        """
        return self._with_bought(edges or {}, Schema)

    @cached_property
    def on_grid(self) -> Schema:
        """The schema in which bins that are to be bought are the cells of their grids."""
        return self.resolve({column.name: column.grid_edges for column in self.private_columns})

    @property
    def planned(self) -> Schema:
        """The schema with as many bins as are to be bought, wherever their edges will be: for plans made beforehand."""
        return self.resolve({column.name: column.even_edges for column in self.private_columns})

    @property
    def declaration(self) -> DeclaredSchema:
        """The schema as a person wrote it, with no bins bought."""
        return self._with_bought(dict.fromkeys(self.private_bin_columns), DeclaredSchema)

    def _with_bought(self, edges: Mapping[str, tuple[Any, ...] | None], kind: type[Declared]) -> Declared:
        bought = {c.name: c.with_bought(edges[c.name]) for c in self.private_columns if c.name in edges}
        if not bought and isinstance(self, kind):
            return self
        columns = tuple(bought.get(column.name, column) for column in self.columns)
        facts = {
            "rules": self.rules,
            "attached": self.attached,
            "unit_column": self.unit_column,
            "unit_kind": self.unit_kind,
        }
        return kind.model_validate({"columns": columns, **facts})

    def _plain(self) -> Any:
        """The declaration as lists and mappings, defaults left out but each column's kind kept."""
        raw = self.model_dump(exclude_defaults=True, by_alias=True)
        columns = zip(self.columns, raw["columns"], strict=True)
        raw["columns"] = [{"name": column.name, "kind": column.kind, **given} for column, given in columns]
        return raw

    @model_validator(mode="wrap")
    @classmethod
    def _one_line(cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        try:
            return handler(data)
        except ValidationError as error:
            raise SchemaError(describe_errors(error, data, text=info.context, keys=_KEYS)) from None

    @model_validator(mode="after")
    def _check(self) -> Self:
        """SchemaError if columns, rules and unit do not fit each other; where bins are to be bought, on the grid."""
        self.on_grid  # noqa: B018 - a Schema checks itself
        return self


class Schema(DeclaredSchema):
    """A schema in which every column has its codes: what encodes, counts, models and judges a table."""

    @classmethod
    def from_sizes(cls, sizes: Mapping[str, int]) -> Schema:
        """Declare columns of codes, each decoded to the same integers.

            >>> from synth_core import Schema
            >>> Schema.from_sizes({"a": 2, "b": 3}).domain.cells()
            6

        Args:
            sizes: the number of codes of each column; a column of size n holds 0 … n-1.

        Returns:
            The schema.
        """
        columns = [{"kind": "categorical", "name": name, "values": range(size)} for name, size in sizes.items()]
        return cls.model_validate({"columns": columns})

    @classmethod
    def from_frame_template(
        cls,
        frame: pd.DataFrame,
        *,
        values: Mapping[str, Sequence[Any] | Mapping[Any, str]] | None = None,
        bounds: Mapping[str, Sequence[Any]] | None = None,
        bins: int | Mapping[str, int | Sequence[Any]] = 20,
        nullable: Collection[str] = (),
        leave_out: Collection[str] = (),
    ) -> Schema:
        """Declare the columns of a frame, in their order.

        Only names and types of the frame's columns are read, never a value: which values there are is itself a
        statement about people, so it has to come from a questionnaire or a classification.

            >>> import pandas as pd
            >>> people = pd.DataFrame({"sex": ["f"], "age": [34], "name": ["…"]})
            >>> schema = Schema.from_frame_template(
            ...     people, values={"sex": {"f": "female", "m": "male"}}, bounds={"age": (0, 99)}, leave_out=["name"]
            ... )
            >>> [(column.name, column.kind, column.size) for column in schema.columns]
            [('sex', 'categorical', 2), ('age', 'integer', 20)]

        Args:
            frame: the table; its type says whether numbers are whole (int64, Int64) or real (float64).
            values: for each column of categories its values, or a mapping of values to labels.
            bounds: for each column of numbers its smallest and largest value.
            bins: into how many bins numbers are cut, for all columns or for each; or the edges of a column's bins,
                which need no bounds.
            nullable: columns in which a value may be missing.
            leave_out: columns that are not modelled.

        Returns:
            The schema.

        Raises:
            SchemaError: a column is declared nowhere, or what is declared does not fit; names the column.
        """
        said = {"values": values or {}, "bounds": bounds or {}, "bins": bins}
        columns = declare_columns(frame.dtypes, **said, nullable=nullable, leave_out=leave_out)  # type: ignore[arg-type]
        return cls.model_validate({"columns": columns})

    def _repr_html_(self) -> str:
        rows = [
            (column.name, column.kind, f"{column.size:,}", ", ".join(column.captions[:SHOWN]) + _more(column.size))
            for column in self.columns
        ]
        note = f"{len(self.rules)} rules" if self.rules else ""
        head = ("column", "kind", "codes", "what they stand for")
        title = f"{len(self.columns)} columns, {self.domain.cells():.3g} possible records"
        return table_html(rows, title=title, head=head, note=note)

    @cached_property
    def domain(self) -> Domain:
        """Names and sizes of the columns, OTHER and NULL codes counted, what the rules exclude, and the hierarchies."""
        names, sizes = tuple(c.name for c in self.columns), tuple(c.size for c in self.columns)
        excluded = tuple(one for rule in self.rules if not isinstance(rule, ValueRule) for one in self.impossible(rule))
        excluded += tuple(one for group in self.value_groups for one in _impossible_bins(group))
        coarser = tuple((c.name, c.groups) for c in self.columns if c.groups is not None)
        return Domain(names, sizes, excluded, coarser)

    @property
    def as_decoded(self) -> Self:
        """The schema as its own decoded rows are read, which have no unit, and in which OTHER may be an empty cell."""
        columns = tuple(column.as_decoded for column in self.columns)
        return self.model_copy(update={"columns": columns, "unit_column": None})

    @cached_property
    def value_groups(self) -> list[RuleGroup]:
        """The rules about numbers, those that share columns together."""
        numbers = {column.name: own for column in self.columns if (own := column.numbers) is not None}
        return group_rules([rule for rule in self.rules if isinstance(rule, ValueRule)], numbers)

    def column(self, name: str) -> AnyColumn:
        """Find a column.

        Args:
            name: its name.

        Returns:
            The column.

        Raises:
            SchemaError: there is none of that name.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise SchemaError(f"column {name!r} is not in the schema")

    def violations(self, frame: pd.DataFrame) -> dict[str, NDArray[np.bool_]]:
        """Find the rows that break a rule.

        Args:
            frame: a table in the schema's own values, such as a synthetic one.

        Returns:
            For each rule by name, whether each row breaks it.

        Raises:
            SchemaError: the table has not all columns of a rule.
        """
        broken = {}
        for rule in self.rules:
            names = rule.columns if isinstance(rule, ValueRule) else columns_of(rule)
            for name in names:
                if name not in frame.columns:
                    raise SchemaError(f"rule {rule.name!r}: the table has no column {name!r}; add it")
            if isinstance(rule, ValueRule):
                broken[rule.name] = rule.broken({name: self.column(name).numbers_in(frame[name]) for name in names})
                continue
            rows = np.zeros(len(frame), dtype=np.bool_)
            for clauses in rule.combinations:
                met = [self.column(name).matching_rows(frame[name], items) == holds for name, items, holds in clauses]
                rows |= np.all(met, axis=0)
            broken[rule.name] = rows
        return broken

    def impossible(self, rule: Rule | Dependency) -> tuple[Impossible, ...]:
        """Translate a rule to codes.

        Args:
            rule: one of the schema's rules about codes.

        Returns:
            The combinations of codes that it excludes; what no code can meet anyway is left out.
        """
        found = []
        for clauses in rule.combinations:
            masks: dict[str, NDArray[np.bool_]] = {}
            for name, items, holds in clauses:
                mask = self.column(name).covered_codes(items, holds=holds)
                masks[name] = masks[name] & mask if name in masks else mask
            if all(mask.any() for mask in masks.values()):
                codes = {name: tuple(np.flatnonzero(mask).tolist()) for name, mask in masks.items()}
                found.append(Impossible(rule.name, tuple(codes.items())))
        return tuple(found)

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_columns(self)
        check_declared_rules(self)
        for number, one in enumerate(self.attached):
            one.check({column.name: column for column in self.columns})
            if one.name in {other.name for other in self.attached[:number]}:
                raise SchemaError(f"attached {one.name!r}: declared twice; name each once")
        if self.unit_column is None and self.unit_kind != "text":
            raise SchemaError("unit_kind: there is no unit_column that it speaks of; name it or leave both out")
        if self.unit_column in self.domain:
            raise SchemaError(f"unit_column {self.unit_column!r} is also in columns; a unit's name is not published")
        return self


Declared = TypeVar("Declared", bound=DeclaredSchema)

SHOWN = 6
"""Codes of a column that a notebook names."""


def _more(size: int) -> str:
    return f", … {size - SHOWN:,} more" if size > SHOWN else ""


def _impossible_bins(group: RuleGroup) -> Iterator[Impossible]:
    """Combinations of bins that cannot be; those of the last but one column with the same forbidden ones together."""
    table, choices = group.impossible(), group.choices
    names = [column.name for column in group.columns]

    def codes_of(place: int, chosen: Iterable[int]) -> tuple[int, ...]:
        return tuple(code for one in chosen for code in choices[place][one])

    for head in np.ndindex(*table.shape[:-2]):
        together: dict[tuple[int, ...], list[int]] = {}
        for chosen, forbidden in enumerate(table[head]):
            if forbidden.any():
                together.setdefault(tuple(np.flatnonzero(forbidden).tolist()), []).append(chosen)
        for last, middle in together.items():
            parts = [codes_of(place, at) for place, at in enumerate([*((one,) for one in head), middle, last])]
            yield Impossible(group.rules[0].name, tuple(zip(names, parts, strict=True)))


def _read_with_tables(text: str, kind: type[Declared], folder: Path) -> Declared:
    """The same with lookup tables, which are read each time."""
    raw = _parsed(text)
    inline_tables(raw, folder)
    return kind.model_validate(raw, context=text)


@lru_cache(maxsize=8)
def _read(text: str, kind: type[Declared]) -> Declared:
    """The schema that a text declares; every step of a release reads the same text, and parsing it takes 0.1 s."""
    return kind.model_validate(_parsed(text), context=text)


def _parsed(text: str) -> dict[str, Any]:
    raw = parse_document(text, words=True)
    if not isinstance(raw, dict):
        raise SchemaError("a schema file is a mapping with the key columns")
    if "tables" in raw:
        raise SchemaError("tables: two linked tables are declared, and this takes one; LinkedSchema.load reads them")
    return raw


_KEYS = {
    key
    for kind in (DeclaredSchema, Attached, Lookup, *get_args(AnyColumn), *get_args(AnyRule))
    for key in getattr(kind, "model_fields", ())
}


def declaration_digest(plain: Any) -> str:
    """SHA-256 of the canonical JSON of a declaration as plain data."""
    canonical = json.dumps(_keyed_by_text(plain), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _keyed_by_text(value: Any) -> Any:
    """The value with each mapping that JSON would change, because of its keys, as a list of pairs."""
    if isinstance(value, list | tuple):
        return [_keyed_by_text(item) for item in value]
    if not isinstance(value, dict):
        return value
    items = {key: _keyed_by_text(item) for key, item in value.items()}
    return items if all(isinstance(key, str) for key in items) else sorted(items.items(), key=repr)
