"""The rows of a public table that a release builds on: refused where they are confidential, read, and read again."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from synth_core.domain import Clique, Codes, Domain, breaking_rows
from synth_core.errors import SourceError, SpecError
from synth_core.privacy.queries import Counts
from synth_core.release.prior import FrozenPrior, Prior, PublicFile
from synth_core.schema import Schema
from synth_core.schema.codec import encode
from synth_core.storage.counting import count_codes
from synth_core.storage.locations import PARQUET_ENDINGS, distinct_files, open_file, source_files
from synth_core.storage.sources import piece_batches, pieces

EXTRACT = "extract"
"""Folder of a published release that holds its synthetic table."""

PORTION = 1 << 20
"""Bytes of a file that are digested at once."""

THE_PRIOR = "the prior"
"""What a refusal calls the table."""


@dataclass(frozen=True, slots=True, eq=False)
class PublicRows:
    """The encoded rows of a public table, of the columns that it shares with the schema."""

    codes: Mapping[str, Codes]
    domain: Domain

    @classmethod
    def of(cls, codes: Mapping[str, Codes], domain: Domain) -> PublicRows:
        """Rows of these columns, without those that break a rule."""
        own = domain.project(domain.clique(codes))
        table = np.stack([codes[name] for name in own.attributes], axis=1)
        kept = ~breaking_rows(table, own)
        return cls({name: codes[name][kept] for name in own.attributes}, own)

    @property
    def rows(self) -> int:
        """Number of records."""
        return len(next(iter(self.codes.values())))

    def count(self, cliques: Sequence[Clique]) -> list[Counts]:
        """Tables of their counts."""
        return count_codes(self.codes, self.domain, cliques)


def freeze_frame(frame: Any, schema: Schema, *, public_because: str) -> tuple[FrozenPrior, PublicRows]:
    """The same for a table in memory; its digest is that of its codes.

    Args:
        frame: the public table.
        schema: of the release.
        public_because: who says that it is public, and why.

    Returns:
        The note, and the rows.

    Raises:
        SpecError: It shares no two columns with the schema, or has no rows.
        SourceError: It has values that the schema does not have.
    """
    names = [str(name) for name in frame.columns]
    shared = _shared_schema(schema, names)
    found = PublicRows.of(encode(frame, shared, source=THE_PRIOR), schema.domain)
    require_shared(found.domain.attributes, found.rows)
    digest = hashlib.sha256()
    for name, codes in found.codes.items():
        digest.update(f"{name}:{len(codes)}:".encode())
        digest.update(np.ascontiguousarray(codes, dtype="<u4").data)
    said = (PublicFile(name="a table in memory, by its codes", sha256=digest.hexdigest()),)
    columns = found.domain.attributes
    return FrozenPrior(files=said, rows=found.rows, columns=columns, public_because=public_because), found


def prior_files(source: str) -> list[str]:
    """Addresses of the files that a prior names; of a published release those of its synthetic table."""
    extract = Path(source) / EXTRACT
    return distinct_files(source_files(str(extract) if "://" not in source and extract.is_dir() else source))


def require_public(files: Sequence[str], *, sources: Iterable[str], zones: Sequence[Path]) -> None:
    """Refuse files that are confidential by where they lie. No file is opened.

    Args:
        files: addresses of the prior's files.
        sources: addresses of confidential files.
        zones: folders of confidential files.

    Raises:
        SpecError: A file is one of the sources or lies in a zone.
    """
    confidential = list(sources)
    for address in files:
        if len(distinct_files([*confidential, address])) == len(distinct_files(confidential)):
            raise SpecError("prior: it is the source of a release, so its rows are confidential; name a public table")
        path = Path(address.removeprefix("file://")).resolve()
        if any(path.is_relative_to(zone.resolve()) for zone in zones):
            raise SpecError("prior: it lies among the workspace's confidential files; name a public table")


def freeze_prior(prior: Prior, files: Sequence[str], schema: Schema) -> FrozenPrior:
    """Read a prior and note what it was.

    Args:
        prior: as a spec names it.
        files: its files.
        schema: of the release.

    Returns:
        The note.

    Raises:
        SpecError: It shares no two columns with the schema, or has no rows.
        SourceError: A file cannot be read, or has values that the schema does not have.
    """
    found = _read_rows(files, schema)
    said = tuple(PublicFile(name=address.rpartition("/")[2], sha256=_digest(address)) for address in files)
    return FrozenPrior(
        files=said, rows=found.rows, columns=found.domain.attributes, public_because=prior.public_because
    )


def read_prior(prior: Prior, frozen: FrozenPrior, schema: Schema) -> PublicRows:
    """The rows of a prior, which must be those that were frozen.

    Raises:
        SpecError: A file has changed since.
    """
    files = prior_files(prior.source)
    if [_digest(address) for address in files] != [file.sha256 for file in frozen.files]:
        raise SpecError("prior: its files have changed since the release began; restore them, or use another name")
    return _read_rows(files, schema)


def require_shared(names: Sequence[str], rows: int) -> None:
    """Refuse a prior that says nothing of how columns go together."""
    if len(names) < 2 or rows < 1:
        raise SpecError("prior: it has no rows, or fewer than two columns of the schema; leave it out")


def _read_rows(files: Sequence[str], schema: Schema) -> PublicRows:
    shared = _shared_schema(schema, _common_names(files))
    parts = [
        encode(batch, shared, source=THE_PRIOR)
        for address in files
        for piece in pieces(address, shared)
        for batch in piece_batches(piece, shared)
    ]
    names = [column.name for column in shared.columns]
    require_shared(names, sum(len(part[names[0]]) for part in parts if names))
    return PublicRows.of({name: np.concatenate([part[name] for part in parts]) for name in names}, schema.domain)


def _common_names(files: Sequence[str]) -> list[str]:
    listed = [_header(address) for address in files]
    return [name for name in listed[0] if all(name in names for names in listed)]


def _header(address: str) -> list[str]:
    """The names of a file's columns."""
    try:
        with open_file(address) as file:
            if address.lower().endswith(PARQUET_ENDINGS):
                return list(pq.read_schema(file).names)
            return next(csv.reader([file.read(PORTION).decode("utf-8-sig").splitlines()[0]]))
    except (OSError, ValueError, IndexError, StopIteration):
        raise SourceError("the prior cannot be read; write it as CSV (not packed) or Parquet") from None


def _shared_schema(schema: Schema, names: Sequence[str]) -> Schema:
    """The schema of the columns that can be read from these."""
    kept = tuple(column for column in schema.columns if set(column.origins(names)) <= set(names))
    require_shared([column.name for column in kept], 1)
    changes: dict[str, Any] = {"columns": kept, "rules": (), "attached": (), "unit_column": None}
    return schema.model_copy(update=changes)


def _digest(address: str) -> str:
    found = hashlib.sha256()
    with open_file(address) as file:
        while portion := file.read(PORTION):
            found.update(portion)
    return found.hexdigest()
