"""YAML that people write, read with limits: a file is refused by size and depth before anything is built of it.

The parser of libyaml is a loop, but what builds values of its events calls itself for every level, in C: a file of a
few kilobytes that opens 50,000 brackets would end the process. An alias repeats what its anchor names, so a few
lines can stand for more values than fit in memory. Both are counted over the events first.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import yaml

from synth_core.files import explain, read_file

MAX_BYTES = 32 * 2**20
"""Upper limit of the size of a YAML file."""
MAX_JSON = 2**30
"""Upper limit of the size of a JSON file that a step has written."""
MAX_DEPTH = 32
"""Upper limit of the levels of lists and mappings inside each other."""
MAX_VALUES = 4_000_000
"""Upper limit of the values, keys included, with all aliases written out."""

_BROKEN = (ValueError, ArithmeticError, LookupError, TypeError, AttributeError)
"""What yaml raises besides its own errors: for dates, numbers and tagged texts that are none."""

_COMPILED: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # eight times as fast


class Unreadable(ValueError):
    """A file is no document that can be used; the text says why and what to do, and does not name the file."""


def read_document(path: str | Path) -> str:
    """Returns the text of a YAML file.

    Args:
        path: A regular file; anything else, such as a device, is refused without being opened.

    Raises:
        Unreadable: It cannot be read, is larger than MAX_BYTES, or is not UTF-8 text.
    """
    try:
        return read_file(path, limit=MAX_BYTES).decode("utf-8")
    except UnicodeDecodeError:
        raise Unreadable("it is not UTF-8 text") from None
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise Unreadable(f"it is larger than {MAX_BYTES >> 20} MB; make it smaller") from None
        if error.errno in (errno.ENODEV, errno.EISDIR):
            raise Unreadable("it is not a file; name a YAML file") from None
        raise Unreadable(f"it cannot be read: {explain(error)}") from None


def parse_document(text: str, *, words: bool = False) -> Any:
    """Returns what a YAML text says, as plain values; a mapping that gives a key twice is refused.

    Args:
        text: The YAML text.
        words: Whether all is text but plain decimal numbers and null: `no`, `true`, `010` and `2020-01-31` then are
            what they look like, and not a truth value, eight, and a date.

    Raises:
        Unreadable: It is not valid YAML, or exceeds a limit.
    """
    try:
        _check_limits(text)
        return yaml.load(text, Loader=_Words if words else _Loader)  # noqa: S506 - both are safe loaders
    except yaml.YAMLError as error:
        raise Unreadable(_fault(error)) from None
    except Unreadable:
        raise
    except _BROKEN:
        raise Unreadable("not valid YAML: a date, a number or a tagged value is none; put it in quotes") from None


def parse_json(text: str | bytes) -> Any:
    """Returns what a JSON text says; ValueError if it is none, or if it is nested deeper than Python can follow."""
    try:
        return json.loads(text)
    except RecursionError:
        raise Unreadable("it is nested too deep") from None


def read_json(path: str | Path, *, limit: int = MAX_JSON) -> Any:
    """Returns what a JSON file says; ValueError if it is none, OSError if it cannot be read (see `files.read_file`)."""
    return parse_json(read_file(path, limit=limit))


def find_line(text: str, place: Sequence[int | str]) -> int:
    """Returns the line, counted from 1, on which a value of a YAML text begins.

    Args:
        text: A text that `parse_document` reads.
        place: Keys and positions that lead to the value; one that the text does not have is passed over.
    """
    node, line = yaml.compose(text, Loader=_COMPILED), 0
    for step in place:
        inside: list[tuple[Any, Any]] = []
        if isinstance(node, yaml.MappingNode):
            inside = [(key, value) for key, value in node.value if key.value == str(step)]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            inside = [(value, value) for value in node.value[step : step + 1]]
        for key, value in inside[:1]:
            node, line = value, key.start_mark.line
    return line + 1


def _check_limits(text: str) -> None:
    """Count levels and values over the events of the parser, in which nothing is nested."""
    values: dict[str, int] = {}  # of each anchor that is finished
    open_at: list[tuple[str | None, int]] = []
    total = 0
    for event in yaml.parse(text, Loader=_COMPILED):
        if isinstance(event, yaml.CollectionStartEvent):
            open_at.append((event.anchor, total))
            if len(open_at) > MAX_DEPTH:
                raise Unreadable(f"it is nested more than {MAX_DEPTH} levels deep; make it flatter")
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_at.pop()
            if anchor is not None:
                values[anchor] = total - before
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor is not None:
                values[event.anchor] = 1
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in values:
                raise Unreadable("an alias stands inside of what it names, or names nothing; write it out")
            total += values[event.anchor]
        if total > MAX_VALUES:
            raise Unreadable(f"it has more than {MAX_VALUES:,} values; make it smaller")


class _Loader(_COMPILED):  # type: ignore[misc] # chosen when imported
    """YAML without its habit of letting the last of two equal keys win in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} is given twice", key.start_mark)
            seen.add(str(key.value))
        found: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return found


class _Words(_Loader):
    """YAML in which codes of a codebook stay as they are written."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - replaces that of the class above, see below


_DECIMAL = r"[-+]?(0|[1-9][0-9]*)"
WHOLE = re.compile(_DECIMAL)
"""Text that is a whole number in a schema."""
REAL = re.compile(rf"({_DECIMAL}\.[0-9]*|[-+]?\.[0-9]+|{_DECIMAL}(?=[eE]))([eE][-+]?[0-9]+)?")
"""Text that is another number there."""

for _tag, _pattern, _first in (
    ("int", rf"{WHOLE.pattern}$", "-+0123456789"),
    ("float", rf"({REAL.pattern})$", "-+.0123456789"),
    ("float", r"([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$", "-+."),
    ("null", r"(~|null|Null|NULL|)$", ("~", "n", "N", "")),
    ("merge", r"<<$", "<"),
):
    _Words.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^{_pattern}"), list(_first))


def _fault(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        remedy = "; indent with spaces, not with tabs" if "cannot start any token" in str(error.problem) else ""
        return f"not valid YAML near line {error.problem_mark.line + 1}: {error.problem}{remedy}"
    return "not valid YAML"
