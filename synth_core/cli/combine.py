"""The command that combines what an analysis gives on each replicate table."""

from __future__ import annotations

import csv
import sys
from io import StringIO
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from synth_core.errors import SourceError
from synth_core.files import escape_formula, explain, read_file
from synth_core.names import suggest

EXTRACT = "extract"
"""What the file calls the release's own table."""
COLUMNS = ("table", "name", "estimate")
"""Columns that the file must have."""
LARGEST = 1e150
"""Upper limit of the size of a number: its square is one too."""
HEAD = ("name", "estimate", "error", "low", "high", "own error")


class _Estimates(NamedTuple):
    """What the file holds: estimates and own standard errors of each table, by the name of what they are about."""

    tables: list[str]
    values: dict[str, dict[str, float]]
    errors: dict[str, dict[str, float]]


def combine(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV file with the estimates of every table.")],
    about: Annotated[
        str,
        typer.Option(help="What they are about: the confidential table, or the population that it is a sample of."),
    ] = "table",
    level: Annotated[float, typer.Option(min=50, max=99.9, help="Percent of true values that intervals cover.")] = 95,
    output: Annotated[str, typer.Option("--format", help="table or csv.")] = "table",
) -> None:
    """Give estimates from synthetic data honest standard errors.

    FILE has one line for each table and estimate: `table` (extract, or the name of a replicate table), `name` (such as
    the term of a regression), `estimate` and, if at hand, `error`, the standard error that the analysis states itself.
    With `extract` lines the extract's estimates are the result, otherwise the mean over the replicate tables.

    Example: `synth combine estimates.csv --level 95`
    """
    from synth_core.inference import combine as combined_estimate

    for option, given, known in (("--about", about, ("table", "population")), ("--format", output, ("table", "csv"))):
        if given not in known:
            raise SourceError(f"{option} must be {' or '.join(known)}, not {given!r}{suggest(given, known)}")
    read = _read(file)
    replicates = [table for table in read.tables if table != EXTRACT]
    names = list(read.values[read.tables[0]])
    estimates = [[read.values[table][name] for name in names] for table in replicates]
    variances = [[read.errors[table][name] ** 2 for name in names] for table in replicates] if read.errors else None
    published = [read.values[EXTRACT][name] for name in names] if EXTRACT in read.tables else None
    combined = combined_estimate(
        estimates, variances, published=published, about="population" if about == "population" else "table"
    )
    own = read.errors.get(EXTRACT, {})
    low, high = combined.interval(level / 100)
    columns = zip(names, combined.estimate, combined.error, low, high, map(own.get, names), strict=True)
    lines = [[name, *("" if one is None else f"{one:.6g}" for one in numbers)] for name, *numbers in columns]
    _write([list(HEAD), *lines], as_csv=output == "csv")


def _read(file: Path) -> _Estimates:
    """The file's lines, each table with the same names."""
    found = _Estimates([], {}, {})
    try:
        text = read_file(file).decode("utf-8-sig")
        reader = csv.DictReader(StringIO(text, newline=""), restval="")
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise SourceError(f"{file}: column {missing[0]!r} is missing; it needs table, name and estimate")
        for number, line in enumerate(reader, start=2):
            _take(found, line, where=f"{file}, line {number}")
    except OSError as error:
        raise SourceError(f"{file} cannot be read: {explain(error)}") from None
    except (UnicodeDecodeError, csv.Error):
        raise SourceError(f"{file} cannot be read as CSV; check the file") from None
    if not found.tables:
        raise SourceError(f"{file} has no estimates; give one line for each table and estimate")
    names = set(found.values[found.tables[0]])
    for table in found.tables:
        if set(found.values[table]) != names:
            raise SourceError(f"{file}: table {table!r} has other names than the first; give every table the same ones")
        if found.errors and set(found.errors.get(table, ())) != names:
            raise SourceError(f"{file}: table {table!r} lacks errors that others have; give all of them or none")
    return found


def _take(found: _Estimates, line: dict[str, str], *, where: str) -> None:
    table, name = line["table"], line["name"]
    for text in (table, name):
        if not text or not text.isprintable():
            raise SourceError(f"{where}: a table or a name is empty or has control characters; write one line of text")
    if table not in found.values:
        found.tables.append(table)
    own = found.values.setdefault(table, {})
    if name in own:
        raise SourceError(f"{where}: {name!r} of table {table!r} is there twice; give each once")
    own[name] = _number(line["estimate"], where)
    if line.get("error"):
        found.errors.setdefault(table, {})[name] = _number(line["error"], where)


def _number(text: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise SourceError(f"{where}: not a number; write it with a decimal point") from None
    if not abs(number) <= LARGEST:
        raise SourceError(f"{where}: a number that is missing, infinite or above {LARGEST:g}; use another unit")
    return number


def _write(lines: list[list[str]], *, as_csv: bool) -> None:
    if as_csv:
        csv.writer(sys.stdout, lineterminator="\n").writerows([escape_formula(name), *rest] for name, *rest in lines)
        return
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for name, *numbers in lines:
        cells = (number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True))
        typer.echo("  ".join([name.ljust(widths[0]), *cells]))
