"""The Python contract: one call from a confidential frame to a synthetic one, with its spend records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from synth_core.codec import decode, encode
from synth_core.errors import SchemaError
from synth_core.models.feasibility import check_rules
from synth_core.privacy.budget import mu2_of
from synth_core.privacy.curator import LedgerCurator, Spending
from synth_core.privacy.ledger import Account, Record, Runner
from synth_core.privacy.wall import wall
from synth_core.release.spec import ReleaseSpec
from synth_core.schema import Schema
from synth_core.storage.counting import TableCounts
from synth_core.storage.sql_ledger import SqlLedger
from synth_core.synthesizers.base import Model, Progress, Tools, silent
from synth_core.synthesizers.methods import synthesizer

if TYPE_CHECKING:
    import pandas as pd

ACCOUNT = "in-memory"


@dataclass(frozen=True, slots=True)
class Release:
    """A synthetic table, the model it was drawn from, and the ledger records of what it cost."""

    table: pd.DataFrame
    spends: list[Record]
    model: Model


def synthesize(
    frame: pd.DataFrame,
    schema: Schema,
    *,
    method: str = "privmrf",
    preset: str = "default",
    epsilon: float,
    delta: float,
    rows: int | None = None,
    cap: float | None = None,
    options: dict[str, Any] | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Release:
    """Synthesize a frame in memory at (epsilon, delta).

    Args:
        frame: the confidential rows; its columns are those of the schema.
        schema: the public declaration of the columns.
        method: see `synth methods`.
        preset: see `synth methods`.
        epsilon: what the table may cost.
        delta: the other half of the guarantee; at most 1 / (10 * number of records) is good practice.
        rows: number of synthetic rows, a public number; None takes the noisy number of records.
        cap: epsilon that the ledger allows in all; a smaller one than `epsilon` is refused before data is read.
        options: constants of the preset to replace.
        seed: seed of the row sampler, which is post-processing; the privacy noise has none.
        progress: called with one line for each thing worth telling.

    Nothing is kept: to account for several releases of one data set, use a workspace (`synth run`).
    """
    number: Literal["noisy"] | int = "noisy" if rows is None else rows
    spec = ReleaseSpec.parse(
        {
            "release": ACCOUNT,
            "dataset": ACCOUNT,
            "source": "a frame in memory",
            "schema": "in memory",
            "method": method,
            "preset": preset,
            "options": options or {},
            "epsilon": epsilon,
            "delta": delta,
            "rows": number,
        },
        where="synthesize",
    )
    built = synthesizer(spec.method, spec.preset, spec.options)
    check_rules(schema)
    if schema.buying:
        raise SchemaError(
            f"column {schema.buying[0]!r} has bins that are to be bought; use `synth run`, or list their edges"
        )
    ledger = SqlLedger("sqlite://")
    ledger.declare(
        Account(dataset=ACCOUNT, delta=delta, cap_epsilon=cap if cap is not None else epsilon), actor="api"
    )
    budget = mu2_of(spec.epsilon, spec.delta)
    plan = built.plan(schema.domain, budget)
    ledger.hold(ACCOUNT, ACCOUNT, mu2=budget, runner=Runner(actor="api"))
    with wall():
        counts = TableCounts(encode(frame, schema, source="the frame"), schema.domain)

    def curator(step: str) -> LedgerCurator:
        spending = Spending(dataset=ACCOUNT, snapshot="in memory", release=ACCOUNT, step=step)
        return LedgerCurator(counts=counts, ledger=ledger, spending=spending)

    scores = built.score(curator("score"), plan)
    structure = built.select(curator("select"), plan, scores)
    model = built.fit(curator("fit"), plan, structure, Tools(progress=progress))
    rng = np.random.default_rng(seed)
    codes = model.sample(rows or max(1, round(model.total)), rng)
    return Release(decode(codes, schema, rng), ledger.records(release=ACCOUNT), model)
