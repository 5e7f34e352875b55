"""A conversation that an earlier version of the program has had, and the ledger that it left behind.

`earlier_ledger.json` holds the rows of the two tables as they were written before records said what their answers
are. `ask_everything` asks the same questions again, of the same table, through any curator.
"""

from __future__ import annotations

import json
from base64 import b64decode
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from synth_core.domain import Domain
from synth_core.privacy.accounts import Stratum
from synth_core.privacy.curator import CountSource, Curator, Spending
from synth_core.privacy.queries import BoxCount, Coarsened, Dependence, Misfit, Total
from synth_core.privacy.strategies import Strategy
from synth_core.storage.counting import TableCounts

FILE = Path(__file__).with_name("earlier_ledger.json")
DOMAIN = Domain(("sex", "age", "job"), (2, 4, 3))
DATASET, RELEASE = "town", "spring"
SHARE = Fraction(1, 1000)
STRATA = (Stratum(partition="sex 0", part="0 f"), Stratum(partition="sex 0", part="1 m"))


def stored() -> dict[str, list[dict[str, Any]]]:
    """The rows of `ledger_records` and `ledger_answers`."""
    tables: dict[str, list[dict[str, Any]]] = json.loads(FILE.read_text())
    for row in tables["answers"]:
        row["vector"] = b64decode(row["vector"])
    return tables


def counts() -> CountSource:
    """A table of 60 fictional rows."""
    rng = np.random.default_rng(3)
    codes = {name: rng.integers(0, size, 60) for name, size in zip(DOMAIN.attributes, DOMAIN.sizes, strict=True)}
    return TableCounts(codes, DOMAIN)


def spending(stratum: Stratum | None = None) -> Spending:
    """On whose account the conversation was paid."""
    return Spending(dataset=DATASET, snapshot="hmac:town", release=RELEASE, step="fit", stratum=stratum)


def ask_everything(curator: Curator) -> list[list[float]]:
    """Every verb with every kind of query; the numbers it was given."""
    rng = np.random.default_rng(4)
    pair, guess = ("sex", "age"), rng.uniform(0, 20, (2, 4))
    singles = [(name,) for name in DOMAIN]
    boxes = [BoxCount(("age",), ((0, end),), sign, 1.5) for end in (1, 2, 3) for sign in (1, -1)]
    misfits = [
        Misfit(pair, guess, 2.0),
        Misfit(("age", "job"), rng.uniform(0, 9, (4, 3)), weight=Fraction(1, 2)),
    ]
    coarse = Coarsened(Misfit(pair, guess[:, :2]), (None, np.array([0, 0, 1, 1])))
    tree = Strategy(("age",), (np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1]], dtype=np.int64),))
    tables = [
        *curator.measure(singles, SHARE, purpose="one-way"),
        *curator.measure([pair, ("age", "job")], SHARE, purpose="pairs", weights=[1.0, 3.0]),
        *curator.measure([("job",)], SHARE, purpose="job purely", pure=True),
    ]
    given = [table.noisy.ravel().tolist() for table in tables]
    given += [answer.noisy.ravel().tolist() for answer in curator.answer([tree], SHARE, purpose="tree")]
    given.append(curator.score([Total()], SHARE, purpose="n"))
    given.append(curator.score([Dependence(pair)], SHARE, purpose="dependence"))
    given.append(curator.score(misfits, SHARE, purpose="misfits"))
    given.append(curator.score([coarse], SHARE, purpose="coarsened"))
    best = curator.choose(misfits, SHARE, purpose="worst pair")
    picks = curator.choose(boxes, SHARE, purpose="picks", count=4, with_replacement=True)
    given.append([float(misfits.index(query)) for query in best])
    given.append([float(boxes.index(query)) for query in picks])
    return given


def ask_part(curator: Curator) -> list[list[float]]:
    """What each stratum was asked."""
    (table,) = curator.measure([("age",)], SHARE, purpose="ages")
    return [table.noisy.tolist(), curator.score([Dependence(("age", "job"))], SHARE, purpose="dependence")]
