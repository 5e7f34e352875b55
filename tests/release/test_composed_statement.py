"""What a release of composed accounts states about all of them, at the delta of its own."""

from fractions import Fraction

import pytest

from synth_core.ledger.memory import MemoryLedger
from synth_core.privacy.accounts import Account, SpendRequest
from synth_core.privacy.answer_form import AnswerForm, AnswerKind, Block, fingerprint
from synth_core.privacy.budget import NONE, Mechanism, epsilon_of, gaussian_for, mu2_of
from synth_core.release.certificate import guarantee, guarantee_problems

FORM = AnswerForm(fingerprint=fingerprint("test", ["a question"]), blocks=(Block(kind=AnswerKind.SCORES, shape=(3,)),))


def asked(dataset, purpose, mechanism, step="fit"):
    return SpendRequest(
        dataset=dataset,
        snapshot=dataset,
        release="r1",
        step=step,
        purpose=purpose,
        mechanism=mechanism,
        form=None if mechanism is NONE else FORM,
    )


@pytest.fixture
def ledger():
    """An account with a wide delta, all but spent, and one with a narrow delta that has stated nothing yet."""
    ledger = MemoryLedger()
    ledger.declare(Account(dataset="wide", delta=1e-5, cap_epsilon=1.0), actor="test")
    ledger.declare(Account(dataset="narrow", delta=1e-9, cap_epsilon=1.2), actor="test")
    price = mu2_of(1.19, 1e-9)
    ledger.reserve(asked("wide", "counts", gaussian_for(price, sensitivity=Fraction(1), count=1)))
    return ledger


def stated(ledger):
    """What release r1 of the narrow account states now, and all records."""
    ledger.note(asked("narrow", f"account stated, {ledger.head().records}", NONE, step="publish"))
    records = ledger.records()
    return guarantee(records[-1].id, 0.001, records)["account"], records


def test_composed_accounts_are_stated_at_the_delta_of_the_release(ledger):
    """The cap of the other account is an epsilon at another delta: a smaller number, and a larger loss."""
    composed = Account(dataset="narrow", delta=1e-9, cap_epsilon=1.2, shares_rows_with=("wide",))
    ledger.declare(composed, actor="test")
    account, _ = stated(ledger)
    lost = epsilon_of(ledger.balance("narrow").charged_mu2, 1e-9)
    assert lost > 1.18
    assert account["epsilon"] >= lost
    assert account["epsilon_spent"] >= lost
    assert account["epsilon_cap"] == 1.2
    assert account["together"] == ["narrow", "wide"]


def test_only_a_release_of_pure_questions_states_an_epsilon_without_a_delta(ledger):
    """Two records of a unit lose twice as much; Gaussian noise takes the statement away, and a forged one shows."""
    ledger.declare(Account(dataset="pure", delta=1e-9, cap_epsilon=9.0, rows_per_unit=2), actor="test")
    laplace = Mechanism("discrete_laplace", sensitivity=Fraction(1), scale=Fraction(10), count=3)

    def state():
        ledger.note(asked("pure", f"account stated, {ledger.head().records}", NONE, step="publish"))
        records = ledger.records()
        number = records[-1].id
        return number, guarantee(number, 0.001, records), records

    assert "pure_epsilon" not in state()[1], "nothing was asked"
    ledger.reserve(asked("pure", "tables", laplace))
    number, given, records = state()
    assert given["pure_epsilon"] == 0.6
    manifest = {
        "release": "r1",
        "dataset": "pure",
        "guarantee": given,
        "provenance": {"ledger": {"records": number}},
    }
    assert guarantee_problems(manifest, records) == []
    forged = manifest | {"guarantee": given | {"pure_epsilon": 0.3}}
    assert guarantee_problems(forged, records) == ["ledger: gives 0.6 for pure_epsilon, the manifest says 0.3"]
    ledger.reserve(asked("pure", "counts", gaussian_for(Fraction(1, 100), sensitivity=Fraction(1), count=1)))
    number, given, records = state()
    assert "pure_epsilon" not in given
    forged = manifest | {"guarantee": given | {"pure_epsilon": 0.6}, "provenance": {"ledger": {"records": number}}}
    assert guarantee_problems(forged, records) == ["ledger: gives None for pure_epsilon, the manifest says 0.6"]


def test_a_tighter_cap_of_another_account_is_stated_at_the_own_delta(ledger):
    ledger.declare(Account(dataset="third", delta=1e-12, cap_epsilon=1.4, shares_rows_with=("narrow",)), actor="test")
    account, _ = stated(ledger)
    assert account["epsilon_cap"] == pytest.approx(epsilon_of(mu2_of(1.4, 1e-12), 1e-9), abs=1e-6)
    assert account["epsilon_cap"] < 1.2


def test_what_was_stated_before_accounts_were_composed_stays_true(ledger):
    before, records = stated(ledger)
    assert (before["together"], before["epsilon_spent"]) == (["narrow"], 0)
    ledger.declare(Account(dataset="narrow", delta=1e-9, cap_epsilon=1.2, shares_rows_with=("wide",)), actor="test")
    assert guarantee(records[-1].id, 0.001, ledger.records())["account"] == before
