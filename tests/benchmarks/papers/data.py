"""Where the public tables of the papers come from: repositories, converters, checksums and sizes, as a page.

Run in the repository as `python -m tests.benchmarks.papers.data` to write the page, or with the address of a file that
was taken from its repository, and the name of the table, to convert it: `… data salary.zip salary > salary.csv`.
"""

from __future__ import annotations

import hashlib
import math
import sys
import zipfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import pandas as pd

from tests.benchmarks.papers.figures import ROOT, table
from tests.benchmarks.papers.releases import DATA, Public

PRIVMRF = ("caicre/PrivMRF", "12f2cae3f1784281cee7e8e201560882332f60bb")
NIST_2021 = ("ryan112358/nist-synthetic-data-2021", "56b7bc34be589c35a2b2e966928ef3501df1dabd")
PRIVATE_PGM = ("ryan112358/private-pgm", "4d2b3c566b148da3ef800ce76e6189c548f2da22")


@dataclass(frozen=True)
class Origin:
    """A table's repository with its commit, the path of its file there, and the digest of what is converted."""

    repository: tuple[str, str]
    path: str
    digest: str


ORIGINS = {
    "nltcs": Origin(PRIVMRF, "preprocess/nltcs.csv", "31d23617ba74786d"),
    "acs": Origin(PRIVMRF, "preprocess/acs.csv", "89e337a3431f9b3f"),
    "adult": Origin(PRIVMRF, "preprocess/adult.csv", "b150d694898d13d8"),
    "br2000": Origin(PRIVMRF, "preprocess/br2000.csv", "a08ae196bd1facef"),
    "salary": Origin(NIST_2021, "extensions/datasets/salary.zip", "1398fa4d1c2bd28a"),
    "titanic": Origin(NIST_2021, "extensions/datasets/titanic.zip", "858f614fe871d5ee"),
    "adult14": Origin(PRIVATE_PGM, "data/adult.csv", "de1b8341b65de608"),
}


def digest(content: bytes) -> str:
    """The first 16 digits of a SHA-256."""
    return hashlib.sha256(content).hexdigest()[:16]


def convert(file: Path, name: str) -> pd.DataFrame:
    """Read a file of the repository as the benchmarks use it: named columns, in the order of the domain."""
    content = file.read_bytes()
    if file.suffix == ".zip":
        with zipfile.ZipFile(BytesIO(content)) as archive:
            content = archive.read(f"{name}.csv")
    if digest(content) != ORIGINS[name].digest:
        raise ValueError(f"{file} is not the file of {ORIGINS[name].repository[0]} at that commit")
    rows = pd.read_csv(BytesIO(content))
    rows.columns = [f"a{column}" if column.isdigit() else column for column in rows.columns]
    return rows[list(Public.load(name).sizes)]


def describe(name: str) -> list[str]:
    """The line of a table: where it is from, what it holds, and the digest of the converted file."""
    origin, public = ORIGINS[name], Public.load(name)
    repository, commit = origin.repository
    domain = f"{math.prod(public.sizes.values()):.2e}".replace("e+", "e")
    return [
        name,
        f"`{repository}` at `{commit[:7]}`",
        f"`{origin.path}`",
        f"`{origin.digest}`",
        f"{len(public.rows):,}",
        str(len(public.sizes)),
        domain,
        f"`{digest((DATA / f'{name}.csv').read_bytes())}`",
    ]


HEAD = ["table", "repository", "file", "its digest", "rows", "columns", "cells of the domain", "digest here"]
PAGE = """# Where the tables of the papers are from

Written by `python -m tests.benchmarks.papers.data`. Digests are the first 16 digits of SHA-256, of the CSV file
inside where the file is packed. The same program converts a file: columns that are headed by numbers are called a0,
a1, …, and stand in the order of the domain (`convert`, twelve lines). No row and no code is changed.

{tables}

## Where papers and files disagree

- **br2000** has 38,000 rows in the text of the PrivMRF paper and in its file, and 28,000 in its Table 8.
- **Domain sizes.** Table 8 has 3.23e9 cells for br2000 and 9.06e14 for adult; the domains of `preprocess/br2000.json`
  and `preprocess/adult.json` multiply to 3.08e9 and 4.25e14, which are used here. The authors' repository has a
  second file of the same 38,000 people of br2000, `data/br2000.csv`, with other numbers for the same values (one to
  one in each column): its third column is numbered up to 21 with one number that nobody has, and 22 codes give the
  3.23e9 of the paper. Of adult the second file (`data/adult.csv`) was not to be had.
- **adult** of PrivMRF has 45,222 rows (those without a missing value) and 15 columns; that of ABSyn and Private-PGM,
  here `adult14`, 48,842 rows and 14 columns. Private-PGM's Table 1 says 15 columns and 1e19 cells; the file in its
  repository has 14 and 6.41e17, as ABSyn's Table I has.
- **Not here:** Loans and Stroke, which the repository of the second group has too, fire and msnbc; Colorado of the
  2018 challenge, for which PrivBayes' figures use a generated table of its shape.
"""


def main(arguments: list[str]) -> None:
    """Convert a file, or write the page."""
    if arguments:
        convert(Path(arguments[0]), arguments[1]).to_csv(sys.stdout, index=False)
        return
    page = PAGE.format(tables=table(HEAD, [describe(name) for name in ORIGINS]))
    (ROOT / "docs" / "papers" / "data.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
