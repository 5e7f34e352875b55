"""The noisy measurement file: every answer that a release was given, cell by cell, with the noise on it.

It is made from the ledger's records, so it holds what was stored and nothing else; the same answers make the same
bytes. A batch of cells is in memory at a time, however large the tables are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from synth_core.domain import Clique
from synth_core.files import atomic_write
from synth_core.privacy.accounts import Ledger, Record, State
from synth_core.privacy.answer_form import AnswerKind, Block
from synth_core.privacy.noise import GRID
from synth_core.schema.linked import AnySchema, LinkedSchema

BATCH_CELLS = 65_536
"""Cells that are written at once."""
MOST_NAMED = 3
"""Codes of a merged cell that are named; of more of them it says how many."""

TEXT = pa.dictionary(pa.int32(), pa.string())
FIELDS = pa.schema(
    [
        ("step", TEXT),
        ("purpose", TEXT),
        ("stratum", TEXT),
        ("kind", TEXT),
        ("attributes", pa.list_(pa.string())),
        ("cell", pa.list_(pa.string())),
        ("codes", pa.list_(pa.list_(pa.int32()))),
        ("answer", pa.float64()),
        ("standard_deviation", pa.float64()),
        ("mechanism", TEXT),
    ]
)
"""Columns of the file: what was asked, the cell in words and in codes, and the noisy answer with its noise."""


@dataclass(frozen=True, slots=True)
class _Answered:
    """One block of a stored answer, with the standard deviation of its numbers where that is known."""

    record: Record
    block: Block
    attributes: tuple[str, ...]
    numbers: NDArray[np.float64]
    sigma: float | None


def write_answers(path: Path, ledger: Ledger, schema: AnySchema, *, dataset: str, release: str) -> int:
    """Write every noisy answer of a release.

    Args:
        path: file to write; a reader sees nothing or the whole file.
        ledger: where the answers are.
        schema: the schema as it was run, for the words of the cells.
        dataset: the account that paid.
        release: the release that asked.

    Returns:
        Number of cells.
    """
    cells = 0
    options: dict[str, Any] = {"compression": "zstd", "store_schema": False, "write_statistics": False}
    with atomic_write(path) as temporary, pq.ParquetWriter(temporary, FIELDS, **options) as writer:
        for answered in _answers(ledger, dataset=dataset, release=release):
            for start in range(0, answered.numbers.size, BATCH_CELLS):
                batch = _batch(answered, schema, slice(start, min(start + BATCH_CELLS, answered.numbers.size)))
                writer.write_batch(batch)
                cells += batch.num_rows
    return cells


def _answers(ledger: Ledger, *, dataset: str, release: str) -> Iterator[_Answered]:
    """The blocks of all answers in the order of measuring, one answer in memory at a time."""
    for record in ledger.records(dataset=dataset, release=release):
        if record.state is not State.MEASURED or record.form is None:
            continue
        answer = ledger.reserve(record.request).answer
        assert answer is not None  # noqa: S101 - the record says that it was measured
        form, blocks = record.form, record.form.blocks
        known = record.mechanism.name in ("discrete_gaussian", "discrete_laplace")
        variances = [float(v) for v in record.mechanism.variances()] if known else []
        for number, (block, numbers) in enumerate(zip(blocks, form.split(answer), strict=True)):
            yield from _split(record, block, numbers, variances, number)


def _split(
    record: Record, block: Block, numbers: NDArray[np.int64], variances: Sequence[float], number: int
) -> Iterator[_Answered]:
    """A block as it is written: a table or a strategy whole, scores and choices one by one."""
    if block.kind in (AnswerKind.MARGINAL, AnswerKind.MERGED, AnswerKind.STRATEGY):
        # The noise of a strategy grows with its coefficients, which the record does not hold.
        sigma = None if block.kind is AnswerKind.STRATEGY else math.sqrt(variances[number])
        yield _Answered(record, block, block.clique, numbers.ravel() / GRID, sigma)
        return
    for place, value in enumerate(numbers.ravel().tolist()):
        if block.kind is AnswerKind.SCORES:
            asked = record.asked[place] if len(record.asked) == block.size else ()
            one = np.array([value / GRID])
            yield _Answered(record, block, asked, one, math.sqrt(variances[place]))
        else:
            yield _Answered(record, block, (), np.array([float(value)]), None)


def _batch(answered: _Answered, schema: AnySchema, cells: slice) -> pa.RecordBatch:
    record, count = answered.record, cells.stop - cells.start
    words, codes = _cells(answered, schema, cells)
    texts = {
        "step": record.step,
        "purpose": record.purpose,
        "stratum": record.stratum.part if record.stratum else None,
        "kind": answered.block.kind.value,
        "mechanism": record.mechanism.name.replace("_", " "),
    }
    arrays: dict[str, Any] = {name: _constant(text, count) for name, text in texts.items()}
    arrays["attributes"] = pa.array([list(answered.attributes)] * count, FIELDS.field("attributes").type)
    arrays["cell"] = pa.array(words, FIELDS.field("cell").type)
    arrays["codes"] = pa.array(codes, FIELDS.field("codes").type)
    arrays["answer"] = pa.array(answered.numbers[cells])
    arrays["standard_deviation"] = pa.array([answered.sigma] * count, pa.float64())
    return pa.RecordBatch.from_arrays([arrays[name] for name in FIELDS.names], schema=FIELDS)


def _constant(text: str | None, count: int) -> pa.DictionaryArray:
    """One text in every row."""
    places = pa.array([None if text is None else 0] * count, pa.int32())
    return pa.DictionaryArray.from_arrays(places, pa.array([text or ""], pa.string()))


def _cells(answered: _Answered, schema: AnySchema, cells: slice) -> tuple[list[list[str]], list[list[list[int]]]]:
    """The cells in words and in codes; a query of a strategy has its number and no codes."""
    block = answered.block
    if block.kind not in (AnswerKind.MARGINAL, AnswerKind.MERGED):
        numbered = block.kind is AnswerKind.STRATEGY
        return [[f"query {at}"] if numbered else [] for at in range(cells.start, cells.stop)], [
            [] for _ in range(cells.start, cells.stop)
        ]
    groups = block.groups or (None,) * len(block.clique)
    members = [_members(size, own) for size, own in zip(block.shape, groups, strict=True)]
    named = [_words(axis, own) for own, axis in zip(_captions(schema, block.clique), members, strict=True)]
    places = np.unravel_index(np.arange(cells.start, cells.stop), block.shape) if block.shape else ()
    rows = list(zip(*(axis.tolist() for axis in places), strict=True)) if places else [()]
    words = [[own[at] for own, at in zip(named, row, strict=True)] for row in rows]
    return words, [[own[at] for own, at in zip(members, row, strict=True)] for row in rows]


def _members(size: int, groups: tuple[int, ...] | None) -> list[list[int]]:
    """The codes behind each place of an axis."""
    if groups is None:
        return [[code] for code in range(size)]
    found: list[list[int]] = [[] for _ in range(size)]
    for code, group in enumerate(groups):
        found[group].append(code)
    return found


def _captions(schema: AnySchema, clique: Clique) -> list[Sequence[str]]:
    """What the codes of each attribute stand for; nothing for one that the schema has not."""
    if isinstance(schema, LinkedSchema):
        return [*schema.captions(clique)]
    known = {column.name: column.captions for column in schema.resolve().columns}
    return [known.get(name, ()) for name in clique]


def _words(axis: Sequence[Sequence[int]], captions: Sequence[str]) -> list[str]:
    """The places of an axis by the captions of their codes; a grid of bins that are bought has none."""
    return [_in_words(codes, captions) for codes in axis]


def _in_words(codes: Sequence[int], captions: Sequence[str]) -> str:
    """Codes that share a place by their captions."""
    named = [captions[code] if code < len(captions) else str(code) for code in codes]
    if len(named) <= MOST_NAMED:
        return " or ".join(named)
    return f"{named[0]} or {len(named) - 1} others"
