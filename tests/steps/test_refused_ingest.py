"""A refused ingest frees its hold, is counted before it is shown, names no file, and calls people at the limit."""

import json

import numpy as np
import pandas as pd
import pytest
from support.small_release import SCHEMA, people, write_release
from support.strata_release import write_release as write_strata
from typer.testing import CliRunner

from synth_core.cli import app
from synth_core.errors import BudgetRefused, LedgerError, RefusalsExhausted, SharedRows, SourceError, SpecError
from synth_core.events.journal import Kind, read
from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.privacy.accounts import Account, State
from synth_core.release.verify import verify_release
from synth_core.steps import STEPS, cancel_by_name, prepare, run_step

BAD = {"sex": ["x"], "age": [5], "job": ["farm"]}


def ledger_of(folder):
    return SqlLedger(ledger_url(folder / "workspace", None))


def spoilt(frame):
    """The table with one more record, whose sex is not declared."""
    return pd.concat([frame, pd.DataFrame(BAD)], ignore_index=True)


def refused(folder, spec):
    """Prepare and ingest; what the refusal says."""
    address = prepare(spec, workspace=folder / "workspace")
    with pytest.raises(SourceError) as refusal:
        run_step("ingest", address)
    return str(refusal.value)


@pytest.mark.parametrize("strata", [False, True])
def test_a_refused_ingest_gives_its_hold_back(tmp_path, strata):
    """The next release finds its room, and the refused one can be run again."""
    write = write_strata if strata else write_release
    spec = write(tmp_path, epsilon=1.5, method="independent")
    good = (tmp_path / "people.csv").read_text()
    spoil(tmp_path)
    refused(tmp_path, spec)
    ledger = ledger_of(tmp_path)
    assert ledger.balance("people").held_mu2 == 0
    assert [record.state for record in ledger.records()][-2:] == [State.REFUSED, State.CLOSED]
    (tmp_path / "people.csv").write_text(good)
    workspace = tmp_path / "workspace"
    for name in ("r2", "r1"):
        address = prepare({**spec, "release": name}, workspace=workspace)
        run_step("ingest", address)
        assert ledger.balance("people").held_mu2 > 0
        ledger.close("people", name, reason="cancelled", runner=ledger.records()[-1].runner)
    assert ledger.verify() == []


def spoil(folder):
    """Put a value that no schema here declares into the last line."""
    file = folder / "people.csv"
    *lines, last = file.read_text().splitlines()
    file.write_text("\n".join([*lines, ",".join("nowhere" for _ in last.split(","))]) + "\n")


def test_a_release_that_cannot_be_prepared_gives_its_hold_back(tmp_path, monkeypatch):
    spec = write_release(tmp_path)

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr("synth_core.release.spec.ReleaseSpec.save", full)
    with pytest.raises(OSError, match="no space"):
        prepare(spec, workspace=tmp_path / "workspace")
    assert ledger_of(tmp_path).balance("people").held_mu2 == 0
    monkeypatch.undo()
    prepare(spec, workspace=tmp_path / "workspace")
    assert ledger_of(tmp_path).balance("people").held_mu2 > 0


def test_no_higher_cap_is_proposed_while_a_dead_release_holds_budget(tmp_path):
    """A run that was killed leaves its hold; the next refusal names it and how to end it, and that helps."""
    spec = write_release(tmp_path, epsilon=1.5)
    prepare(spec, workspace=tmp_path / "workspace")  # and then it dies
    with pytest.raises(BudgetRefused) as refusal:
        prepare({**spec, "release": "r2"}, workspace=tmp_path / "workspace")
    words = str(refusal.value)
    assert "synth ledger cap" not in words
    assert "'r1'" in words
    assert "synth cancel r1 --reason TEXT --workspace DIR" in words
    cancel(tmp_path, "r1")
    prepare({**spec, "release": "r2"}, workspace=tmp_path / "workspace")


