"""What a schema refuses when it is read: columns and rules that do not go together, and all errors in one line."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from pydantic import ValidationError

from synth_core.documents import find_line
from synth_core.domain import Domain
from synth_core.errors import SchemaError
from synth_core.names import suggest
from synth_core.schema.columns import INSTEAD, KINDS
from synth_core.schema.rules import Dependency, check_complete
from synth_core.schema.value_rules import ValueRule

if TYPE_CHECKING:
    from synth_core.schema.schema import Schema

_ANY_KIND = f"{', '.join(KINDS[:-1])} or {KINDS[-1]}"
_WORDING = {
    "missing": "is missing",
    "union_tag_not_found": f"kind is missing; say {_ANY_KIND}",
    "union_tag_invalid": f"unknown kind; say {_ANY_KIND}",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
    "tuple_type": "write a list in brackets, such as [a, b]",
    "dict_type": "write a mapping, such as {key: value}",
    "float_type": "write a number, with a decimal point and no other sign",
    "int_type": "write a whole number",
    "string_type": "write text, in quotes if it reads as a number",
}
_EXAMPLES = {
    "values": "; list them, such as values: [yes, no]",
    "bins": "; list their edges, such as bins: [0, 18, 65, 100], or give bounds and a number of bins",
}
"""What to write for a key that is missing."""
_GAPS = (
    "; an empty cell needs nullable: true, a code for missing answers is one of the values or, of numbers, the "
    "not_in_universe"
)
_OTHER_KEYS = {
    **dict.fromkeys(("missing", "na", "na_values", "null", "nan", "missing_values", "missing_codes"), _GAPS),
    **dict.fromkeys(("categories", "levels", "codes", "options"), "; did you mean 'values'?"),
    **dict.fromkeys(("edges", "breaks", "cuts"), "; did you mean 'bins'?"),
    **dict.fromkeys(("min", "max", "range"), "; write bounds: [smallest, largest]"),
    **dict.fromkeys(("type", "dtype"), "; did you mean 'kind'?"),
}
"""What to write instead of a key that people try."""
_TAGS = {*KINDS, "count", "edges", "quantiles", "value", "range", "rule", "dependency", "comparison"}


def check_columns(schema: Schema) -> None:
    """SchemaError if names or roles of columns do not go together; a domain refuses names that are given twice."""
    Domain(tuple(c.name for c in schema.columns), tuple(c.size for c in schema.columns))
    seen: set[str] = set()
    for column in schema.columns:
        if column.role is None:
            continue
        if column.role in seen:
            raise SchemaError(f"column {column.name!r}: another column has the role {column.role}; keep one of them")
        seen.add(column.role)
        if column.role == "income" and column.levels is None:
            raise SchemaError(f"column {column.name!r}: an income is a number; declare it as integer or real")
        if column.role == "group" and column.declared != 2:
            raise SchemaError(f"column {column.name!r}: a group column has two values; leave the role out")


def check_declared_rules(schema: Schema) -> None:
    """SchemaError if a rule names what the schema does not have, or is declared twice."""
    names, seen = {column.name for column in schema.columns}, set()
    for rule in schema.rules:
        if rule.name in seen:
            raise SchemaError(f"rule {rule.name!r}: declared twice; give each rule its own name")
        seen.add(rule.name)
        if isinstance(rule, ValueRule):
            _check_value_rule(rule, schema)
            continue
        for name, items, _ in (part for parts in rule.combinations for part in parts):
            if name not in names:
                raise SchemaError(f"rule {rule.name!r}: column {name!r} is not in the schema{suggest(name, names)}")
            try:
                schema.column(name).covered_codes(items)
            except ValueError as error:
                raise SchemaError(f"rule {rule.name!r}: column {name!r}: {error}") from None
        if isinstance(rule, Dependency):
            try:
                check_complete(rule, schema.column(rule.column))
            except ValueError as error:
                raise SchemaError(f"rule {rule.name!r}: column {rule.column!r}: {error}") from None


def _check_value_rule(rule: ValueRule, schema: Schema) -> None:
    names = {column.name for column in schema.columns}
    for name in rule.columns:
        if name not in names:
            raise SchemaError(f"rule {rule.name!r}: column {name!r} is not in the schema{suggest(name, names)}")
        column = schema.column(name)
        if column.numbers is None:
            raise SchemaError(f"rule {rule.name!r}: column {name!r} holds no numbers in bins; declare it as integer")
        if column.private_bins is not None:
            raise SchemaError(f"rule {rule.name!r}: column {name!r} has bins that are bought; list their edges instead")


def describe_errors(error: ValidationError, data: object, *, text: str | None, keys: Collection[str]) -> str:
    """Everything that is wrong, each as `line 7: column 'age': bins: …`, with lines of the text if it is given.

    Args:
        error: what a model of the schema refused.
        data: the plain values that it was given.
        text: the file's text.
        keys: all keys of a schema, of which the nearest is proposed for an unknown one.

    Returns:
        One line.
    """
    found, problems = [], error.errors(include_url=False)
    for problem in problems:
        loc = problem["loc"]
        if any(other["loc"][: len(loc)] == loc != other["loc"] for other in problems):
            continue  # wrong because of what is wrong inside
        line = [] if text is None else [f"line {find_line(text, loc)}"]
        last = len(loc) - 1 if problem["type"] == "extra_forbidden" else None  # a key, though a tag may have its name
        place = _place(loc, data)
        where = [str(key) for at, key in enumerate(place, len(loc) - len(place)) if at == last or key not in _TAGS]
        message = _WORDING.get(problem["type"], problem["msg"].removeprefix("Value error, "))
        if problem["type"] == "union_tag_invalid":
            tag = problem.get("ctx", {}).get("tag", "")
            message += INSTEAD.get(tag.lower(), suggest(tag, KINDS))
        elif problem["type"] == "union_tag_not_found" and isinstance(given := problem["input"], dict):
            tried = next((key for key in given if key in _OTHER_KEYS), None)
            message += "" if tried is None else f"; unknown key {tried!r}{_OTHER_KEYS[tried]}"
        elif problem["type"] == "missing":
            message += _EXAMPLES.get(str(loc[-1]), "")
        elif problem["type"] == "extra_forbidden":
            key = str(loc[-1])
            message = f"unknown key{_OTHER_KEYS.get(key) or suggest(key, keys) or '; remove it'}"
        found.append(": ".join([*line, *where, message]))
    return "; ".join(dict.fromkeys(found))


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
