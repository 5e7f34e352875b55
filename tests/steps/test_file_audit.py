"""The audit begins with files: one hostile line more costs what one record costs, or the file is refused."""

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest

from synth_core.audit.adversary import run_audit
from synth_core.audit.cases import DOMAIN, HOSTILE_LINES, ROWS, file_worlds, neighbouring_files, verb_experiments
from synth_core.privacy.wall import open_private
from synth_core.storage import sources

REFUSED = [
    "an open quote",
    "an open quote at the end of the file",
    "a lone carriage return",
    "a cell too many",
    "a cell too few",
]
MEASURE = verb_experiments()["measure"]


def table(world):
    return open_private(world.tables([DOMAIN.attributes])[0])


@pytest.mark.parametrize("name", HOSTILE_LINES)
def test_a_hostile_line_is_one_record_more_or_refused(name):
    with file_worlds(HOSTILE_LINES[name]) as worlds:
        assert (worlds is None) == (name in REFUSED)
        if worlds is not None:
            without, canary = map(table, worlds)
            assert without.sum() == ROWS
            assert np.abs(canary - without).sum() == canary.sum() - without.sum() == 1


@pytest.mark.parametrize("name", ["a plain line", "quotes inside a cell", "cells of no declared value"])
def test_the_audit_from_files_passes(name):
    with file_worlds(HOSTILE_LINES[name]) as worlds:
        certified = run_audit(name, MEASURE, worlds=worlds, runs=600)
    assert certified.passed, certified.failures
    assert 1.5 < certified.mu_lower < 3


def test_a_reader_whose_quotes_reach_over_lines_is_caught(monkeypatch):
    """Arrow's reader as it comes: an open quote in the middle swallows the lines that follow."""

    def parse_as_it_comes(text, names, types, *, address):
        read = pa_csv.ReadOptions(column_names=list(names), use_threads=False)
        convert = pa_csv.ConvertOptions(column_types=dict(types), include_columns=list(types))
        return pa_csv.read_csv(pa.BufferReader(text), read_options=read, convert_options=convert)

    monkeypatch.setattr("synth_core.storage.sources.parse_lines", parse_as_it_comes)
    with file_worlds(HOSTILE_LINES["an open quote"]) as worlds:
        assert worlds is not None
        certified = run_audit("swallowed", MEASURE, worlds=worlds, runs=600)
    assert any("told apart" in failure for failure in certified.failures)


def test_the_files_differ_by_the_line_alone():
    for line in HOSTILE_LINES.values():
        without, canary = neighbouring_files(line)
        assert canary.replace(line, b"", 1) == without
        assert sources.header_names(without.split(b"\n")[0]) == (*DOMAIN.attributes, "remark")
