"""How cost grows with the size of a census, from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from synth_core.errors import SpecError

app = typer.Typer(no_args_is_help=True, help="Measure how cost grows with the size of a generated census.")


@app.command()
def scale(
    out: Annotated[Path, typer.Option(help="Folder for scale.jsonl, scale.md and the generated tables.")],
    rows: Annotated[str, typer.Option(help="Numbers of rows; without them the sizes of the published table.")] = "",
    columns: Annotated[str, typer.Option(help="Numbers of columns, each with every number of rows.")] = "",
    workers: Annotated[str, typer.Option(help="Numbers of Dask workers, for `counting_on_workers`.")] = "2",
    parts: Annotated[
        str,
        typer.Option(
            help="`counting` (all pairs, one thread, beside np.bincount and np.histogramdd), `counting_on_workers`, "
            "`ingest` (a CSV file), `reading` (Arrow only reads it), `sampling` (Parquet shards), `release` (all steps)"
        ),
    ] = "counting,counting_on_workers,ingest,reading,sampling,release",
    again: Annotated[bool, typer.Option(help="Measure again what is in the table already.")] = False,
) -> None:
    """Measure how cost and memory grow with rows, columns and workers, on a generated census.

    Each size runs in a process of its own; exponents are fitted to every line of sizes. It goes on where it was
    stopped: name the same --out again, with the same or other sizes.

    Example: `synth bench scale --out bench-out/scale --rows 100000,1000000 --columns 15,30 --parts counting,release`
    """
    from synth_core.bench.scale import benchmark, list_tasks

    tasks = list_tasks(
        _list(parts),
        rows=_counts(rows, "--rows") if rows else [],
        columns=_counts(columns, "--columns") if columns else [],
        workers=_counts(workers, "--workers"),
    )
    results = benchmark(tasks, out, report=lambda line: typer.echo(line, err=True), again=again)
    typer.echo(f"{out / 'scale.md'}: {len(results)} sizes")


@app.command()
def capacity(
    results: Annotated[Path, typer.Option(help="scale.jsonl of `synth bench scale`.")],
) -> None:
    """Show what large censuses would cost on clusters, computed from measured costs and their exponents.

    The results need the parts counting, counting_on_workers, ingest, sampling and release.

    Example: `synth bench capacity --results bench-out/scale/scale.jsonl`
    """
    from synth_core.bench.capacity import markdown
    from synth_core.bench.scale import load

    typer.echo(markdown(load(results)), nl=False)


def _counts(text: str, option: str) -> list[int]:
    numbers = [int(item) if item.isdigit() else 0 for item in _list(text)]
    if not numbers or min(numbers) < 1:
        raise SpecError(f"{option} {text} is not a list of positive whole numbers; write e.g. 100000,1000000")
    return numbers


def _list(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
