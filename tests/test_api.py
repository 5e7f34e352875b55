"""`synthesize`: units are bounded as in a release, and a ledger's account pays where there is one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from synth_core import Schema, synthesize
from synth_core.errors import BudgetRefused, LedgerError, RefusalsExhausted, SchemaError, SourceError, SpecError
from synth_core.ledger.sql import SqlLedger
from synth_core.privacy.accounts import Account, State
from synth_core.privacy.budget import epsilon_of

SIZES = {"a": 4, "b": 3}
COLUMNS = [{"name": name, "kind": "categorical", "values": list(range(size))} for name, size in SIZES.items()]
PEOPLE = Schema.model_validate({"columns": COLUMNS, "unit_column": "person", "unit_kind": "integer"})
SMALL = {"method": "independent", "epsilon": 1.0, "delta": 1e-6}


def frame(rows=600, seed=0):
    rng = np.random.default_rng(seed)
    table = {name: rng.integers(0, size, rows) for name, size in SIZES.items()}
    return pd.DataFrame(table | {"person": np.arange(rows)})


@pytest.fixture
def url(tmp_path):
    found = f"sqlite:///{tmp_path}/ledger.sqlite"
    SqlLedger(found).declare(Account(dataset="census", delta=1e-6, cap_epsilon=1.5, largest_n=10_000), actor="board")
    return found


def test_synthesize_keeps_one_row_of_a_person_with_a_thousand():
    """At epsilon 20 the noisy total errs by less than 30, with probability 1 - 1e-9; 999 rows more would show."""
    many = pd.concat([frame(), pd.DataFrame({"a": 0, "b": 0, "person": ["7", "007", "7.0", 7] * 250})])
    release = synthesize(many, PEOPLE, method="independent", epsilon=20.0, delta=1e-6)
    assert abs(release.model.total - 600) < 30
    assert release.unit == "person, accounted for nowhere"
    assert {record.account.rows_per_unit for record in release.records} == {1}


def test_more_rows_of_a_person_are_used_and_paid_for_if_allowed():
    many = pd.concat([frame()] * 3)
    release = synthesize(many, PEOPLE, method="independent", epsilon=40.0, delta=1e-6, rows_per_unit=2)
    assert abs(release.model.total - 1200) < 40
    charged = sum(record.mu2 for record in release.records if record.state is State.MEASURED)
    alone = sum(record.mechanism.mu2() for record in release.records if record.state is State.MEASURED)
    assert charged == 4 * alone
    assert epsilon_of(charged, 1e-6) <= 40
    with pytest.raises(SpecError, match="the schema must say which column names the unit"):
        synthesize(many, Schema.from_sizes(SIZES), **SMALL, rows_per_unit=2)


def test_without_a_ledger_every_record_says_that_it_is_accounted_for_nowhere():
    release = synthesize(frame(), Schema.from_sizes(SIZES), **SMALL)
    assert release.unit == "record, accounted for nowhere"
    assert {record.account.unit for record in release.records} == {"record, accounted for nowhere"}
    assert "unit: record, accounted for nowhere" in " ".join(synthesize.__doc__.split())


@pytest.mark.parametrize("form", ["url", "file", "workspace"])
def test_a_ledger_pays(tmp_path, url, form):
    ledger = {"url": url, "file": tmp_path / "ledger.sqlite", "workspace": str(tmp_path)}[form]
    release = synthesize(frame(), PEOPLE, **SMALL, ledger=ledger, dataset="census", release="first")
    assert release.unit == "person"
    book = SqlLedger(url)
    balance = book.balance("census")
    assert 0.99 < epsilon_of(balance.charged_mu2, 1e-6) <= 1.0
    assert balance.held_mu2 == 0, "what was not charged is free again"
    assert [record.hash for record in book.records(release="first")] == [r.hash for r in release.records]
    assert book.verify() == []
    with pytest.raises(SpecError, match="release 'first' is in the ledger already"):
        synthesize(frame(), PEOPLE, **SMALL, ledger=ledger, dataset="census", release="first")


def test_calls_add_up_in_the_account_until_it_is_empty(url):
    for _ in range(2):
        synthesize(frame(), PEOPLE, **SMALL, ledger=url, dataset="census")
    assert epsilon_of(SqlLedger(url).balance("census").charged_mu2, 1e-6) > 1.3
    with pytest.raises(BudgetRefused, match="dataset 'census' has epsilon"):
        synthesize(frame(), PEOPLE, **SMALL, ledger=url, dataset="census")


def test_a_refused_frame_is_charged_nothing_and_holds_nothing(url):
    with pytest.raises(SourceError, match="column 'a'"):
        synthesize(frame().assign(a="x"), PEOPLE, **SMALL, ledger=url, dataset="census")
    balance = SqlLedger(url).balance("census")
    assert (balance.held_mu2, balance.charged_mu2) == (0, 0)


def test_refused_frames_are_counted_and_stop_at_the_limit_of_the_account(url):
    ledger = SqlLedger(url)
    ledger.set_refusal_limit("census", limit=2, actor="board", reason="a test")
    account = {**SMALL, "ledger": url, "dataset": "census", "release": "first"}
    for given in (1, 2):
        with pytest.raises(SourceError, match="the frame: column 'a'"):
            synthesize(frame().assign(a=9), PEOPLE, **account)
        assert ledger.balance("census").refusals == given
    with pytest.raises(RefusalsExhausted, match="synth ledger refusals census --limit 4"):
        synthesize(frame(), PEOPLE, **account)
    assert ledger.balance("census").held_mu2 == 0
    ledger.set_refusal_limit("census", limit=4, actor="board", reason="the frame is mended")
    assert len(synthesize(frame(), PEOPLE, **account).table) > 0


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"dataset": "census"}, SpecError, "say with ledger= where it is"),
        ({"release": "first"}, SpecError, "say with ledger= where it is"),
        ({"ledger": "URL"}, SpecError, "ledger= needs dataset="),
        ({"ledger": "URL", "dataset": "census", "cap": 1.0}, SpecError, "cap= is the account's to say"),
        ({"ledger": "URL", "dataset": "census", "largest_n": 9}, SpecError, "largest_n= is the account's"),
        ({"ledger": "URL", "dataset": "census", "rows_per_unit": 1}, SpecError, "rows_per_unit= is the"),
        ({"ledger": "URL", "dataset": "other"}, LedgerError, "'other'"),
        ({"ledger": "URL", "dataset": "census", "delta": 1e-9}, SpecError, "is not the delta of dataset"),
        ({"ledger": "/nowhere/ledger.sqlite", "dataset": "census"}, LedgerError, "there is no ledger"),
        ({"largest_n": 100_001}, SpecError, "delta 1e-06 is too large for up to 100001 records"),
        ({"largest_n": 0}, SpecError, "must be at least 1"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_before_rows_are_read(url, arguments, error, message):
    arguments = {name: url if value == "URL" else value for name, value in arguments.items()}
    with pytest.raises(error, match=message):
        synthesize(None, PEOPLE, **(SMALL | arguments))


def test_a_delta_is_accepted_up_to_a_tenth_of_a_record_or_with_a_reason():
    for more in ({"largest_n": 100_000}, {"largest_n": 10**9, "delta_reason": "rows were made up"}):
        assert len(synthesize(frame(), PEOPLE, **SMALL, **more).table) > 0


def test_the_unit_column_must_be_there():
    with pytest.raises(SourceError, match="'person', which names the unit of each row, must be there exactly once"):
        synthesize(frame().drop(columns="person"), PEOPLE, **SMALL)


def test_bins_that_are_to_be_bought_are_refused():
    bought = {
        "name": "c",
        "kind": "integer",
        "bounds": [0, 99],
        "bins": {"private_quantiles": 4},
        "unseen": "clip",
    }
    with pytest.raises(SchemaError, match="column 'c' has bins that are to be bought"):
        synthesize(frame(), Schema.model_validate({"columns": [*COLUMNS, bought]}), **SMALL)


def test_a_call_builds_on_the_answers_of_another(url):
    """What an earlier call has measured is used again: nothing more is charged, and the result says so."""
    common = {"epsilon": 0.8, "delta": 1e-6, "ledger": url, "dataset": "census"}
    first = synthesize(frame(), PEOPLE, **common, release="first")
    again = synthesize(frame(), PEOPLE, **common, release="second", reuse=["first"])
    assert first.reused == ()
    (said,) = again.reused
    assert (said["release"], said["used"]) == ("first", True)
    assert f"reused     {said['tables']} noisy tables of release first" in again.summary()
    assert again.cost.epsilon == 0.8
    assert {record.release for record in again.records} == {"second"}


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"ledger": None, "dataset": None}, "reuse= names releases in a ledger; say with ledger= where it is"),
        ({"reuse": ["other"]}, "reuse: release 'other' has measured nothing from dataset 'census'"),
        ({"method": "absyn", "reuse": ["first"]}, "reuse: the method does not build on answers of earlier releases"),
    ],
)
def test_a_call_refuses_what_it_cannot_build_on(url, changes, refusal):
    synthesize(frame(), PEOPLE, **SMALL, ledger=url, dataset="census", release="first")
    common = {"epsilon": 0.4, "delta": 1e-6, "ledger": url, "dataset": "census", "reuse": ["first"]}
    with pytest.raises(SpecError, match=refusal):
        synthesize(frame(), PEOPLE, **{**common, **changes})


BESIDE = {"epsilon": 1.0, "delta": 1e-6}


def test_a_call_builds_on_a_public_table(tmp_path):
    """A frame, a file and the summary that names it; nothing beyond the price is charged."""
    reason = {"public_because": "the office published it in 2025"}
    public = frame(seed=9)
    release = synthesize(frame(), PEOPLE, **BESIDE, prior=public, **reason)
    assert (release.prior["rows"], release.prior["public_because"]) == (len(public), reason["public_because"])
    assert f"public     a table in memory, by its codes ({release.prior['files'][0]['sha256'][:12]}…)" in (
        release.summary()
    )
    public.to_csv(tmp_path / "public.csv", index=False)
    again = synthesize(frame(), PEOPLE, **BESIDE, prior=tmp_path / "public.csv", **reason)
    assert (again.prior["rows"], again.prior["files"][0]["name"]) == (len(public), "public.csv")
    assert again.cost.epsilon == BESIDE["epsilon"]
    assert synthesize(frame(), PEOPLE, **BESIDE).prior is None


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"public_because": ""}, "prior.public_because: "),
        ({"method": "absyn"}, "prior: the method does not build on a public table; use privmrf, or leave it out"),
        ({"protect": [["a"]]}, "prior= is not offered together with protect= and reuse="),
    ],
)
def test_a_call_refuses_a_prior_it_cannot_build_on(changes, refusal):
    arguments = {"prior": frame(seed=9), "public_because": "the office published it in 2025", **changes}
    with pytest.raises(SpecError, match=refusal):
        synthesize(frame(), PEOPLE, **{**BESIDE, **arguments})


def test_the_confidential_frame_is_no_prior():
    rows = frame()
    with pytest.raises(SpecError, match="prior= is the confidential frame itself; give a public table"):
        synthesize(rows, PEOPLE, **BESIDE, prior=rows, public_because="the office published it in 2025")
