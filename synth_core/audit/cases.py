"""What the audit is run on: tables with and without a canary, each verb at its sharpest, and planted faults.

A planted fault is a curator that is wrong in one known way. It exists so that an auditor can see the audit fail; only
`run_audit` ever creates one, with a ledger that lives in memory.

An audit of a method begins with counted tables (`canary_codes`), or with files (`file_worlds`). Before the tables
lies the claim that one record more in a file is one row more in the encoded table, whatever that record holds. So the
two worlds may be files, read, encoded and partitioned by the code that reads a release's source, and one of them has
a hostile line more. If it changed what any other line gives, the adversary, who knows what both files became, would
tell the worlds apart at a glance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synth_core.audit.adversary import HOT_MU2, Experiment, Worlds
from synth_core.cluster import Cluster
from synth_core.domain import Clique, Domain
from synth_core.errors import SourceError
from synth_core.privacy.accounts import Answer
from synth_core.privacy.budget import Mechanism
from synth_core.privacy.curator import Curator
from synth_core.privacy.queries import BoxCount, Misfit
from synth_core.privacy.strategies import Strategy, number_sum, place_sums
from synth_core.schema import Schema
from synth_core.schema.columns import Categorical
from synth_core.storage.counting import PartitionCounts
from synth_core.storage.ingest import ingest_partitions

DOMAIN = Domain.of({"first": 2, "second": 3, "third": 4})
"""Attributes of the audited tables."""
ROWS = 40
"""Records of the table without the canary."""

CodedColumns = Mapping[str, NDArray[np.int64]]


def canary_codes(domain: Domain = DOMAIN, *, rows: int = ROWS) -> tuple[CodedColumns, CodedColumns]:
    """A small table, and the same with one record more, whose every value is used by no other record."""
    without = {
        attribute: np.arange(rows, dtype=np.int64) // (place + 1) % (size - 1)
        for place, (attribute, size) in enumerate(zip(domain.attributes, domain.sizes, strict=True))
    }
    return without, {attribute: np.append(codes, domain.size(attribute) - 1) for attribute, codes in without.items()}


def verb_experiments(domain: Domain = DOMAIN, *, rows: int = ROWS) -> dict[str, Experiment]:
    """Each verb asked so that the canary moves the answer as far as its sensitivity allows, and all in a row."""
    single = [(attribute,) for attribute in domain.attributes]
    pairs = list(zip(domain.attributes, domain.attributes[1:], strict=False))

    def measure(curator: Curator) -> None:
        curator.measure(single, HOT_MU2, purpose="tables")

    def measure_by_weight(curator: Curator) -> None:
        curator.measure(single, HOT_MU2, purpose="tables", weights=[float(i + 1) for i in range(len(single))])

    def measure_purely(curator: Curator) -> None:
        curator.measure(single[:2], HOT_MU2, purpose="tables", pure=True)

    def answer(curator: Curator) -> None:
        """Counts of the codes from each one up, which include the canary, the last code, as often as possible."""
        strategies = [
            Strategy(pair, tuple(np.triu(np.ones((n, n), dtype=np.int64)) for n in domain.shape(pair)))
            for pair in pairs
        ]
        curator.answer(strategies, HOT_MU2, purpose="answers", weights=[2.0] + [1.0] * (len(pairs) - 1))

    def sum_places(curator: Curator) -> None:
        """Sums inside bins, in which the canary lies at the end of its own."""
        shape = domain.shape(pairs[-1])
        sums = place_sums(pairs[-1], bins=shape[0], size=shape[0], places=shape[1])
        curator.answer([sums], HOT_MU2, purpose="sums")

    def sum_numbers(curator: Curator) -> None:
        """A sum over all records, in which the canary has the number that lies furthest from the centre."""
        shape = domain.shape(pairs[-1])
        numbers = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
        reach = float(numbers.max())
        total = number_sum(pairs[-1], numbers, size=shape[0], centre=0.0, reach=reach)
        curator.answer([total], HOT_MU2, purpose="sum")

    def score(curator: Curator, *, pure: bool = False) -> None:
        queries = [Misfit(pair, np.zeros(domain.shape(pair))) for pair in pairs]
        curator.score(queries, HOT_MU2, purpose="scores", pure=pure)

    def choose(curator: Curator) -> None:
        curator.choose(_opposites(domain, pairs[0], rows), HOT_MU2, purpose="choice")

    def choose_again(curator: Curator) -> None:
        """Three picks with replacement between the box of the canary and its complement."""
        corner = tuple((size - 1, size) for size in domain.shape(pairs[0]))
        boxes = [BoxCount(pairs[0], corner), BoxCount(pairs[0], corner, sign=-1, offset=-float(rows))]
        curator.choose(boxes, HOT_MU2, purpose="choices", count=3, with_replacement=True)

    def converse(curator: Curator) -> None:
        """Later questions depend on earlier answers, and one is asked twice."""
        first = curator.measure(single, HOT_MU2 / 3, purpose="tables")
        (best,) = curator.choose(_opposites(domain, pairs[0], rows), HOT_MU2 / 3, purpose="choice")
        guess = np.multiply.outer(first[0].noisy, first[1].noisy) / rows
        query = Misfit(best.clique, np.maximum(guess, 0.0))
        for _ in range(2):
            curator.score([query], HOT_MU2 / 3, purpose="scores")

    return {
        "measure": measure,
        "measure by weight": measure_by_weight,
        "measure purely": measure_purely,
        "answer": answer,
        "sum places": sum_places,
        "sum numbers": sum_numbers,
        "score": score,
        "score purely": partial(score, pure=True),
        "choose": choose,
        "choose again": choose_again,
        "measure, then choose, then score": converse,
    }


def _opposites(domain: Domain, clique: Clique, rows: int) -> list[Misfit]:
    """Two candidates whose utilities are -1/2 and 1/2 without the canary, and the other way round with it.

    This is the choice that loses most: two outcomes with privacy losses eta/2 and -eta/2.
    """
    nothing = np.zeros(domain.shape(clique))
    expected = nothing.copy()
    expected[tuple(size - 1 for size in domain.shape(clique))] = 10.0  # where the canary is
    return [Misfit(clique, nothing, penalty=rows + 0.5), Misfit(clique, expected, penalty=rows + 9.5)]


class _Silence:
    """Words that are all zero, of which every sampler makes zero noise."""

    name = "silence (planted faults only)"

    def words(self, n: int) -> NDArray[np.uint64]:
        return np.zeros(n, dtype=np.uint64)


class PlantedFault(Curator):
    """A curator whose noisy numbers are spoiled before they are stored; choices are left as they are.

    `spoil` makes what is added out of the noise and of how many numbers each query has.
    """

    def __init__(self, spoil: Callable[[Answer, list[int]], NDArray[np.float64]], **given: Any) -> None:
        super().__init__(**given)
        self._spoil = spoil

    def _answer(self, purpose: str, mechanism: Mechanism, *, draw: Callable[[], Answer], **question: Any) -> Answer:
        def spoiled() -> Answer:
            if mechanism.name == "exponential":
                return draw()
            truth, asked = self._truth(draw), question["asked"]
            sizes = [1] * len(asked) if truth.size == len(asked) else list(map(self.domain.cells, asked))
            return truth + np.rint(self._spoil(draw() - truth, sizes)).astype(np.int64)

        return super()._answer(purpose, mechanism, draw=spoiled, **question)

    def _truth(self, draw: Callable[[], Answer]) -> Answer:
        entropy, self._entropy = self._entropy, _Silence()
        try:
            return draw()
        finally:
            self._entropy = entropy


class SecondDraw(Curator):
    """Stores one noisy answer and gives out another."""

    def _answer(self, purpose: str, mechanism: Mechanism, *, draw: Callable[[], Answer], **question: Any) -> Answer:
        super()._answer(purpose, mechanism, draw=draw, **question)
        return draw()


PLANTED_FAULTS: dict[str, Callable[..., Curator]] = {
    "half the noise": partial(PlantedFault, lambda noise, _: noise / 2),
    "one query without noise": partial(
        PlantedFault, lambda noise, sizes: np.append(noise[: -sizes[-1]], np.zeros(sizes[-1]))
    ),
    "no composition": partial(PlantedFault, lambda noise, sizes: noise / math.sqrt(len(sizes))),
    "noise shared by all answers": partial(PlantedFault, lambda noise, _: np.full(noise.size, float(noise[0]))),
    "a second draw": SecondDraw,
}
"""Each must make the audit of `measure` and of `score` fail."""


CANARY = b",".join(str(size - 1).encode() for size in DOMAIN.sizes)
"""The declared cells of the line that one file has more: values that no other line has."""

HOSTILE_LINES = {
    "a plain line": CANARY + b",note\n",
    "a line without its end": CANARY + b",note",
    "quotes inside a cell": CANARY + b',no"te"\n',
    "doubled quotes": CANARY + b',"no""te"\n',
    "a comma and quotes in a quoted cell": CANARY + b',"a, ""b"", c"\n',
    "an end of line of another system": CANARY + b",note\r\n",
    "separators of Unicode": CANARY + ",\u2028\u0085\v\f\x1c".encode() + b"\n",
    "a byte order mark": b"\xef\xbb\xbf" + CANARY + b",note\n",
    "a zero byte": CANARY + b",no\x00te\n",
    "cells of no declared value": b"n/a,1e400,0x7,note\n",
    "cells that are empty": b",,,\n",
    "the header again": b",".join(name.encode() for name in DOMAIN.attributes) + b",note\n",
    "empty lines around it": b"\n\r\n" + CANARY + b",note\n\n",
    "bytes that are no text in a column that is not read": CANARY + b",\xff\xfe\n",
    "an open quote": CANARY + b',"note\n',
    "an open quote at the end of the file": CANARY + b',"note',
    "a lone carriage return": CANARY + b",no\rte\n",
    "a cell too many": CANARY + b",note,note\n",
    "a cell too few": CANARY + b"\n",
}
"""One line each that a file may have more; the last five are refused, which the ledger counts, and measure nothing."""


def neighbouring_files(line: bytes) -> tuple[bytes, bytes]:
    """Returns the text of a file, and of the same file with one line more in its middle or, if it has no end, last."""
    without, _ = canary_codes()
    header = ",".join([*DOMAIN.attributes, "remark"]).encode() + b"\n"
    lines = [",".join(map(str, record)).encode() + b",note\n" for record in zip(*without.values(), strict=True)]
    place = len(lines) // 2 if line.endswith(b"\n") else len(lines)
    return header + b"".join(lines), header + b"".join([*lines[:place], line, *lines[place:]])


@contextmanager
def file_worlds(line: bytes) -> Iterator[Worlds | None]:
    """Ingests both files of `neighbouring_files`.

    Args:
        line: what one of the files has more.

    Yields:
        The counts of what both became, or None if the file with the line is refused: then nothing is ever measured.
    """
    # Cells of no declared value have a code of their own in every column, so that they are no refusal.
    columns = [
        Categorical(name=name, values=tuple(range(size)), unseen="other", nullable=True)
        for name, size in zip(DOMAIN.attributes, DOMAIN.sizes, strict=True)
    ]
    schema = Schema(columns=tuple(columns))
    with TemporaryDirectory() as folder:
        worlds = []
        for name, text in zip(("without", "canary"), neighbouring_files(line), strict=True):
            source, encoded = Path(folder) / f"{name}.csv", Path(folder) / name
            source.write_bytes(text)
            try:
                snapshot = ingest_partitions([source], schema, encoded, key=bytes(32), rows_per_partition=10)
            except SourceError:
                yield None
                return
            parts = [encoded / part for part in snapshot.partitions]
            worlds.append(PartitionCounts(parts, schema.domain, Cluster()))
        yield worlds[0], worlds[1]
