"""What a name may be: of a release, an account or a unit, and which names of releases are taken."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
"""Names become folder names and ledger keys, so they are short, lower-case and free of separators."""

SIGNING_KEY, SNAPSHOT_KEY = "signing.key", "snapshot.key"
RESERVED = frozenset({SIGNING_KEY, SNAPSHOT_KEY})
"""Names that no release may have: earlier versions kept keys under them, where releases have their folders."""

MAX_UNIT_LETTERS = 100
"""Upper limit of the letters in the name of a unit of privacy."""

TABLES = ("household", "person")
"""The names of two linked tables."""


def check_name(text: str) -> str:
    """Returns the name of an account, or of anything else that is a folder or a key; ValueError if it is none."""
    if not NAME.fullmatch(text):
        raise ValueError("use 1 to 100 of a-z, 0-9, '.', '_', '-', starting with a letter or digit")
    return text


def check_release_name(text: str) -> str:
    """Returns the name of a release; ValueError if it is none, or if it is reserved."""
    if text in RESERVED:
        raise ValueError(f"{text!r} is the name of a key; use another name")
    return check_name(text)


def check_unit(text: str) -> str:
    """Returns the name of a unit of privacy; ValueError unless it is one short line without spaces around it."""
    if not 0 < len(text) <= MAX_UNIT_LETTERS or text != text.strip():
        raise ValueError(f"use 1 to {MAX_UNIT_LETTERS} letters without spaces around them, such as person")
    return one_line(text)


def suggest(word: object, known: Iterable[str]) -> str:
    """Returns a question to end a refusal of an unknown word with, such as "; did you mean 'epsilon'?", or nothing."""
    near = get_close_matches(str(word), known, n=1, cutoff=0.7)
    return f"; did you mean {near[0]!r}?" if near else ""


def one_line(text: str) -> str:
    """Returns the text; ValueError if it has control characters, which survive neither CSV nor YAML unharmed."""
    if text.isprintable():
        return text
    if any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in text):
        raise ValueError("line breaks and control characters are not allowed; remove them")
    return text
