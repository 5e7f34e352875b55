"""Models on disk: one uncompressed .npz file without pickle, written in one atomic step.

The entry `header` is UTF-8 JSON as bytes; its `format` names what the other entries are. A model of potentials has the
entry `potentials`: float64, the cliques' tables one after the other, each in row-major order.
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, ClassVar, Self
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Floats
from synth_core.documents import parse_json
from synth_core.domain import Clique, Codes, Domain, Impossible
from synth_core.errors import FeasibilityError, SchemaError, SourceError
from synth_core.files import atomic_write
from synth_core.models.junction_tree import JunctionTree, junction_tree

_READING = RLock()
"""NumPy reads an array's header with Python's parser, which two threads may not enter at once before Python 3.12:
a garbage collection in the middle lets the other one in and ends in a SystemError."""


class StoredModel(ABC):
    """A model that can be written to a file and read again."""

    __slots__ = ()
    FORMAT: ClassVar[str]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model.

        Args:
            path: file to write, as one .npz without pickle; a reader sees the old file or the whole new one.
        """
        header, arrays = self._stored()
        text = np.frombuffer(json.dumps({"format": self.FORMAT} | header).encode(), dtype=np.uint8)
        with atomic_write(Path(path)) as temporary, temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, header=text, **arrays)

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
        with open_model(path, [cls.FORMAT]) as (header, stored):
            return cls._restored(header, stored)

    @abstractmethod
    def _stored(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Plain data and arrays from which `_restored` makes the model again."""

    @classmethod
    @abstractmethod
    def _restored(cls, header: Mapping[str, Any], stored: Mapping[str, NDArray[Any]]) -> Self: ...


UNREADABLE = (
    *(OSError, EOFError, BadZipFile, zlib.error, RuntimeError, MemoryError),
    *(ValueError, ArithmeticError, LookupError, TypeError, SchemaError),
)
"""What reading an archive that is none, or holds something else, raises."""


MAX_TREE_CELLS = 2**28
"""Upper limit of a stored model's junction tree in cells of 8 bytes: a small file may ask for any number of them."""


def read_tree(domain: Domain, cliques: Iterable[Clique]) -> JunctionTree:
    """Returns the junction tree of a stored model; SourceError if it is too large to be asked anything."""
    try:
        return junction_tree(domain, cliques, limit_cells=MAX_TREE_CELLS)
    except FeasibilityError:
        raise SourceError(f"a stored model has more than {MAX_TREE_CELLS:,} cells, which no memory holds") from None


@contextmanager
def open_model(
    path: str | os.PathLike[str], formats: Collection[str]
) -> Iterator[tuple[dict[str, Any], Mapping[str, NDArray[Any]]]]:
    """Open a stored model of one of these formats, one thread at a time; a part may be opened inside.

    Yields:
        Its header and its arrays, to be read inside the block.

    Raises:
        SourceError: the file is of another format, or the block can make no sense of what it holds.
    """
    try:
        _check_archive(Path(path))
        with _READING, np.load(Path(path), allow_pickle=False) as stored:
            header = parse_json(stored["header"].tobytes())
            if header["format"] not in formats:
                raise ValueError(header["format"])
            yield header, stored
    except UNREADABLE as error:
        raise SourceError(f"{Path(path).name} is not a stored model of format {' or '.join(formats)}") from error


def _check_archive(path: Path) -> None:
    """Raise OSError or BadZipFile unless the file is an archive whose parts are no larger than itself.

    A compressed part may be a thousand times as large as its file, and fill the memory of its reader.
    """
    if not path.is_file():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    with ZipFile(path) as archive:
        if any(part.compress_type != ZIP_STORED for part in archive.infolist()):
            raise BadZipFile("a part is compressed")


def domain_header(domain: Domain) -> dict[str, Any]:
    """The domain as plain data."""
    rules = [(excluded.rule, [(name, list(codes)) for name, codes in excluded.codes]) for excluded in domain.impossible]
    return {"attributes": domain.attributes, "sizes": domain.sizes, "impossible": rules}


def read_domain(header: Mapping[str, Any]) -> Domain:
    """What `domain_header` wrote; an earlier model has no rules."""
    rules = tuple(
        Impossible(rule, tuple((name, tuple(codes)) for name, codes in parts))
        for rule, parts in header.get("impossible", ())
    )
    return Domain(tuple(header["attributes"]), tuple(header["sizes"]), rules)


class FittedModel(StoredModel):
    """A stored distribution: what it answers is said here, how is said by each kind."""

    __slots__ = ()

    def marginal(self, clique: Iterable[str]) -> Floats:
        """Expected counts of the clique's cells.

        Args:
            clique: attributes, in any order.

        Returns:
            Expected counts, one axis for each attribute in the order given.
        """
        return self.marginals([clique])[0]

    def marginals(self, cliques: Iterable[Iterable[str]]) -> list[Floats]:
        """Expected counts of many marginals; a field computes what they have in common once.

        Args:
            cliques: attributes of each marginal, in any order.

        Returns:
            Expected counts of each.
        """
        return self._tables([tuple(clique) for clique in cliques])

    @abstractmethod
    def sample(self, rows: int, rng: np.random.Generator) -> Codes:
        """Draw rows of codes whose counts follow the model.

        Args:
            rows: number of rows.
            rng: source of randomness; equal states give equal rows.

        Returns:
            One row for each record, one column for each attribute in the domain's order.
        """

    @abstractmethod
    def _tables(self, cliques: Sequence[Clique]) -> list[Floats]:
        """Expected counts of each marginal, axes in the order given."""


class PotentialModel(FittedModel):
    """A distribution p(x) ∝ exp(sum of potentials of cliques), scaled to a total of records."""

    __slots__ = ("cliques", "domain", "potentials", "total")

    def __init__(
        self, domain: Domain, cliques: Sequence[Clique], potentials: NDArray[np.float64], *, total: float
    ) -> None:
        cells = sum(map(domain.cells, cliques))
        if potentials.shape != (cells,):
            raise ValueError(f"potentials need {cells} cells, one for each cell of the cliques")
        self.domain = domain
        self.cliques = tuple(cliques)
        self.potentials = potentials
        self.potentials.setflags(write=False)
        self.total = float(total)

    def _stored(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        header = domain_header(self.domain) | {"cliques": self.cliques, "total": self.total}
        return header, {"potentials": self.potentials}


def read_potentials(
    header: Mapping[str, Any], stored: Mapping[str, NDArray[Any]]
) -> tuple[Domain, tuple[Clique, ...], NDArray[np.float64]]:
    """Domain, cliques and the potentials on them, as `PotentialModel` stores them."""
    domain, cliques = read_domain(header), tuple(map(tuple, header["cliques"]))
    potentials = stored["potentials"]
    if potentials.shape != (sum(map(domain.cells, cliques)),) or not np.isfinite(potentials).all():
        raise ValueError(potentials.shape)
    return domain, cliques, potentials
