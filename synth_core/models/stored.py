"""Models on disk: one uncompressed .npz file without pickle, written in one atomic step.

Entries: `header` (UTF-8 JSON as bytes: format, attributes, sizes, impossible, cliques, total) and `potentials`
(float64, the cliques' tables one after the other, each in row-major order). Everything else follows from these.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain, Impossible
from synth_core.errors import SchemaError, SourceError

_READING = RLock()
"""NumPy reads an array's header with Python's parser, which two threads may not enter at once before Python 3.12:
a garbage collection in the middle lets the other one in and ends in a SystemError."""


@contextmanager
def opened_arrays(path: str | os.PathLike[str]) -> Iterator[Mapping[str, NDArray[Any]]]:
    """The arrays of a stored model, read when asked for, one thread at a time; a part may be opened inside."""
    with _READING, np.load(Path(path), allow_pickle=False) as stored:
        yield stored


def write_model(
    path: str | os.PathLike[str],
    name: str,
    domain: Domain,
    cliques: Sequence[Clique],
    potentials: NDArray[np.float64],
    *,
    total: float,
) -> None:
    """Write a model under its format's name; a reader sees the old file or the whole new one."""
    header = {
        "format": name,
        "attributes": domain.attributes,
        "sizes": domain.sizes,
        "impossible": excluded_json(domain),
        "cliques": cliques,
        "total": total,
    }
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    with partial.open("wb") as file:
        text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        np.savez(file, allow_pickle=False, header=text, potentials=potentials)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(target)


def read_model(
    path: str | os.PathLike[str], name: str
) -> tuple[Domain, tuple[Clique, ...], NDArray[np.float64], float]:
    """Domain, cliques, potentials and total of a stored model of this format."""
    try:
        with opened_arrays(path) as stored:
            header = json.loads(stored["header"].tobytes())
            potentials = stored["potentials"]
        if header["format"] != name:
            raise ValueError(header["format"])
        excluded = excluded_records(header.get("impossible", ()))
        domain = Domain(tuple(header["attributes"]), tuple(header["sizes"]), excluded)
        cliques = tuple(tuple(clique) for clique in header["cliques"])
        if potentials.shape != (sum(map(domain.cells, cliques)),):
            raise ValueError(potentials.shape)
        return domain, cliques, potentials, float(header["total"])
    except (OSError, EOFError, BadZipFile, ValueError, KeyError, SchemaError) as error:
        raise SourceError(f"{Path(path).name} is not a stored model of format {name}") from error


def excluded_json(domain: Domain) -> list[tuple[str, list[tuple[str, list[int]]]]]:
    """What the domain's rules exclude, as lists."""
    return [
        (excluded.rule, [(attribute, list(codes)) for attribute, codes in excluded.codes])
        for excluded in domain.impossible
    ]


def excluded_records(
    values: Iterable[tuple[str, Iterable[tuple[str, Iterable[int]]]]],
) -> tuple[Impossible, ...]:
    """What `excluded_json` wrote."""
    return tuple(
        Impossible(rule, tuple((attribute, tuple(codes)) for attribute, codes in parts))
        for rule, parts in values
    )
