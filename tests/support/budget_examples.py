"""Runs, spends and damage for the tests of pages, metrics and alarms."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from fractions import Fraction

import numpy as np

from synth_core.privacy.accounts import Runner, SpendRequest
from synth_core.privacy.answer_form import AnswerForm, AnswerKind, Block, fingerprint
from synth_core.privacy.budget import gaussian_for

RUNNER = Runner(dag="census_release", run="manual__2026-01-01", task="fit", actor="ops")
OTHER_RUN = replace(RUNNER, run="manual__2026-01-02")
EVIL = "<script>alert('x')</script>"


def tampered(workspace, statement):
    """What someone does who may write the database file; the triggers would refuse it."""
    with sqlite3.connect(workspace / "ledger.sqlite") as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")
        database.execute(statement)


def spend(ledger, release, step, *, mu2, finish=True):
    """One charged question, answered unless the runner is to die while it measures."""
    mechanism = gaussian_for(mu2, sensitivity=Fraction(1), count=2)
    request = SpendRequest(
        dataset="houses",
        snapshot="s",
        release=release,
        step=step,
        purpose=f"{step} marginals",
        mechanism=mechanism,
        form=AnswerForm(fingerprint=fingerprint("test", [step]), blocks=(Block(kind=AnswerKind.SCORES, shape=(2,)),)),
        runner=replace(OTHER_RUN, task=step),
    )
    reservation = ledger.reserve(request)
    ledger.begin(reservation)
    if finish:
        ledger.store(reservation, np.array([1, 2], dtype=np.int64))
