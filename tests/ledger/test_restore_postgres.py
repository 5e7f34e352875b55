"""A backup of a ledger in PostgreSQL: what pg_restore made is charged for what came after it, and put in its place."""

import shutil

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from support.servers import create_database
from support.small_release import run_all, write_release

from synth_core.errors import LedgerError
from synth_core.ledger import restore
from synth_core.ledger.restore import restore_ledger
from synth_core.ledger.sql import SqlLedger, open_ledger
from synth_core.ledger.tables import append_only_grants
from synth_core.privacy.accounts import Account
from synth_core.privacy.budget import mu2_of
from synth_core.release.verify import check_release

pytestmark = pytest.mark.postgres

WHY = {"reason": "board decision 8", "actor": "test"}
LOST = {"people": 0.6, "houses": 0}


@pytest.fixture(scope="module")
def history(tmp_path_factory, postgres_server):
    """One release before the backup, one after it; the backup is a database, as pg_restore makes it."""
    folder, ledger = tmp_path_factory.mktemp("restored"), create_database(postgres_server)
    workspace = folder / "workspace"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SYNTH_LEDGER_URL", ledger)
        spec = write_release(folder, method="independent", epsilon=0.5)
        houses = Account(dataset="houses", unit="household", delta=1e-6, cap_epsilon=1.0, largest_n=1000)
        open_ledger(workspace).declare(houses, actor="test")
        run_all(spec, workspace)
        monday = copied(postgres_server, ledger)
        run_all(spec | {"release": "r2"}, workspace)
    return folder, spec, ledger, monday


@pytest.fixture
def site(history, tmp_path, postgres_server, monkeypatch):
    """The workspace and databases of this test: the ledger as it was last, and Monday's."""
    folder, spec, ledger, monday = history
    shutil.copytree(folder / "workspace", tmp_path / "workspace")
    mine = copied(postgres_server, ledger)
    monkeypatch.setenv("SYNTH_LEDGER_URL", mine)
    return tmp_path / "workspace", spec, mine, copied(postgres_server, monday)


def copied(server, ledger):
    """A database with what another one has."""
    copy = create_database(server)
    run(server, f"DROP DATABASE {make_url(copy).database}")
    run(server, f"CREATE DATABASE {make_url(copy).database} TEMPLATE {make_url(ledger).database}")
    return copy


def run(server, *statements):
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


def require_charged(workspace):
    """All that was spent before the backup, and what was stated as lost, and nothing twice."""
    ledger = open_ledger(workspace)
    assert ledger.verify() == []
    both = mu2_of(0.5, 1e-6) + mu2_of(0.6, 1e-6)
    assert ledger.balance("people").charged_mu2 == pytest.approx(float(both), rel=1e-6)
    assert ledger.balance("houses").charged_mu2 == 0
    assert [path.name for path in (workspace / "lost").iterdir()] == ["r2"]
    assert not list(workspace.glob(".restore-*"))


def test_a_backup_in_another_database_takes_the_place_of_the_ledger(site):
    workspace, spec, mine, monday = site
    found = restore_ledger(workspace, monday, lost=LOST, **WHY)
    assert found.moved == ("r2",)
    require_charged(workspace)
    assert SqlLedger(monday, head_paths=()).head().records < SqlLedger(mine, head_paths=()).head().records
    with pytest.raises(Exception, match="append-only"):
        run(mine, "DELETE FROM ledger_records")
    run_all(spec | {"release": "r3"}, workspace)
    assert check_release(workspace / "public" / "r3").sound


def test_a_backup_that_was_restored_in_place_is_charged_by_a_role_that_may_only_append(
    site, postgres_server, monkeypatch
):
    """The ledger's database is the backup: its records stay, and the charges come after them."""
    workspace, spec, _, monday = site
    role = f"runner_{make_url(monday).database}"
    run(postgres_server, f"CREATE ROLE {role} LOGIN")
    run(monday, *append_only_grants(role))
    mine = make_url(monday).set(username=role).render_as_string(hide_password=False)
    monkeypatch.setenv("SYNTH_LEDGER_URL", mine)
    with pytest.raises(LedgerError, match="the ledger was rolled back"):
        open_ledger(workspace).require_whole()
    before = SqlLedger(mine, head_paths=()).records()
    restore_ledger(workspace, mine, lost=LOST, **WHY)
    require_charged(workspace)
    assert open_ledger(workspace).records()[: len(before)] == before
    run_all(spec | {"release": "r3"}, workspace)


def test_only_the_owner_replaces_records(site, postgres_server, monkeypatch):
    workspace, _, mine, monday = site
    role = f"runner_{make_url(mine).database}"
    run(postgres_server, f"CREATE ROLE {role} LOGIN")
    run(mine, *append_only_grants(role))
    monkeypatch.setenv("SYNTH_LEDGER_URL", make_url(mine).set(username=role).render_as_string(hide_password=False))
    head, records = (workspace / "ledger.head").read_bytes(), SqlLedger(mine, head_paths=()).records()
    with pytest.raises(LedgerError, match="only the owner of its tables may replace them"):
        restore_ledger(workspace, monday, lost=LOST, **WHY)
    assert SqlLedger(mine, head_paths=()).records() == records
    assert (workspace / "ledger.head").read_bytes() == head
    assert (workspace / "public" / "r2").is_dir()


@pytest.mark.parametrize("last", ["_keep", "_move"])
def test_killed_on_the_way_it_is_done_again_and_charges_once(site, last, monkeypatch):
    """In place, before and after the commit: the head tells whether the charges are there."""
    workspace, _, _, monday = site
    monkeypatch.setenv("SYNTH_LEDGER_URL", monday)

    class Killed(BaseException):
        pass

    def killed(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(restore, last, killed)
        with pytest.raises(Killed):
            restore_ledger(workspace, monday, lost=LOST, **WHY)
    assert (workspace / "public" / "r2").is_dir()
    restore_ledger(workspace, monday, lost=LOST, **WHY)
    require_charged(workspace)


def test_a_ledger_that_moves_to_postgres_takes_the_file_along(history, tmp_path, postgres_server, monkeypatch):
    """An empty database and a backup that is a file: the tables are made and filled."""
    spec = write_release(tmp_path, method="independent", epsilon=0.5)
    run_all(spec, workspace := tmp_path / "workspace")
    records = open_ledger(workspace).records()
    monkeypatch.setenv("SYNTH_LEDGER_URL", create_database(postgres_server))
    restore_ledger(workspace, workspace / "ledger.sqlite", lost={"people": 0}, **WHY)
    assert open_ledger(workspace).records() == records
    run_all(spec | {"release": "r2"}, workspace)


def test_the_command_names_no_password(site, synth):
    workspace, _, _, monday = site
    secret = make_url(monday).set(username="vera", password="geheim", query={"host": "/nowhere"})
    code, out, err = synth(
        *("ledger", "restore", secret.render_as_string(hide_password=False), "-w", workspace, "--reason", "decision 8")
    )
    assert code != 0
    assert "geheim" not in out + err
    code, out, err = synth(
        *("ledger", "restore", monday, "-w", workspace, "--lost", "people=0.6", "--reason", "decision 8")
    )
    assert (code, err) == (0, "")
    assert "the ledger is restored: " in out
