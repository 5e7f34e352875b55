"""A release never becomes dearer than it said when it set budget aside, except by attempts that were given up."""

from __future__ import annotations

import numpy as np
import pytest
from support.ledgers import request

from synth_core.errors import BudgetRefused
from synth_core.ledger.memory import MemoryLedger
from synth_core.privacy.accounts import Account, Runner

RUNNER = Runner(actor="test")


@pytest.fixture
def ledger():
    opened = MemoryLedger()
    asked = request()
    opened.declare(Account(dataset=asked.dataset, delta=1e-6, cap_epsilon=50.0), actor="test")
    price = asked.mechanism.mu2()
    opened.hold(asked.dataset, asked.release, mu2=2 * price, runner=RUNNER)
    return opened


def spend(ledger, purpose):
    reservation = ledger.reserve(request(purpose))
    ledger.begin(reservation)
    return ledger.store(reservation, np.array([1], dtype=np.int64))


def test_new_questions_beyond_what_was_said_are_refused(ledger):
    spend(ledger, "one")
    spend(ledger, "two")
    with pytest.raises(BudgetRefused, match=r"has spent what it set aside .* use another release name"):
        spend(ledger, "three")
    asked = request()
    ledger.close(asked.dataset, asked.release, reason="published", runner=RUNNER)
    with pytest.raises(BudgetRefused, match="has spent what it set aside"):
        spend(ledger, "three")
    assert ledger.reserve(request("one")).answer is not None, "what is stored is free"
    assert ledger.verify() == []


def test_an_attempt_that_was_given_up_may_be_made_again(ledger):
    spend(ledger, "one")
    ledger.begin(ledger.reserve(request("two")))
    spend(ledger, "two")
    asked = request()
    assert ledger.balance(asked.dataset).charged_mu2 == 3 * asked.mechanism.mu2()
    with pytest.raises(BudgetRefused, match="has spent what it set aside"):
        spend(ledger, "three")
