"""Benchmarks from the command line: methods against each other, and how cost grows with the size of a census."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from synth_core.errors import SpecError

app = typer.Typer(
    no_args_is_help=True, help="Measure methods against each other, and how cost grows, on public data."
)

EPSILONS = "0.1,0.2,0.4,0.8,1.6,3.2"
DATASETS = "nltcs,acs,adult,br2000"


@app.callback()
def _commands() -> None:
    pass


@app.command()
def utility(
    data: Annotated[Path, typer.Option(help="Folder with NAME.csv (integer codes) and NAME-domain.json.")],
    out: Annotated[Path, typer.Option(help="Folder for utility.csv, utility.md and the pictures.")],
    datasets: Annotated[str, typer.Option(help="Names of data sets.")] = DATASETS,
    methods: Annotated[str, typer.Option(help="Ours, as `method` or `method:preset`.")] = (
        "privmrf,privmrf:paper,independent"
    ),
    peers: Annotated[str, typer.Option(help="Others: mbi, dpmm, smartnoise, or one method: dpmm/aim.")] = "",
    epsilons: Annotated[str, typer.Option(help="Privacy losses.")] = EPSILONS,
    delta: Annotated[float, typer.Option(help="The same for all.")] = 1e-5,
    runs: Annotated[int, typer.Option(help="Runs of each; means are shown.", min=1)] = 1,
    measures: Annotated[
        str,
        typer.Option(help="`marginals`, `svm` (five folds, synthesized from training folds only), or both."),
    ] = "marginals",
    limit: Annotated[float, typer.Option(help="CPU seconds after which a run is given up.", min=1)] = 1800,
    cache: Annotated[Path, typer.Option(help="Folder for the peers' environments.")] = Path(
        "bench-out/peers"
    ),
) -> None:
    """Make tables by several methods, judge them against the rows, and draw error against epsilon.

    True errors of the rows are computed without noise: use public data only. It goes on where it was stopped.

    Example: `synth bench utility --data data --datasets adult --methods privmrf --peers dpmm/mst --out bench-out`
    """
    from synth_core.bench.contest import MEASURES, contestants, jobs
    from synth_core.bench.utility import Setting, benchmark

    measured = _list(measures)
    if not measured or not set(measured) <= set(MEASURES):
        raise SpecError(f"--measures {measures} is not among: {', '.join(MEASURES)}")
    wanted = jobs(
        _list(datasets),
        contestants(_list(methods), _list(peers)),
        epsilons=[_number(text) for text in _list(epsilons)],
        runs=runs,
        measures=measured,
    )
    setting = Setting(data=data, out=out, cache=cache, delta=delta, limit=limit)
    results = benchmark(list(wanted), setting, tell=lambda line: typer.echo(line, err=True))
    typer.echo(f"{out / 'utility.csv'}: {len(results.frame)} numbers")


@app.command()
def scale(
    out: Annotated[Path, typer.Option(help="Folder for scale.jsonl, scale.md and the generated tables.")],
    rows: Annotated[
        str, typer.Option(help="Numbers of rows; without them the sizes of the published table.")
    ] = "",
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
    from synth_core.bench.scale import benchmark, wanted

    tasks = wanted(
        _list(parts),
        rows=_counts(rows, "--rows") if rows else [],
        columns=_counts(columns, "--columns") if columns else [],
        workers=_counts(workers, "--workers"),
    )
    results = benchmark(tasks, out, tell=lambda line: typer.echo(line, err=True), again=again)
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


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise SpecError(f"--epsilons: {text!r} is not a positive number")
    return value
