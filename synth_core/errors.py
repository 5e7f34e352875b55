"""Every refusal the product can give, each with a message that names the thing and the remedy.

Messages of these errors are shown to people and written to logs, so they never contain a value, a count or
anything else that was computed from confidential rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

MAX_LETTERS = 1200
"""Upper limit of the letters of a refusal: what it quotes of a file or an argument may be as long as somebody likes."""


def printable(text: str) -> str:
    """Returns the text with a space for each control character, so that it does to a terminal what text does."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


class SynthError(Exception):
    """Base of all refusals: its text is one clear line, fit to be shown as it is."""

    def __str__(self) -> str:
        text = printable(super().__str__())
        cut = text[: MAX_LETTERS // 2] + " … " + text[-MAX_LETTERS // 2 :]
        return text if len(text) <= MAX_LETTERS else cut


class SpecError(SynthError):
    """A release spec or a command's arguments are wrong."""


class SchemaError(SynthError):
    """A schema declaration is wrong."""


class SourceError(SynthError):
    """The confidential source does not fit its schema; names column and rule, never a value or whose row it is."""


class StorageError(SynthError):
    """A file or folder cannot be read or written."""


class FeasibilityError(SynthError):
    """What was asked would need more memory or time than the declared limit."""


class ClusterError(SynthError):
    """The Dask cluster cannot be used as asked."""


class PublishError(SynthError):
    """Ledger, manifest and artifacts do not agree, so nothing is published."""


class LedgerError(SynthError):
    """The ledger cannot be used as asked, or its chain is broken."""


class LedgerUnreachable(LedgerError):
    """The ledger's database cannot be reached at the moment; the step can be run again when it answers."""


class BudgetRefused(LedgerError):
    """The account has no room for a reservation; nothing was read and nothing was charged."""


class SharedRows(SynthError):
    """The rows belong to another account; measured in this one they would be a fresh budget for the same people."""


class RefusalsExhausted(LedgerError):
    """As many refusals have depended on the account's records as may; nothing is read until the limit is raised."""


class ReleaseEnded(LedgerError):
    """The release was ended while the step was at work; nothing more is read or charged."""


class WallError(SynthError):
    """Something failed behind the wall; the text is fixed because a real one might carry confidential values."""


class MissingExtra(SynthError):
    """A package is not installed that only an extra of this one brings."""


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """Guard the import of packages that only an extra of this one brings.

    Args:
        extra: Name of the extra in pyproject.toml.

    Raises:
        MissingExtra: If a package is not installed; names it and the extra.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "synth_core"):
            raise
        raise MissingExtra(f"this needs {package}; install synth-core[{extra}]") from None
