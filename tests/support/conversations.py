"""A table whose attributes copy their neighbours, and whole conversations of a method about it."""

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from synth_core.domain import Domain
from synth_core.ledger.book import charged_records
from synth_core.ledger.memory import MemoryLedger
from synth_core.models.mixture import Model
from synth_core.privacy.accounts import Account, Record, State
from synth_core.privacy.budget import BudgetPlan, mu2_of
from synth_core.privacy.curator import Curator, Spending
from synth_core.storage.counting import TableCounts
from synth_core.synthesizers.base import Structure, run_phases


class Told(NamedTuple):
    """What came of a conversation."""

    plan: BudgetPlan
    structure: Structure
    model: Model
    measured: list[Record]


def chain(sizes, rows, *, copied=0.7, seed=0):
    """Attributes that copy their neighbour as often as said: the right tree is the chain itself."""
    rng = np.random.default_rng(seed)
    columns = [rng.integers(0, sizes[0], rows)]
    for size in sizes[1:]:
        same = rng.random(rows) < copied
        columns.append(np.where(same, columns[-1], rng.integers(0, 1000, rows)) % size)
    domain = Domain.of({f"x{k:02d}": size for k, size in enumerate(sizes)})
    return domain, dict(zip(domain, (column.astype(np.uint8) for column in columns), strict=True))


def people_ledger(cap_epsilon):
    """A ledger in memory with one account."""
    ledger = MemoryLedger()
    ledger.declare(Account(dataset="people", delta=1e-6, cap_epsilon=cap_epsilon), actor="test")
    return ledger


def people_curator(codes, domain, ledger, *, step="fit", entropy=None):
    """A curator that spends from that account on a table in memory."""
    spending = Spending(dataset="people", snapshot="s", release="r", step=step)
    return Curator(counts=TableCounts(codes, domain), ledger=ledger, spending=spending, entropy=entropy)


def spent(ledger):
    """All that was charged."""
    return sum((record.mu2 for record in charged_records(ledger.records())), Fraction(0))


def conversation(method, domain, codes, epsilon=1.0):
    """All three phases against a ledger of its own, whose cap is the budget."""
    ledger = people_ledger(epsilon)
    plan = method.plan(domain, mu2_of(epsilon, 1e-6))
    curator = people_curator(codes, domain, ledger, step="all")
    came = run_phases(method, plan, lambda _: curator)
    return Told(plan, came.structure, came.model, [r for r in ledger.records() if r.state is State.MEASURED])
