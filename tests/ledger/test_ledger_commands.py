"""The `synth ledger` commands as a person uses them."""

from __future__ import annotations

import getpass
import json
import os
from pathlib import Path

import pytest
from click.testing import Result
from sqlalchemy import create_engine, text
from support.ledgers import DATASET, RUNNER, TENTH, account, answered, free_request
from typer.testing import CliRunner

from synth_core.cli.ledger import app
from synth_core.errors import LedgerError, SpecError, SynthError
from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.privacy.accounts import Account

ACCOUNT = (
    "account",
    DATASET,
    "--unit",
    "person",
    "--epsilon",
    "2",
    "--delta",
    "1e-5",
    "--largest-n",
    "10000",
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with an account, one answered question and one free step."""
    folder = tmp_path / "ws"
    assert synth(*ACCOUNT, "--workspace", str(folder)).exit_code == 0
    ledger = SqlLedger(ledger_url(folder, None))
    ledger.hold(DATASET, "pilot", mu2=3 * TENTH, runner=RUNNER)
    answered(ledger)
    ledger.note(free_request(release="second"))
    return folder


def synth(*arguments: str) -> Result:
    result = CliRunner().invoke(app, [*arguments], env={"COLUMNS": "100"})
    if isinstance(result.exception, SynthError):
        raise result.exception
    return result


def test_every_command_helps_with_an_example() -> None:
    for command in ("show", "verify", "export", "head", "account", "cap", "grants"):
        shown = synth(command, "--help")
        assert shown.exit_code == 0
        assert f"Example: `synth ledger {command}" in " ".join(shown.output.split())


def test_show_is_readable(workspace: Path) -> None:
    shown = synth("show", "-w", str(workspace)).output
    (line,) = [line for line in shown.splitlines() if "pairs" in line]
    assert line.split()[1:] == ["pilot", "fit", "pairs", "measured", "2", "0.0252"]
    assert "protects   one person (neighbours: add or remove one record)" in shown
    assert "cap        epsilon 2        mu² 0.2516" in shown
    assert "spent      epsilon 0.5632   mu² 0.02516" in shown
    assert "left       epsilon 1.6398   mu² 0.1761" in shown
    (line,) = [line for line in synth("show", "-w", str(workspace), "--all").output.splitlines() if "pairs" in line]
    assert line.split()[1:] == ["pilot", "fit", "pairs", "measured", "2", "gaussian", "0.0252"]
    assert max(len(line) for line in shown.splitlines()) <= 100


def test_show_of_an_empty_ledger_says_what_to_do(tmp_path: Path) -> None:
    SqlLedger(ledger_url(tmp_path, None))
    assert (
        "the ledger has no accounts; open one with: synth ledger account" in synth("show", "-w", str(tmp_path)).output
    )


def test_show_can_be_narrowed(workspace: Path) -> None:
    only = synth("show", "-w", str(workspace), "--release", "second", "--dataset", DATASET).output
    assert "model chosen" in only
    assert "pairs" not in only
    last = synth("show", "-w", str(workspace), "--last", "1").output
    assert "3 earlier lines are not shown; --last 0 shows them" in last
    assert "pairs" in synth("show", "-w", str(workspace), "--last", "0").output


def test_show_as_json_has_everything(workspace: Path) -> None:
    document = json.loads(synth("show", "-w", str(workspace), "--json").output)
    (account,) = document["accounts"]
    assert account["dataset"] == DATASET
    assert account["spent_mu2"] == str(TENTH)
    assert account["forecast"] is None
    states = [record["state"] for record in document["records"]]
    assert states == ["account", "held", "reserved", "measuring", "measured", "noted"]
    assert document["records"][2]["mechanism"]["name"] == "discrete_gaussian"


def test_verify_says_sound_or_exits_1_with_the_problems(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "head.json").write_text(synth("head", "-w", str(workspace)).output)
    sound = synth("verify", "-w", str(workspace), "--head", str(tmp_path / "head.json"))
    assert (sound.exit_code, sound.output.split(",")[0]) == (0, "the ledger is sound: 6 records")
    engine = create_engine(ledger_url(workspace, None))
    with engine.begin() as connection:
        connection.execute(text("DROP TRIGGER ledger_records_no_update"))
        connection.execute(text("UPDATE ledger_records SET reason = 'x' WHERE id = 3"))
    engine.dispose()
    broken = synth("verify", "-w", str(workspace))
    assert broken.exit_code == 1
    assert broken.stderr == "problem: record 3 was changed after it was written\n"


def test_verify_refuses_a_head_that_is_not_there(workspace: Path) -> None:
    with pytest.raises(LedgerError, match=r"head file nowhere\.json is missing"):
        synth("verify", "-w", str(workspace), "--head", "nowhere.json")


def test_export_writes_all_records(workspace: Path, tmp_path: Path) -> None:
    assert synth("export", str(tmp_path / "records.jsonl"), "-w", str(workspace)).exit_code == 0
    assert len((tmp_path / "records.jsonl").read_text().splitlines()) == 6


def test_export_to_nowhere_is_refused(workspace: Path, tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"cannot be written: it is not there"):
        synth("export", str(tmp_path / "no" / "records.jsonl"), "-w", str(workspace))


def test_the_cap_is_changed_with_a_reason(workspace: Path) -> None:
    shown = synth("cap", DATASET, "--epsilon", "3", "--reason", "decision 14", "-w", str(workspace)).output
    assert "cap        epsilon 3" in shown
    record = SqlLedger(ledger_url(workspace, None)).records()[-1]
    assert (record.reason, record.runner.actor) == ("decision 14", getpass.getuser())


def test_an_actor_without_a_name_is_a_number(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError

    monkeypatch.setattr(getpass, "getuser", nameless)
    synth("cap", DATASET, "--epsilon", "3", "--reason", "decision 14", "-w", str(workspace))
    assert SqlLedger(ledger_url(workspace, None)).records()[-1].runner.actor == f"uid {os.getuid()}"


def test_a_mistyped_workspace_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"there is no ledger at .*; name its folder with --workspace"):
        synth("show", "-w", str(tmp_path / "mistyped"))
    assert not (tmp_path / "mistyped").exists()


def test_an_account_where_no_folder_can_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match="cannot be created: "):
        synth(*ACCOUNT, "-w", str(tmp_path / "file" / "ws"))


def test_an_account_is_asked_for_its_largest_number_of_records(tmp_path: Path) -> None:
    asked = ("account", "diary", "--epsilon", "1", "--delta", "1e-6", "-w", str(tmp_path))
    with pytest.raises(SpecError, match="declare largest_n, or give a reason"):
        synth(*asked)
    assert SqlLedger(ledger_url(tmp_path, None)).accounts() == []
    old = Account(dataset="diary", delta=1e-6, cap_epsilon=1.0)
    SqlLedger(ledger_url(tmp_path, None)).declare(old, actor="board")
    assert synth(*asked).exit_code == 0, "an account from before it was asked for is still the same"


def test_a_large_delta_needs_a_reason_that_stays_in_the_ledger(tmp_path: Path) -> None:
    asked = (
        "account",
        "diary",
        "--epsilon",
        "1",
        "--delta",
        "1e-4",
        "--largest-n",
        "5000",
        "-w",
        str(tmp_path),
    )
    with pytest.raises(LedgerError, match=r"dataset 'diary': delta 0\.0001 is too large for up to 5000 records"):
        synth(*asked)
    assert synth(*asked, "--delta-reason", "rows are published already").exit_code == 0
    assert synth(*asked).exit_code == 0, "the same declaration again changes nothing"
    (opened,) = SqlLedger(ledger_url(tmp_path, None)).records()
    assert opened.reason == "rows are published already"
    assert synth("cap", "diary", "--epsilon", "2", "--reason", "board", "-w", str(tmp_path)).exit_code == 0


def test_several_records_per_person_are_said(tmp_path: Path) -> None:
    shown = synth(
        *("account", "diary", "--epsilon", "1", "--delta", "1e-6", "--largest-n", "1000"),
        *("--rows-per-unit", "4", "-w", str(tmp_path)),
    )
    assert "one person, up to 4 records each" in shown.output


@pytest.mark.postgres
def test_another_ledger_is_used_by_its_url(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the head of such a ledger is kept in the workspace
    assert synth(*ACCOUNT, "--ledger", postgres_url).exit_code == 0
    assert (tmp_path / "workspace" / "ledger.head").exists()
    monkeypatch.setenv("SYNTH_LEDGER_URL", postgres_url)
    assert DATASET in synth("show").output
    assert synth("verify").exit_code == 0


def test_grants_prints_sql() -> None:
    assert "GRANT SELECT, INSERT ON ledger_records, ledger_answers TO writer;" in synth("grants", "writer").output


def test_an_account_is_composed_with_another_by_one_option(tmp_path: Path) -> None:
    where = ("-w", str(tmp_path))
    assert synth(*ACCOUNT, *where).exit_code == 0
    ledger = SqlLedger(ledger_url(tmp_path, None))
    ledger.declare(account(dataset="old"), actor="board")  # of a version that did not ask for a largest number
    shown = synth("account", "old", "--shares-rows-with", DATASET, *where)
    assert shown.exit_code == 0, shown.output
    assert f"together with {DATASET}: rows of the same people" in shown.output
    assert ledger.balance(DATASET).together == (DATASET, "old")
    with pytest.raises(LedgerError, match="dataset 'new' has no account; declare it with"):
        synth("account", "new", "--shares-rows-with", DATASET, *where)


def test_the_limit_of_refusals_is_changed_with_a_reason(tmp_path: Path) -> None:
    where = ("-w", str(tmp_path))
    assert synth(*ACCOUNT, *where).exit_code == 0
    shown = synth("refusals", DATASET, "--limit", "40", "--reason", "decision 15", *where)
    assert "0 of at most 40 have depended on records" in shown.output
    assert SqlLedger(ledger_url(tmp_path, None)).records()[-1].reason == "decision 15"