def cancel(folder, release):
    """What the refusal says that one should do."""
    command = ["cancel", release, "--reason", "it died", "--workspace", str(folder / "workspace")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output


def test_a_release_that_died_while_it_was_prepared_can_be_cancelled(tmp_path):
    """Only the ledger knows of it: the hold comes before the folders."""
    write_release(tmp_path)
    ledger = ledger_of(tmp_path)
    ledger.hold("people", "r9", mu2=ledger.balance("people").cap_mu2, runner=ledger.records()[-1].runner)
    cancel(tmp_path, "r9")
    assert ledger.balance("people").held_mu2 == 0
    with pytest.raises(SpecError, match="release 'r10' was never begun"):
        cancel_by_name(tmp_path / "workspace", "r10", reason="it died")


def test_a_maximum_is_not_found_by_halving_for_nothing(tmp_path):
    """Without a count, seventeen ingests with other bins found an exact maximum; now the declared number stops them."""
    frame = people().assign(age=np.minimum(people()["age"], 63))
    spec = write_release(tmp_path, frame=frame)
    ledger_of(tmp_path).declare(Account(dataset="halved", delta=1e-6, cap_epsilon=2.0, refusal_limit=3), actor="test")

    def is_at_most(number):
        """Whether all ages are, as anybody who may write a spec could ask."""
        bins = f"bounds: [0, {number}], bins: 1"
        (tmp_path / "schema.yaml").write_text(SCHEMA.replace("bounds: [0, 99], bins: 5", bins))
        probe = {**spec, "dataset": "halved", "release": f"probe-{number}", "epsilon": 0.01}
        address = prepare(probe, workspace=tmp_path / "workspace")
        try:
            run_step("ingest", address)
        except SourceError:
            return False
        return True

    assert [is_at_most(number) for number in (128, 64, 32, 48, 56)] == [True, True, False, False, False]
    with pytest.raises(RefusalsExhausted, match="synth ledger refusals halved --limit 6"):
        is_at_most(60)
    ledger = ledger_of(tmp_path)
    assert ledger.balance("halved").refusals == 3
    assert ledger.verify() == []


def test_a_refusal_about_records_names_no_file(tmp_path):
    """Which of many files holds the record would tell something about it."""
    spec = write_release(tmp_path, source=str(tmp_path / "parts"))
    parts = tmp_path / "parts"
    parts.mkdir()
    for number, frame in enumerate((people(), spoilt(people(seed=6)))):
        frame.to_csv(parts / f"district-{number}.csv", index=False)
    words = refused(tmp_path, spec)
    assert words.startswith("the source: column 'sex' has a value outside the declared values")
    assert "district" not in words
    log = (tmp_path / "workspace" / "events.jsonl").read_text()
    assert "column 'sex'" in log
    assert "district" not in log


def test_people_are_called_at_half_of_the_limit_and_at_the_limit(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr("synth_core.events.office.notify", lambda event: told.append(event) or [])
    spec = write_release(tmp_path, frame=spoilt(people()))
    ledger_of(tmp_path).set_refusal_limit("people", limit=4, actor="test", reason="a test")
    counts = []
    for _ in range(4):
        refused(tmp_path, spec)
        counts.append(len(told))
    assert counts == [0, 1, 1, 2]
    assert [(event.kind, event.level, event.limit) for event in told] == [
        (Kind.LIMIT, 0.5, 4),
        (Kind.LIMIT, 1.0, 4),
    ]
    assert "4 of at most 4 refusals have depended on the records of 'people'" in told[-1].text
    assert [event.kind for event in read(tmp_path / "workspace")].count(Kind.LIMIT) == 2
    with pytest.raises(LedgerError, match="as many refusals as may"):
        prepare(spec, workspace=tmp_path / "workspace")
    assert ledger_of(tmp_path).balance("people").held_mu2 == 0


@pytest.mark.slow
def test_the_certificate_says_how_many_refusals_there_were(tmp_path):
    spec = write_release(tmp_path, method="independent", frame=spoilt(people()))
    for _ in range(2):
        refused(tmp_path, spec)
    people().to_csv(tmp_path / "people.csv", index=False)
    address = prepare({**spec, "release": "r2"}, workspace=tmp_path / "workspace")
    for step in STEPS:
        run_step(step, address)
    for name in ("manifest.json", "certificate.json"):
        stated = json.loads((tmp_path / "workspace" / "public" / "r2" / name).read_text())
        assert stated["guarantee"]["account"]["refusals"] == 2


@pytest.mark.slow
def test_one_file_is_not_measured_on_two_accounts_unless_they_are_composed(tmp_path):
    """A second account would be a fresh budget for the same people, whatever its schema and release are called."""
    spec = write_release(tmp_path, method="independent")
    ledger = ledger_of(tmp_path)
    ledger.declare(Account(dataset="copy", delta=1e-6, cap_epsilon=2.0), actor="test")
    workspace = tmp_path / "workspace"
    address = prepare(spec, workspace=workspace)
    for step in STEPS:
        run_step(step, address)
    (tmp_path / "other.yaml").write_text(SCHEMA.replace("bins: 5", "bins: 4"))
    (tmp_path / "elsewhere.csv").write_bytes((tmp_path / "people.csv").read_bytes())
    second = {
        **spec,
        "dataset": "copy",
        "release": "r2",
        "schema": str(tmp_path / "other.yaml"),
        "source": str(tmp_path / "elsewhere.csv"),
    }
    address = prepare(second, workspace=workspace)
    with pytest.raises(SharedRows, match="they belong to dataset 'people'") as refusal:
        run_step("ingest", address)
    assert ledger.balance("copy").held_mu2 == 0
    assert ledger.balance("copy").refusals == 1  # that two files are equal is an answer too
    command = str(refusal.value).partition("compose both with: synth ")[2].split()
    result = CliRunner().invoke(app, [*command, "--workspace", str(workspace)])
    assert result.exit_code == 0, result.output
    address = prepare(second, workspace=workspace)
    for step in STEPS:
        run_step(step, address)
    manifests = [json.loads((workspace / "public" / name / "manifest.json").read_text()) for name in ("r1", "r2")]
    first, both = (manifest["guarantee"]["account"] for manifest in manifests)
    assert first["together"] == ["people"]
    assert both["together"] == ["copy", "people"]
    assert ledger.balance("people").charged_mu2 == ledger.balance("copy").charged_mu2
    for name in ("r1", "r2"):  # composing accounts changes nothing that was stated before
        assert verify_release(workspace / "public" / name) == []
    assert both["epsilon"] > 1.3 * first["epsilon"]
    assert ledger.verify() == []
