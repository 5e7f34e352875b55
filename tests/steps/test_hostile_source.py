"""Whole releases of sources that one hostile line, or a second name, would have made into others."""

from __future__ import annotations

import gzip

import pandas as pd
import pytest
from support.small_release import ROWS, people, write_release

from synth_core.errors import SourceError
from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.release.paths import ReleasePaths
from synth_core.steps import prepare, run_step


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_a_line_with_a_stray_quote_ends_a_release_before_anything_is_measured(tmp_path, ending):
    """Neighbours that differ by the line f,30,shop,"oops are refused or released as they are, never as other rows."""
    source = tmp_path / f"source.{ending}"
    spec = write_release(tmp_path, method="independent", source=str(source))
    text = people().assign(note="").to_csv(index=False).encode()
    hostile = text.replace(b"\n", b'\nf,30,shop,"oops\n', 1)
    source.write_bytes(gzip.compress(hostile, mtime=0) if ending == "csv.gz" else hostile)
    address = prepare(spec, workspace=tmp_path / "workspace")
    with pytest.raises(SourceError, match="a line is not one record"):
        run_step("ingest", address)
    assert SqlLedger(ledger_url(tmp_path / "workspace", None)).balance("people").charged_mu2 == 0


def test_a_source_named_by_two_globs_and_a_link_has_its_rows_once(tmp_path):
    spec = write_release(tmp_path, method="independent")
    (tmp_path / "again.csv").symlink_to(tmp_path / "people.csv")
    spec["source"] = (str(tmp_path / "*.csv"), str(tmp_path / "p*.csv"))
    address = prepare(spec, workspace=tmp_path / "workspace")
    run_step("ingest", address)
    encoded = ReleasePaths.of_address(address).encoded
    assert sum(len(pd.read_parquet(path)) for path in encoded.glob("*.parquet")) == ROWS
