"""Whether two published linked tables fit together: names, households and their people, and declared rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from synth_core.schema.codec import to_frame
from synth_core.schema.linked import TABLES, CountRule, LinkedSchema
from synth_core.schema.rules import columns_of
from synth_core.schema.value_rules import ValueRule


@dataclass(slots=True)
class ShardCheck:
    """What was seen of some shards.

    Attributes:
        households: how many households there are.
        people: how many people.
        problems: what does not fit, each beginning with the file's name.
        broken: how many households or rows break each rule.
    """

    households: int = 0
    people: int = 0
    problems: list[str] = field(default_factory=list)
    broken: Counter[str] = field(default_factory=Counter)


def shard_files(folder: Path) -> list[tuple[Path, Path]]:
    """The files of each shard of an extract of two linked tables: households and people of one name."""
    return [(path, folder / "person" / path.name) for path in sorted((folder / "household").glob("*.parquet"))]


def check_shards(shards: Sequence[tuple[Path, Path]], *, schema: LinkedSchema, first: int | None = 1) -> ShardCheck:
    """Check shards of two linked tables, a row group at a time.

    Households are named by numbers that follow one another, in a shard and from shard to shard, and each row group of
    people has those of the same row group of households, in the same order.

    Args:
        shards: files of households and of people, in the order of the names.
        schema: the declaration of the tables.
        first: the name of the first household; None takes whatever it is.

    Returns:
        What was seen.
    """
    seen = ShardCheck()
    for household, person in shards:
        with pq.ParquetFile(household) as homes, pq.ParquetFile(person) as people:
            if homes.num_row_groups != people.num_row_groups:
                seen.problems.append(f"{_name(person)}: has other row groups than its households")
                continue
            for group in range(homes.num_row_groups):
                frames = {
                    table: to_frame(file.read_row_group(group, columns=_needed(schema, table)))
                    for table, file in zip(TABLES, (homes, people), strict=True)
                }
                names = frames["household"][schema.link].to_numpy()
                begin = first if first is not None else int(names[0]) if len(names) else 0
                _check_links(seen, _name(person), schema, frames, begin=begin)
                first = begin + len(names)
                seen.households += len(names)
                seen.people += len(frames["person"])
    return seen


def _name(path: Path) -> str:
    return "/".join(path.parts[-3:])


def _check_links(
    seen: ShardCheck, where: str, schema: LinkedSchema, frames: dict[str, pd.DataFrame], *, begin: int
) -> None:
    names, links = (frames[table][schema.link].to_numpy() for table in TABLES)
    expected = np.arange(begin, begin + len(names))
    if not np.array_equal(names, expected):
        seen.problems.append(f"{where}: its households are not named by numbers that follow one another")
        return
    if len(links) and not (begin <= links.min() and links.max() < begin + len(names)):
        seen.problems.append(f"{where}: somebody has no household")
        return
    sizes = np.bincount(links - begin, minlength=len(names)) if len(links) else np.zeros(len(names), np.int64)
    if np.any(np.diff(links) < 0):
        seen.problems.append(f"{where}: people are not in the order of their households")
    elif not ((sizes > 0) & (sizes <= schema.largest)).all():
        seen.problems.append(f"{where}: a household has nobody, or more than {schema.largest} people")
    else:
        for rule, broken in schema.broken_rules(frames["person"], sizes).items():
            seen.broken[rule] += int(broken.sum())
    for table in TABLES:
        for rule, rows in schema.table(table).violations(frames[table]).items():
            seen.broken[f"{table}: {rule}"] += int(rows.sum())


def _needed(schema: LinkedSchema, table: str) -> list[str]:
    """The column of names, and those of which rules speak."""
    names = {schema.link}
    for rule in schema.table(table).rules:
        names.update(rule.columns if isinstance(rule, ValueRule) else columns_of(rule))
    if table == "person":
        for one in schema.together:
            names.update(one.people if isinstance(one, CountRule) else {one.column, *one.lower, *one.upper})
    return sorted(names)
