"""Models on disk: one uncompressed .npz file without pickle, written in one atomic step.

The entry `header` is UTF-8 JSON as bytes; its `format` names what the other entries are. Those of a Markov random field
are `potentials`: float64, the cliques' tables one after the other, each in row-major order.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, Self
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain, Impossible
from synth_core.errors import SchemaError, SourceError
from synth_core.files import atomic_write

_READING = RLock()
"""NumPy reads an array's header with Python's parser, which two threads may not enter at once before Python 3.12:
a garbage collection in the middle lets the other one in and ends in a SystemError."""


class StoredModel(ABC):
    """A model that can be written to a file and read again."""

    __slots__ = ()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model.

        Args:
            path: file to write, as one .npz without pickle; a reader sees the old file or the whole new one.
        """
        self._write(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model of this kind.

        Args:
            path: file that `save` wrote.

        Returns:
            The model.

        Raises:
            SourceError: the file is no stored model of this kind.
        """
        return cls._read(path)

    @abstractmethod
    def _write(self, path: str | os.PathLike[str]) -> None: ...

    @classmethod
    @abstractmethod
    def _read(cls, path: str | os.PathLike[str]) -> Self: ...


@contextmanager
def open_arrays(path: str | os.PathLike[str]) -> Iterator[Mapping[str, NDArray[Any]]]:
    """The arrays of a stored model, read when asked for, one thread at a time; a part may be opened inside."""
    with _READING, np.load(Path(path), allow_pickle=False) as stored:
        yield stored


def write_arrays(path: str | os.PathLike[str], header: Mapping[str, Any], **arrays: NDArray[Any]) -> None:
    """Write a model; a reader sees the old file or the whole new one.

    Args:
        path: the file.
        header: plain data, with the name of the format as "format".
        arrays: everything else.
    """
    text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    with atomic_write(Path(path)) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, header=text, **arrays)


@contextmanager
def read_arrays(path: str | os.PathLike[str], name: str) -> Iterator[tuple[dict[str, Any], Mapping[str, NDArray[Any]]]]:
    """Open a stored model of one format.

    Args:
        path: the file.
        name: of the format.

    Yields:
        Its header and its arrays, to be read inside the block.

    Raises:
        SourceError: the file is of another format, or the block can make no sense of what it holds.
    """
    try:
        with open_arrays(path) as stored:
            header = json.loads(stored["header"].tobytes())
            if header["format"] != name:
                raise ValueError(header["format"])
            yield header, stored
    except (OSError, EOFError, BadZipFile, ValueError, KeyError, TypeError, SchemaError) as error:
        raise SourceError(f"{Path(path).name} is not a stored model of format {name}") from error


def write_model(
    path: str | os.PathLike[str],
    name: str,
    domain: Domain,
    cliques: Sequence[Clique],
    potentials: NDArray[np.float64],
    *,
    total: float,
) -> None:
    """Write potentials on cliques under their format's name."""
    header = {
        "format": name,
        "attributes": domain.attributes,
        "sizes": domain.sizes,
        "impossible": excluded_json(domain),
        "cliques": cliques,
        "total": total,
    }
    write_arrays(path, header, potentials=potentials)


def read_model(
    path: str | os.PathLike[str], name: str
) -> tuple[Domain, tuple[Clique, ...], NDArray[np.float64], float]:
    """Domain, cliques, potentials and total of what `write_model` wrote."""
    with read_arrays(path, name) as (header, stored):
        excluded = excluded_records(header.get("impossible", ()))
        domain = Domain(tuple(header["attributes"]), tuple(header["sizes"]), excluded)
        cliques = tuple(tuple(clique) for clique in header["cliques"])
        potentials = stored["potentials"]
        if potentials.shape != (sum(map(domain.cells, cliques)),):
            raise ValueError(potentials.shape)
        return domain, cliques, potentials, float(header["total"])


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
        Impossible(rule, tuple((attribute, tuple(codes)) for attribute, codes in parts)) for rule, parts in values
    )
