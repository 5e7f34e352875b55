"""The way of a row and the way of a spend through the code, followed in a small release and kept short.

A release of the method `independent` runs in this process, and a profiler looks at what is handed to every function of
`synth_core` and at what it returns.

A **row** travels as the text of its line, as Arrow cells and as codes, all recognised by the number of records, a prime
that nothing else has; then as exact counts, whole numbers with a sum that is a multiple of it, or in `Private`. It ends
where noise is added. A made-up row, recognised by another prime, begins where a model is sampled and ends in the
published table. Behind the wall there is no row, but a noisy answer (`Measurement`) and a model; the **whole way** has
these too. Followed are the steps that lead to the published table; `evaluate`, which hands nothing on, is not, and
replicates of the model, from which no row comes, are left out.

A **spend** begins where a method puts a question to the curator, with the mu^2 that it may cost, and travels as the
mechanism that this buys, as the request, its reservation and the facts of its record, all recognised by type and by
its purpose. It ends when its answer is stored.

A **hop** is a handing over from a function of one file to a function of another one, as an argument or as a result. It
is counted once for each giving file and receiving function, however often it happens. What a function hands to others
of its own file is that file's own affair, and what an object is asked about itself (its methods' `self`) is no handing
over. The **files** are those of all functions through whose hands it goes. docs/explanation/architecture.md tells both
ways in words.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from support.small_release import people, write_release

import synth_core
from synth_core.measurement import Measurement
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.privacy.accounts import Record, Reservation, SpendRequest
from synth_core.privacy.budget import NONE, Mechanism
from synth_core.privacy.wall import Private
from synth_core.steps import STEPS, prepare, run_step

CODE = Path(synth_core.__file__).parent
ROWS, SYNTHETIC = 617, 1009
PURPOSE = "one-way"
"""Of the only question of the method `independent`."""


class Way:
    """Hops and files of what `carries` recognises."""

    def __init__(self, carries: Callable[[Any], bool]) -> None:
        self.carries = carries
        self.hops: set[tuple[str, str]] = set()
        self.files: set[str] = set()

    def note(self, frame: Any, here: str, handed: list[Any]) -> None:
        if not any(map(self.found, handed)):
            return
        caller = frame.f_back
        while caller is not None and function(caller) is None:
            caller = caller.f_back
        file, giver = file_of(here), file_of(function(caller) if caller else here)
        self.files |= {file, giver}
        if file != giver:
            self.hops.add((giver, here))

    def found(self, value: Any, depth: int = 2) -> bool:
        if depth and isinstance(value, list | tuple):
            return any(self.found(one, depth - 1) for one in value)
        if depth and isinstance(value, dict) and any(self.found(one, depth - 1) for one in value.values()):
            return True
        return self.carries(value)


def function(frame: Any) -> str | None:
    """The file and name of a function of the product; inner functions belong to the one around them."""
    path = frame.f_code.co_filename
    if not path.startswith(str(CODE)):
        return None
    return f"{Path(path).relative_to(CODE)}:{frame.f_code.co_qualname.partition('.<locals>')[0]}"


def file_of(place: str) -> str:
    return place.partition(":")[0]


def arguments(frame: Any) -> list[Any]:
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return [frame.f_locals[name] for name in names if name not in ("self", "cls") and name in frame.f_locals]


@contextmanager
def following(*ways: Way) -> Iterator[None]:
    """Threads begin here, so that they are followed too."""

    def note(frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "return") and (here := function(frame)) is not None:
            for way in ways:
                way.note(frame, here, [argument] if event == "return" else arguments(frame))

    before = sys.getprofile()
    with ThreadPoolExecutor(1) as pool, dask.config.set(pool=pool):
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            yield
        finally:
            sys.setprofile(before)
            threading.setprofile(None)  # type: ignore[arg-type]


def carries_rows(value: Any) -> bool:
    if isinstance(value, bytes):
        return ROWS <= value.count(b"\n") <= ROWS + 3
    if isinstance(value, pa.Table | pa.RecordBatch | pd.DataFrame | pd.Series | pa.Array | pa.ChunkedArray):
        return len(value) in (ROWS, ROWS + 2, SYNTHETIC)
    if isinstance(value, np.ndarray):
        counts = value.dtype.kind in "iu" and value.size > 1 and value.sum() > 0 and value.sum() % ROWS == 0
        return ROWS in value.shape or SYNTHETIC in value.shape or bool(counts)
    return isinstance(value, Private)


def carries_what_is_left(value: Any) -> bool:
    return carries_rows(value) or isinstance(value, Measurement | MarkovRandomField)


def carries_spend(value: Any) -> bool:
    if isinstance(value, dict):
        return value.get("purpose") == PURPOSE
    if isinstance(value, SpendRequest | Record):
        return value.purpose == PURPOSE
    return isinstance(value, Mechanism | Reservation) and value != NONE


def release(folder: Path) -> str:
    spec = write_release(folder, frame=people(ROWS), method="independent", rows=SYNTHETIC, shards=1, uncertainty=0)
    return prepare(spec, workspace=folder / "workspace")


@pytest.fixture(scope="module")
def ways(tmp_path_factory):
    """The ways of a row, of a row and what is left of it, and of a spend."""
    address = release(tmp_path_factory.mktemp("ways"))
    row, whole, spend = Way(carries_rows), Way(carries_what_is_left), Way(carries_spend)
    followed = {"score": (row, whole, spend), "evaluate": ()}
    for step in STEPS:
        with following(*followed.get(step, (row, whole))):
            run_step(step, address)
    return {"row": row, "whole": whole, "spend": spend}


@pytest.mark.parametrize(("name", "hops", "files"), [("row", 30, 18), ("whole", 37, 26), ("spend", 16, 9)])
def test_the_way_stays_short(ways, name, hops, files):
    way = ways[name]
    told = "\n".join([*(f"{giver} -> {place}" for giver, place in sorted(way.hops)), *sorted(way.files)])
    assert len(way.hops) <= hops, told
    assert len(way.files) <= files, told


@pytest.mark.parametrize(
    ("name", "between"),
    [
        (
            "row",
            [
                "storage/sources.py",
                "schema/codec.py",
                "storage/counting.py",
                "privacy/noise.py",
                "steps/sample.py",
            ],
        ),
        ("spend", ["privacy/curator.py", "privacy/budget.py", "ledger/verbs.py"]),
    ],
)
def test_the_way_is_followed_all_along(ways, name, between):
    assert set(between) <= ways[name].files, "the profiler has lost it: what it recognises is gone"


@pytest.mark.parametrize("name", ["row", "spend"])
def test_the_page_names_every_file_of_the_way(ways, name):
    page = (CODE.parent / "docs" / "explanation" / "architecture.md").read_text()
    words = page.partition(f"## The way of a {name}")[2].partition("\n## ")[0]
    assert [file for file in sorted(ways[name].files) if f"`{file}`" not in words] == []
