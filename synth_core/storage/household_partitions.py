"""Two linked sources as partitions of whole households, and the counts of their tuple relation, added up over these.

Pieces of both sources are encoded as those of one table are, with keyed hashes of the households' names beside their
codes. Each encoded piece is put in the order of ranges of hashes, and a partition is what all pieces have in one range:
whole households, joined exactly as `households.join_tables` joins two frames. Ranges follow one another, so the
partitions one after the other are the households in the order of their hashes, however many partitions, files and
workers there are; and no machine holds more than a piece or a partition.

A partition is two files of one name: in the folder `household` codes and sizes, in `person` the codes of the people,
household by household.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from synth_core.cluster import Cluster
from synth_core.domain import Clique, Domain
from synth_core.errors import SourceError
from synth_core.files import atomic_write
from synth_core.models.tuples import Anchor, Households, attribute_place, count_tuples, first_place, join_households
from synth_core.privacy.queries import Counts
from synth_core.privacy.wall import wall
from synth_core.schema import Schema
from synth_core.schema.linked import SIZE, TABLES, LinkedSchema
from synth_core.storage.contribution import UNIT_COLUMNS, ContributionBound
from synth_core.storage.counting import (
    CELLS_PER_PASS,
    CachedCounts,
    add_counts,
    asked_columns,
    batched_cliques,
    count_codes,
    count_flat,
    split_tables,
)
from synth_core.storage.households import count_scale, household_bound, join_tables
from synth_core.storage.ingest import (
    NO_ROWS,
    PARTITION_ROWS,
    PARTITIONS_AT_ONCE,
    Slice,
    Snapshot,
    check_ingest,
    encode_pieces,
    encoded_table,
    read_codes,
    table_digest,
    whole_folder,
    write_codes,
)
from synth_core.storage.locations import distinct_files

Partition: TypeAlias = tuple[str, str]
"""Addresses of the households of a partition and of their people."""

ORDERED_ROWS = 1_000_000
"""Rows of a piece that are put in order at once: bounds what a worker holds."""

NO_HOUSEHOLDS = "no household has both a row and people; check the column that links the two sources"
"""What is said of sources that have rows, and nothing that can be joined."""

HASHES = 2**64
"""Number of values of the half of a hash that says in which range it is."""


@dataclass(frozen=True, slots=True)
class OrderedPiece:
    """An encoded piece in the order of ranges: of each stretch of it, where the rows of each range begin and end."""

    path: Path
    borders: NDArray[np.int64]


def reading_schemas(schema: LinkedSchema, given: Iterable[str]) -> dict[str, Schema]:
    """How the files of each source are read.

    Args:
        schema: the declaration of the tables.
        given: the tables that have a source; of people alone, rows repeat the columns of their household.

    Returns:
        For each source the columns of its rows, with the column that names households.

    Raises:
        SourceError: people are given alone, and a column of theirs has the name of one of households.
    """
    names = {"unit_column": schema.link, "unit_kind": schema.tables.link_kind}
    if set(given) == set(TABLES):
        return {table: schema.table(table).model_copy(update=names) for table in TABLES}
    own = {column.name for column in schema.household.columns}
    both = [column.name for column in schema.person.columns if column.name in own]
    if both:
        raise SourceError(
            f"column {both[0]!r} is declared of households and of people, so one file cannot have both; give two "
            "sources or rename one of them"
        )
    columns = (*schema.household.columns, *schema.person.columns)
    return {"person": Schema.model_validate({"columns": columns, **names})}


def ingest_households(
    sources: Mapping[str, Sequence[str]],
    schema: LinkedSchema,
    out_dir: Path,
    *,
    key: bytes,
    rows_per_partition: int = PARTITION_ROWS,
    cluster: Cluster,
    progress: Callable[[str], None] | None = None,
) -> Snapshot:
    """Encode two linked sources into partitions of whole households.

    Args:
        sources: the files of each table; of `person` alone, where its rows repeat the columns of their household.
        schema: the declaration of the tables.
        out_dir: folder of the partitions; absent or whole, whatever happens.
        key: the secret of the hashes, of the digest, and of which people of too large a household are kept.
        rows_per_partition: people of a partition, about.
        cluster: where all of it is done.
        progress: called with a line for each table.

    Returns:
        The digest of the households, which does not depend on files or partitions, and the partitions' names.

    Raises:
        SourceError: a source has no rows, or none that can be joined, or does not fit the schema; names the column,
            never a value.
    """
    check_ingest(key, rows_per_partition)
    bound = household_bound(schema, key)
    with whole_folder(out_dir) as building:
        encoded: dict[str, list[Slice]] = {}
        for table, reading in reading_schemas(schema, sources).items():
            if progress is not None:
                progress(f"encoding the table {table}")
            folder = building / f"pieces-{table}"
            folder.mkdir()
            files = distinct_files(sources[table])
            found = encode_pieces(files, reading, folder, cluster=cluster, bound=bound)
            encoded[table] = [piece for piece in found if piece.stop]
            for piece in found:
                if not piece.stop:  # a file without rows
                    piece.path.unlink()
            if not encoded[table]:
                raise SourceError(NO_ROWS)
        if progress is not None:
            progress("joining households and their people")
        number = -(-sum(piece.stop for piece in encoded["person"]) // rows_per_partition)
        names = _write_partitions(encoded, schema, building, number=number, bound=bound, cluster=cluster)
        partitions = partitions_of(building, names)
        if not any(pq.read_metadata(household).num_rows for household, _ in partitions):
            raise SourceError(NO_HOUSEHOLDS)
        digest = _digest(partitions, schema, key)
    return Snapshot(digest, tuple(names))


def partitions_of(folder: Path, names: Sequence[str]) -> list[Partition]:
    """The partitions of these names in a folder that `ingest_households` wrote."""
    return [(str(folder / "household" / name), str(folder / "person" / name)) for name in names]


def read_households(
    partition: Partition, schema: LinkedSchema | None = None, *, attributes: Iterable[str] | None = None
) -> Households:
    """Read one partition.

    Args:
        partition: its addresses.
        schema: the declaration of the tables, for all attributes; or
        attributes: the attributes of a tuple of one person that are wanted.

    Returns:
        The households, with these attributes.
    """
    if attributes is None:
        assert schema is not None  # noqa: S101 - the caller names attributes or gives the schema
        attributes = (*schema.household_attributes, *schema.person_attributes())
    named = [name for name in attributes if name != SIZE]
    own = [name for name in named if not attribute_place(name)]
    people = [name for name in named if attribute_place(name)]
    homes = read_codes(partition[0], [*own, SIZE])
    sizes = homes.pop(SIZE).astype(np.int64)
    return Households(homes, read_codes(partition[1], people) if people else {}, sizes)


class PartitionTuples(CachedCounts):
    """Counts of the tuple relation of partitions: each is counted where it lies, partial counts are added as a tree."""

    def __init__(self, partitions: Sequence[Partition], schema: LinkedSchema, cluster: Cluster, *, places: int) -> None:
        """Count tuples of `places` people over the domain that the schema gives for them."""
        super().__init__(schema.domain(places))
        self.scale = count_scale(places, schema.largest)
        self._places, self._partitions, self._cluster = places, list(partitions), cluster
        self._anchor = schema.anchor

    def _count(self, cliques: Sequence[Clique]) -> list[Counts]:
        return count_partitions(
            self._partitions,
            self._domain,
            cliques,
            self._cluster,
            places=self._places,
            scale=self.scale,
            anchor=self._anchor,
        )


def count_partitions(
    partitions: Sequence[Partition],
    domain: Domain,
    cliques: Sequence[Clique],
    cluster: Cluster,
    *,
    places: int,
    scale: int,
    anchor: Anchor | None = None,
) -> list[Counts]:
    """Exact tables of the tuple relation over all partitions.

    Args:
        partitions: the partitions.
        domain: the attributes of a tuple.
        cliques: attributes of the tables.
        cluster: where partitions are counted.
        places: people of a tuple.
        scale: units of a household's weight.
        anchor: who is a reference person, for tables of these.

    Returns:
        Integer tables in units of 1/scale, one axis for each attribute.
    """
    found: list[Counts] = []
    for batch in batched_cliques(cliques, domain.cells, room=CELLS_PER_PASS):
        asked: dict[str, Any] = {
            "domain": domain,
            "cliques": tuple(batch),
            "places": places,
            "scale": scale,
            "anchor": anchor,
        }
        counted = cluster.map_reduce(_count_some, partitions, add_counts, **asked)
        found += split_tables(counted, domain, batch)
    return found


def _count_some(
    partitions: Sequence[Partition],
    *,
    domain: Domain,
    cliques: Sequence[Clique],
    places: int,
    scale: int,
    anchor: Anchor | None,
) -> NDArray[np.int64]:
    """The tables of some partitions, one after the other; runs on a worker."""
    with wall():
        needed = [first_place(name) for clique in cliques for name in clique] + ([anchor[0]] if anchor else [])
        attributes = list(dict.fromkeys(needed))
        out = np.zeros(sum(map(domain.cells, cliques)), dtype=np.int64)
        for start in range(0, len(partitions), PARTITIONS_AT_ONCE):
            some = partitions[start : start + PARTITIONS_AT_ONCE]
            held = join_households([read_households(one, attributes=attributes) for one in some])
            if places == 1:
                tables = _count_people(held, domain, cliques, places=places, scale=scale)
            else:
                tables = count_tuples(held, domain, cliques, places=places, scale=scale, anchor=anchor)
            out += np.concatenate([np.zeros(0, np.int64), *(table.ravel() for table in tables)])
        return out


def _count_people(
    held: Households, domain: Domain, cliques: Sequence[Clique], *, places: int, scale: int
) -> list[Counts]:
    """What `count_tuples` gives for one place: people as a table by themselves, those of each size with their weight.

    Tables of households alone are counted in households. Both are faster counted as one table is, all at once.
    """
    own = held.attributes | {SIZE: (held.sizes - places).astype(np.uint8)}
    about_people = [any(map(attribute_place, clique)) for clique in cliques]
    homes = [clique for clique, people in zip(cliques, about_people, strict=True) if not people]
    others = [clique for clique, people in zip(cliques, about_people, strict=True) if people]
    found = {clique: table * scale for clique, table in zip(homes, count_codes(own, domain, homes), strict=True)}
    if others:
        asked = asked_columns(domain, others)
        owner = np.repeat(np.arange(len(held.sizes)), held.sizes)
        order = np.argsort(held.sizes.astype(np.uint8)[owner], kind="stable")
        ends = np.cumsum(np.bincount(held.sizes, weights=held.sizes, minlength=2).astype(np.int64))
        rows = {a: held.people[a][order] if a in held.people else own[a][owner[order]] for a in asked}
        total = np.zeros(sum(map(domain.cells, others)), dtype=np.int64)
        for size in range(1, len(ends)):
            piece = {a: column[ends[size - 1] : ends[size]] for a, column in rows.items()}
            total += count_flat([piece], domain, others).astype(np.int64) * (scale // size)
        found |= dict(zip(others, split_tables(total, domain, others), strict=True))
    return [found[clique] for clique in cliques]


def _write_partitions(
    encoded: Mapping[str, Sequence[Slice]],
    schema: LinkedSchema,
    building: Path,
    *,
    number: int,
    bound: ContributionBound,
    cluster: Cluster,
) -> list[str]:
    """Put the pieces in the order of ranges, and join what they have in each; returns the names of the partitions."""
    ordered: dict[str, list[OrderedPiece]] = {}
    for table, pieces in encoded.items():
        jobs = [(piece, piece.path.with_suffix(".ordered")) for piece in pieces]
        ordered[table] = cluster.map(_order_piece, jobs, ranges=number)
        for piece in pieces:
            piece.path.unlink()
    for table in TABLES:
        (building / table).mkdir()
    jobs_of_ranges = [
        (
            f"part-{k:05d}.parquet",
            {t: [Slice(p.path, *map(int, at)) for p in own for at in p.borders[:, k : k + 2]] for t, own in items},
        )
        for k in range(number)
        for items in [ordered.items()]
    ]
    cluster.map(_join_range, jobs_of_ranges, schema=schema, building=building, bound=bound)
    for read in ordered.values():
        for one in read:
            one.path.unlink()
    for table in encoded:
        (building / f"pieces-{table}").rmdir()
    return [name for name, _ in jobs_of_ranges]


def _order_piece(job: tuple[Slice, Path], *, ranges: int) -> OrderedPiece:
    """Put the rows of one piece in the order of ranges, some at a time; runs on a worker."""
    piece, path = job
    ends = np.array([-(-k * HASHES // ranges) for k in range(1, ranges)], dtype=np.uint64)
    borders = []
    with wall(), atomic_write(path) as temporary:
        rows = encoded_table(piece.path)
        with pa.OSFile(str(temporary), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
            for start in range(0, piece.stop, ORDERED_ROWS):
                some = rows.slice(start, ORDERED_ROWS)
                range_of = np.searchsorted(ends, some.column(UNIT_COLUMNS[0]).to_numpy(), side="right")
                order = np.argsort(range_of.astype(np.min_scalar_type(ranges)), kind="stable")
                columns = {name: some.column(name).to_numpy()[order] for name in some.column_names}
                writer.write_batch(pa.RecordBatch.from_pydict(columns))
                borders.append(start + np.searchsorted(range_of[order], np.arange(ranges + 1)))
    return OrderedPiece(path, np.array(borders))


def _join_range(
    job: tuple[str, Mapping[str, Sequence[Slice]]], *, schema: LinkedSchema, building: Path, bound: ContributionBound
) -> None:
    """Join the households of one range and write them; runs on a worker."""
    name, slices = job
    with wall():
        encoded = {}
        for table, own in slices.items():
            tables = {path: encoded_table(path) for path in dict.fromkeys(part.path for part in own)}
            joined = pa.concat_tables(tables[s.path].slice(s.start, s.stop - s.start) for s in own)
            encoded[table] = {column: joined.column(column).to_numpy() for column in joined.column_names}
        held = join_tables(encoded, schema, bound)
        write_codes({**held.attributes, SIZE: held.sizes.astype(np.uint8)}, building / "household" / name)
        write_codes(held.people, building / "person" / name)


def _digest(partitions: Sequence[Partition], schema: LinkedSchema, key: bytes) -> str:
    """Keyed digest of all households, those of people and of households one after the other."""
    domain = schema.domain(1)
    own = {name: domain.size(name) for name in (*schema.household_attributes, SIZE)}
    people = {name: domain.size(name) for name in schema.person_attributes()}
    homes = table_digest(map(partial(read_codes, columns=list(own)), (first for first, _ in partitions)), own, key)
    rest = table_digest(map(partial(read_codes, columns=list(people)), (last for _, last in partitions)), people, key)
    return f"{homes}{rest}"
