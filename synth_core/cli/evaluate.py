"""The command that compares any two tables of one schema."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from synth_core.errors import SourceError
from synth_core.files import atomic_write
from synth_core.progress import report_progress

if TYPE_CHECKING:
    import pandas as pd


def evaluate(
    real: Annotated[Path, typer.Argument(metavar="REAL", help="CSV or Parquet file or folder with the real rows.")],
    synthetic: Annotated[
        Path,
        typer.Argument(metavar="SYNTHETIC", help="CSV or Parquet file or folder with the synthetic rows."),
    ],
    schema: Annotated[Path, typer.Option(help="Schema file of both tables.")],
    out: Annotated[Path, typer.Option(help="Folder for evaluation.json and report.html (confidential).")],
) -> None:
    """Compare a synthetic table with the real one: TVD of marginals and SVM error, with pictures.

    The result holds true errors of real rows: it is written to files that only you can read, and never printed, since
    logs of cron and CI keep what is printed.

    Example: `synth evaluate data/people.csv workspace/public/example/extract --schema schema.yaml --out internal/`
    """
    from synth_core.report.internal import compare_and_report
    from synth_core.schema import Schema

    declared = Schema.load(schema)
    with report_progress("Comparing the tables") as progress:
        evaluation, report = compare_and_report(
            _read(real),
            _read(synthetic),
            declared,
            title=f"{synthetic.name} against {real.name}",
            progress=progress,
        )
    out.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, text in (("evaluation.json", evaluation.to_json()), ("report.html", report)):
        with atomic_write(out / name) as temporary:
            temporary.touch(mode=0o600)
            temporary.write_text(text, encoding="utf-8")
    typer.echo(f"true errors (confidential): {out / 'report.html'}")


def _read(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        if path.is_dir():  # shards of one kind; releases of earlier versions have CSV beside Parquet
            shards = sorted(path.glob("*.parquet")) or sorted(path.glob("*.csv"))
            return pd.concat(map(_read, shards), ignore_index=True)
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        return pd.read_csv(path, dtype=str, keep_default_na=False, na_values=[""])
    except (OSError, ValueError):
        raise SourceError(f"{path}: cannot be read as CSV or Parquet") from None
