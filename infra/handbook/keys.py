"""Tables of the keys that the two files of a person accept, from the models that check them."""

from __future__ import annotations

import json
import math
import textwrap
from typing import Any

import yaml
from pydantic import BaseModel

from synth_core.release.spec import ReleaseSpec
from synth_core.schema import Schema

MEANINGS = {
    "Schema.columns": "the columns, in the order of the published table",
    "Schema.rules": "combinations that cannot occur",
    "name": "name of the column in the source and in the extract",
    "Rule.name": "how reports call the rule",
    "Dependency.name": "how reports call the rule",
    "ValueRule.name": "how reports call the rule",
    "Attached.name": "name of the column in the extract",
    "nullable": "whether a value may be missing; a missing value gets a code of its own",
    "unseen": "what happens to a value that is not declared: the release is refused, the value gets the code OTHER, "
    "or (numbers) it moves into the nearest bin",
    "description": "for readers",
    "kind": "which kind of column it is",
    "values": "the values, all text or all whole numbers",
    "labels": "longer words for values, for reports",
    "Categorical.hierarchy": "groups that partition the values: name of the group, then its values",
    "hierarchy": "coarser edges: some of the edges, with the first and the last",
    "bounds": "least and greatest value, where `bins` does not list the edges",
    "bins": "number of equal bins between the bounds, or the list of all edges, or how many quantiles the release buys",
    "when": "conditions on columns: values, `null`, `OTHER`, what is `not_in_universe`, or ranges such as `{max: 14}`",
    "never": "conditions that never hold together with those of `when`; a rule has `never` or `only`",
    "only": "conditions that always hold where those of `when` do",
    "column": "the column that decides",
    "decides": "the column whose value is decided",
    "by": "for each value of the decided column, what the deciding column holds with it",
    "min": "least number of the range",
    "max": "greatest number of the range",
}
"""What a key means where the model itself does not say it; `Part.key` goes before `key`."""

TYPES = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
LARGEST_SHOWN = 10**10
COMMENT, WIDTH = 28, 118
"""Columns of an example at which comments begin and end."""


def spec_keys() -> str:
    """Keys of a release spec and of what is inside it."""
    return key_tables(ReleaseSpec)


def spec_example() -> str:
    """A whole spec as YAML: each key with an example, or what it is without it, and its meaning."""
    lines = []
    for key, value in ReleaseSpec.model_json_schema()["properties"].items():
        shown = value.get("examples", [value.get("default", {})])[0]
        written = yaml.safe_dump(shown, default_flow_style=True).removesuffix("...\n").strip()
        line = f"{key}: {written}"
        if len(line) >= COMMENT:  # its comment begins below
            lines.append(line)
            line = ""
        for words in textwrap.wrap(value["description"], WIDTH - COMMENT):
            lines.append(f"{line:<{COMMENT}}# {words}")
            line = ""
    return "\n".join(["```yaml", *lines, "```"])


def schema_keys() -> str:
    """Keys of a schema and of what is inside it."""
    return key_tables(Schema)


def key_tables(model: type[BaseModel]) -> str:
    """The keys of a file, then those of every part that it may hold, each with the first words about it."""
    whole = model.model_json_schema()
    parts = [key_table(whole)]
    for part in whole.get("$defs", {}).values():
        if "properties" in part:
            words = part.get("description", "").partition("\n\n")[0].replace("\n", " ")
            parts.append(f"### {part['title']}\n\n{words}\n\n{key_table(part)}")
    return "\n\n".join(parts)


def key_table(declared: dict[str, Any]) -> str:
    """One line for each key: what it means, what it takes, what it is without it."""
    required = set(declared.get("required", ()))
    lines = ["| key | meaning | takes | if left out |", "|---|---|---|---|"]
    for key, value in declared["properties"].items():
        default = "refused" if key in required else _default(value)
        meaning = value.get("description") or _meaning(declared["title"], key)
        lines.append(f"| `{key}` | {meaning} | {takes(value)} | {default} |")
    return "\n".join(line.replace("\n", " ") for line in lines)


def takes(declared: dict[str, Any]) -> str:
    """A JSON schema's type and limits in words."""
    if "const" in declared:
        return f"`{declared['const']}`"
    if "enum" in declared:
        return " or ".join(f"`{value}`" for value in declared["enum"])
    if alternatives := declared.get("anyOf") or declared.get("oneOf"):
        words = [takes(one) for one in alternatives if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(words))
    if "$ref" in declared:
        name = declared["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if declared["type"] == "array":
        return _list(declared)
    if declared["type"] == "object":
        inside = declared.get("additionalProperties")
        return f"mapping of names to {takes(inside)}" if isinstance(inside, dict) else "mapping"
    return TYPES[declared["type"]] + _limits(declared)


def _list(declared: dict[str, Any]) -> str:
    if "prefixItems" in declared:
        return f"list of {len(declared['prefixItems'])} of: {TYPES[declared['prefixItems'][0]['type']]}"
    inside = declared["items"]
    plain = {key: value for key, value in inside.items() if key not in ("minimum", "maximum")}
    return f"list of {takes(plain)}"


def _limits(declared: dict[str, Any]) -> str:
    words = {
        "exclusiveMinimum": "above",
        "minimum": "at least",
        "exclusiveMaximum": "below",
        "maximum": "at most",
    }
    found = [
        f"{word} {declared[key]:,}"
        for key, word in words.items()
        if key in declared and abs(declared[key]) <= LARGEST_SHOWN
    ]
    return f", {', '.join(found)}" if found else ""


def _default(declared: dict[str, Any]) -> str:
    default = declared.get("default")
    if default is None or default in ([], {}, "") or (isinstance(default, float) and math.isinf(default)):
        return "none"
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def _meaning(part: str, key: str) -> str:
    try:
        return MEANINGS.get(f"{part}.{key}") or MEANINGS[key]
    except KeyError:
        raise SystemExit(f"say what {key!r} of {part} means: there, or in infra/handbook/keys.py") from None
