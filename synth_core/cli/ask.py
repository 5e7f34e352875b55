"""The command that asks a published release for a table, with an interval for each number."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from synth_core.errors import SpecError
from synth_core.names import suggest

FORMATS = ("table", "csv", "json")


def ask(
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help="Public folder of a release, or a copy of it.")],
    by: Annotated[str, typer.Option(help="Columns of the table, with commas; without, one number.")] = "",
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=VALUE", help="Only records with this value; repeat it for other values or columns."
        ),
    ] = None,
    mean: Annotated[str, typer.Option(metavar="COLUMN", help="Means of this column of numbers.")] = "",
    share: Annotated[bool, typer.Option("--share", help="Shares of the records instead of counts.")] = False,
    count: Annotated[bool, typer.Option("--count", help="Counts, which is what is shown without this.")] = False,
    level: Annotated[float, typer.Option(min=50, max=99.9, help="Percent of true values that intervals cover.")] = 90,
    output: Annotated[str, typer.Option("--format", help="table, csv or json.")] = "table",
) -> None:
    """Ask a published release for counts, shares or means, with intervals.

    The numbers are the model's own, without the sampling error of the synthetic rows. Neither the ledger nor any other
    file than the release's public ones is read, so it works on a copy, and asking costs no privacy.

    Example: `synth ask workspace/public/2026-q1 --by region,age --where sex=female --share`
    """
    from synth_core.inference.published import load_release

    if output not in FORMATS:
        raise SpecError(f"--format must be table, csv or json, not {output!r}{suggest(output, FORMATS)}")
    if sum((bool(mean), share, count)) > 1:
        raise SpecError("--mean, --share and --count exclude each other; give one of them")
    names = [name.strip() for name in by.split(",") if name.strip()]
    found = load_release(release).ask(
        names, where=_condition(where or []), share=share, mean=mean or None, level=level / 100
    )
    typer.echo({"table": found.__str__, "csv": lambda: found.to_csv().rstrip("\n"), "json": found.to_json}[output]())


def _condition(texts: list[str]) -> dict[str, list[str]]:
    """Values by column, as they were given."""
    found: dict[str, list[str]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise SpecError(f"--where {text!r} names no value; write COLUMN=VALUE, such as sex=F")
        found.setdefault(name.strip(), []).append(value.strip())
    return found
