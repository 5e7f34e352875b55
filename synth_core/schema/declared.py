"""The public declaration of a table: its columns, their codes, and the combinations that cannot occur.

A schema is written by hand as YAML and read before any data is opened:

    columns:
      - {name: sex, kind: categorical, values: [F, M], labels: {F: female, M: male}}
      - {name: age, kind: integer, bounds: [0, 99], bins: 20, hierarchy: [0, 20, 65, 100]}
      - {name: income, kind: real, bins: [0, 500, 1000, 5000], nullable: true, unseen: clip}
    rules:
      - {name: children earn nothing, when: {age: {max: 14}}, never: {income: {min: 0}}}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray
from pydantic import Field, ModelWrapValidatorHandler, ValidationError, model_validator

from synth_core.domain import Domain, Impossible
from synth_core.errors import SchemaError
from synth_core.schema.columns import Categorical, Column, Declaration, Integer, Real
from synth_core.schema.rules import (
    AnyRule,
    Dependency,
    Rule,
    check_complete,
    columns_of,
    covered_codes,
    matching_rows,
)

__all__ = ["Categorical", "Column", "Dependency", "Integer", "Real", "Rule", "Schema"]


class Schema(Declaration):
    """Columns in the order of the table, and the rules between them; anything wrong is one SchemaError."""

    columns: tuple[Column, ...] = Field(min_length=1)
    rules: tuple[AnyRule, ...] = ()
    unit_column: str | None = Field(
        default=None,
        min_length=1,
        description="names the unit of each row; read to bound contributions, never kept",
    )
    unit_kind: Literal["text", "integer"] = Field(
        default="text",
        description="how that column is read: `integer` takes 7, 007 and 7.0 for one unit, `text` compares letters",
    )

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a schema file; a refusal begins with the file's name."""
        try:
            return _schema_of(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise SchemaError(f"{path}: the schema file cannot be read: {reason}") from error
        except SchemaError as error:
            raise SchemaError(f"{path}: {error}") from error

    @classmethod
    def from_sizes(cls, sizes: Mapping[str, int]) -> Schema:
        """A schema of integer-coded columns: each holds 0 … size-1 and is decoded to the same integers."""
        columns = [
            {"kind": "categorical", "name": name, "values": range(size)} for name, size in sizes.items()
        ]
        return cls.model_validate({"columns": columns})

    def save(self, path: str | Path) -> None:
        """Write the schema as YAML that `load` reads back to an equal schema."""
        text = yaml.safe_dump(_plain(self), sort_keys=False, allow_unicode=True, width=110)
        Path(path).write_text(text, encoding="utf-8")

    @cached_property
    def domain(self) -> Domain:
        """Names and sizes of the columns, OTHER and NULL codes counted, what the rules exclude, and the hierarchies."""
        names, sizes = tuple(c.name for c in self.columns), tuple(c.size for c in self.columns)
        excluded = tuple(one for rule in self.rules for one in self.impossible(rule))
        coarser = tuple((c.name, c.groups) for c in self.columns if c.groups is not None)
        return Domain(names, sizes, excluded, coarser)

    @property
    def buyers(self) -> tuple[Integer | Real, ...]:
        """The columns whose bins a release buys, bought or not."""
        return tuple(c for c in self.columns if not isinstance(c, Categorical) and c.buys_bins)

    @property
    def buying(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(column.name for column in self.buyers)

    def with_bought(self, edges: Mapping[str, tuple[Any, ...] | None]) -> Schema:
        """The same schema with these bins bought, or where it says None, not bought yet."""
        if not edges:
            return self
        columns = {column.name: column for column in self.columns}
        for column in self.buyers:
            columns[column.name] = column.with_bought(edges[column.name])
        return Schema(
            columns=tuple(columns.values()),
            rules=self.rules,
            unit_column=self.unit_column,
            unit_kind=self.unit_kind,
        )

    @property
    def on_grid(self) -> Schema:
        """The schema as a person wrote it: bins that are to be bought are the cells of their grids."""
        return self.with_bought(dict.fromkeys(self.buying))

    @property
    def expected(self) -> Schema:
        """The schema with as many bins as are to be bought, wherever their edges will be: for plans made beforehand."""
        return self.with_bought({column.name: column.even_edges for column in self.buyers})

    def column(self, name: str) -> Categorical | Integer | Real:
        """The column of that name."""
        for column in self.columns:
            if column.name == name:
                return column
        raise SchemaError(f"column {name!r} is not in the schema")

    def digest(self) -> str:
        """SHA-256 of the canonical JSON: equal for equal declarations, however the file is laid out."""
        plain = _keyed_by_text(_plain(self))
        canonical = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def violations(self, frame: pd.DataFrame) -> dict[str, NDArray[np.bool_]]:
        """For each rule, which rows of a decoded frame break it."""
        broken = {}
        for rule in self.rules:
            for name in columns_of(rule):
                if name not in frame.columns:
                    raise SchemaError(f"rule {rule.name!r}: the table has no column {name!r}; add it")
            rows = np.zeros(len(frame), dtype=np.bool_)
            for parts in rule.combinations:
                met = [
                    matching_rows(frame[p.column], self.column(p.column), p.items) == p.holds for p in parts
                ]
                rows |= np.all(met, axis=0)
            broken[rule.name] = rows
        return broken

    def impossible(self, rule: Rule | Dependency) -> tuple[Impossible, ...]:
        """The rule on codes; what no code can meet anyway is left out."""
        found = []
        for parts in rule.combinations:
            masks: dict[str, NDArray[np.bool_]] = {}
            for name, items, holds in parts:
                mask = covered_codes(self.column(name), items, holds=holds)
                masks[name] = masks[name] & mask if name in masks else mask
            if all(mask.any() for mask in masks.values()):
                codes = {name: tuple(np.flatnonzero(mask).tolist()) for name, mask in masks.items()}
                found.append(Impossible(rule.name, tuple(codes.items())))
        return tuple(found)

    @model_validator(mode="wrap")
    @classmethod
    def _one_line(cls, data: Any, handler: ModelWrapValidatorHandler[Schema]) -> Schema:
        try:
            schema = handler(data)
        except ValidationError as error:
            raise SchemaError(_readable(error, data)) from None
        _check_columns(schema)
        _check_rules(schema)
        if schema.unit_column is None and schema.unit_kind != "text":
            raise SchemaError(
                "unit_kind: there is no unit_column that it speaks of; name it or leave both out"
            )
        if schema.unit_column in schema.domain:
            raise SchemaError(
                f"unit_column {schema.unit_column!r} is also in columns; a unit's name is not published"
            )
        return schema


def _check_columns(schema: Schema) -> None:
    """A domain refuses names that are given twice."""
    Domain(tuple(c.name for c in schema.columns), tuple(c.size for c in schema.columns))
    seen: set[str] = set()
    for column in schema.columns:
        if column.role is None:
            continue
        if column.role in seen:
            raise SchemaError(
                f"column {column.name!r}: another column has the role {column.role}; keep one of them"
            )
        seen.add(column.role)
        if column.role == "income" and isinstance(column, Categorical):
            raise SchemaError(f"column {column.name!r}: an income is a number; declare it as integer or real")
        if column.role == "group" and column.declared != 2:
            raise SchemaError(f"column {column.name!r}: a group column has two values; leave the role out")


def _check_rules(schema: Schema) -> None:
    names, seen = {column.name for column in schema.columns}, set()
    for rule in schema.rules:
        if rule.name in seen:
            raise SchemaError(f"rule {rule.name!r}: declared twice; give each rule its own name")
        seen.add(rule.name)
        for name, items, _ in (part for parts in rule.combinations for part in parts):
            if name not in names:
                raise SchemaError(f"rule {rule.name!r}: column {name!r} is not in the schema")
            try:
                covered_codes(schema.column(name), items)
            except ValueError as error:
                raise SchemaError(f"rule {rule.name!r}: column {name!r}: {error}") from None
        if isinstance(rule, Dependency):
            try:
                check_complete(rule, schema.column(rule.column))
            except ValueError as error:
                raise SchemaError(f"rule {rule.name!r}: column {rule.column!r}: {error}") from None


@lru_cache(maxsize=8)
def _schema_of(text: str) -> Schema:
    """The schema that a text declares; every step of a release reads the same text, and parsing it takes 0.1 s."""
    try:
        raw = yaml.load(text, Loader=_UniqueKeys)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise SchemaError(f"{_yaml_fault(error)}; correct the file") from error
    if not isinstance(raw, dict):
        raise SchemaError("a schema file is a mapping with the key columns")
    return Schema.model_validate(raw)


class _UniqueKeys(yaml.SafeLoader):
    """YAML without its habit of letting the last of two equal keys win in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key.value!r} is given twice", key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep=deep)


def _yaml_fault(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"not valid YAML near line {error.problem_mark.line + 1}: {error.problem}"
    return "not valid YAML"


_WORDING = {
    "missing": "is missing",
    "extra_forbidden": "unknown key; remove it",
    "union_tag_not_found": "kind is missing; say categorical, integer or real",
    "union_tag_invalid": "unknown kind; say categorical, integer or real",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
}
_TAGS = {
    "categorical",
    "integer",
    "real",
    "count",
    "edges",
    "quantiles",
    "value",
    "range",
    "rule",
    "dependency",
}


def _readable(error: ValidationError, data: object) -> str:
    """The first thing wrong, as `column 'age': bins: …`."""
    first = error.errors(include_url=False)[0]
    where = [str(key) for key in _place(first["loc"], data) if key not in _TAGS]
    message = _WORDING.get(first["type"], first["msg"].removeprefix("Value error, "))
    return ": ".join([*where, message])


def _place(loc: tuple[int | str, ...], data: object) -> tuple[int | str, ...]:
    """The error's location with `columns, 3` replaced by the column's name, as far as it has one."""
    if len(loc) < 2 or not isinstance(loc[1], int):
        return loc
    word = str(loc[0]).removesuffix("s")
    try:
        item = data[loc[0]][loc[1]]  # type: ignore[index]
        name = item["name"] if isinstance(item, dict) else item.name
    except (AttributeError, KeyError, TypeError):
        return (f"{word} {loc[1] + 1}", *loc[2:])
    return (f"{word} {name!r}", *loc[2:])


def _plain(schema: Schema) -> Any:
    """The declaration as lists and mappings, defaults left out but each column's kind kept."""
    raw = schema.model_dump(exclude_defaults=True, by_alias=True)
    for given, column in zip(raw["columns"], schema.columns, strict=True):
        given["kind"] = column.kind
    raw["columns"] = [{"name": c.pop("name"), "kind": c.pop("kind"), **c} for c in raw["columns"]]
    return _lists(raw)


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_lists(item) for item in value]
    return value


def _keyed_by_text(value: Any) -> Any:
    """The value with each mapping that JSON would change, because of its keys, as a list of pairs."""
    if isinstance(value, list):
        return [_keyed_by_text(item) for item in value]
    if not isinstance(value, dict):
        return value
    items = {key: _keyed_by_text(item) for key, item in value.items()}
    return items if all(isinstance(key, str) for key in items) else sorted(items.items(), key=repr)
