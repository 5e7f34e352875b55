"""The public names of a package as a page: signature, docstring, arguments, and the public parts of classes."""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import dataclass, is_dataclass
from typing import Any

from pydantic import BaseModel

SECTION = re.compile(r"^(Args|Attributes|Returns|Raises):$", re.MULTILINE)
ITEM = re.compile(r"^    (\*{0,2}\w+): (.*)$")
WIDTH = 100
"""Letters of a signature that fit on one line."""


@dataclass(frozen=True, slots=True)
class Docstring:
    """A Google-style docstring: what comes first, then named entries or text under each heading."""

    text: str
    sections: dict[str, str]

    @classmethod
    def of(cls, documented: Any) -> Docstring:
        """Read the docstring of a function, class or property."""
        text, *rest = SECTION.split(inspect.getdoc(documented) or "")
        return cls(text.strip(), dict(zip(rest[::2], rest[1::2], strict=True)))

    def entries(self, section: str) -> dict[str, str]:
        """What is said about each name under a heading; a line that is indented further goes on with the last."""
        found: dict[str, str] = {}
        for line in self.sections.get(section, "").splitlines():
            if item := ITEM.match(line):
                found[item[1].lstrip("*")] = item[2].strip()
            elif line.strip() and found:
                found[next(reversed(found))] += f" {line.strip()}"
        return found


def public_names(package: str) -> dict[str, Any]:
    """Returns what a package exports, by name."""
    module = importlib.import_module(package)
    return {name: getattr(module, name) for name in module.__all__ if not name.startswith("_")}


def public_members(documented: type) -> dict[str, Any]:
    """Returns the methods and properties that a class and our own classes above it define for others."""
    own = [vars(one) for one in reversed(documented.__mro__) if one.__module__.startswith("synth_core")]
    members = {name: getattr(part, "__func__", part) for parts in own for name, part in parts.items()}
    return {
        name: part
        for name, part in members.items()
        if not name.startswith("_") and (inspect.isfunction(part) or isinstance(part, property))
    }


def arguments(function: Any) -> list[inspect.Parameter]:
    """Returns the parameters that a caller gives."""
    parameters = inspect.signature(function).parameters.values()
    return [parameter for parameter in parameters if parameter.name not in ("self", "cls")]


def python_names(package: str) -> str:
    """Every public name of a package, functions before classes."""
    names = public_names(package)
    ordered = sorted(names, key=lambda name: (inspect.isclass(names[name]), name.lower()))
    return "\n\n".join(
        _class(name, names[name]) if inspect.isclass(names[name]) else _function(f"### `{name}`", name, names[name])
        for name in ordered
    )


def _function(heading: str, name: str, function: Any) -> str:
    said = Docstring.of(function)
    parts = [heading, f"```py\n{signature(name, function)}\n```", said.text]
    parts += [_entries("argument", said.entries("Args")), _words(said, "Returns")]
    parts.append(_entries("raises", said.entries("Raises")))
    return "\n\n".join(part for part in parts if part)


def _class(name: str, documented: type) -> str:
    said = Docstring.of(documented)
    call = f"```py\n{signature(name, documented)}\n```" if is_dataclass(documented) else ""
    parts = [f"### `{name}`", call, said.text, _entries("attribute", said.entries("Attributes"))]
    if issubclass(documented, BaseModel):
        parts.append("Its fields are the [keys of the file](keys.md).")
    for member, part in public_members(documented).items():
        if isinstance(part, property):
            parts.append(f"`.{member}`: {_one_line(Docstring.of(part).text)}")
        else:
            parts.append(_function("", f".{member}", part))
    return "\n\n".join(part for part in parts if part)


def signature(name: str, function: Any) -> str:
    """The call as a person would write it, with types and defaults; one parameter a line where it is long."""
    shown, keywords = [], False
    for parameter in arguments(function):
        if parameter.kind is parameter.KEYWORD_ONLY and not keywords:
            keywords = True
            shown.append("*")
        stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        default = "" if parameter.default is parameter.empty else f" = {_default(parameter.default)}"
        typed = "" if parameter.annotation is parameter.empty else f": {parameter.annotation}"
        shown.append(f"{stars}{parameter.name}{typed}{default}")
    returned = inspect.signature(function).return_annotation
    gives = "" if inspect.isclass(function) or returned is inspect.Signature.empty else f" -> {returned}"
    line = f"{name}({', '.join(shown)}){gives}"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {one},\n" for one in shown) + f"){gives}"


def _default(value: Any) -> str:
    return str(getattr(value, "__name__", None) or repr(value))


def _entries(head: str, entries: dict[str, str]) -> str:
    lines = [f"| {head} | |", "| --- | --- |"]
    lines += [f"| `{name}` | {words.replace('|', chr(92) + '|')} |" for name, words in entries.items()]
    return "\n".join(lines) if entries else ""


def _words(said: Docstring, section: str) -> str:
    return f"**{section}:** {_one_line(said.sections[section])}" if section in said.sections else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())
