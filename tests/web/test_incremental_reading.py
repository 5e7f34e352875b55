"""Pages and metrics read what is new: what they cost does not grow with what they have shown before."""

import html
import json
import re

import pytest
from fastapi.testclient import TestClient
from support.budget_examples import spend, tampered

from synth_core.events import journal
from synth_core.events import office as offices
from synth_core.events.journal import Event, Kind, append
from synth_core.ledger import sql
from synth_core.privacy.budget import mu2_of
from synth_core.web.application import create_app
from synth_core.web.metrics import exposition
from synth_core.web.routes import Visitor
from synth_core.web.views import digest

SUMS = ("/", "/account?dataset=houses", "/releases", "/metrics")
PAGES = (*SUMS, "/records", "/records.csv", "/release?name=r1")


@pytest.fixture
def read(monkeypatch):
    """How many records, events and manifests are decoded."""
    counts = dict.fromkeys(("records", "events", "manifests"), 0)

    def counted(module, name, what):
        call = getattr(module, name)

        def count(*args, **kwargs):
            counts[what] += 1
            return call(*args, **kwargs)

        monkeypatch.setattr(module, name, count)

    counted(sql, "record_of", "records")
    counted(journal, "_parsed", "events")
    counted(offices, "read_json", "manifests")
    return counts


def test_each_record_event_and_manifest_is_read_once(office, read):
    """Before, 20,500 records were read for every page and every scrape: 1.3 s and more."""
    who = Visitor("vera", may_edit=False)
    app = create_app(office=lambda: office, visitor=lambda: who, secret=lambda: "s" * 32)
    client = TestClient(app)
    offices._manifest.cache_clear()
    first = {page: client.get(page).text for page in PAGES}
    known = dict(read)
    for page in SUMS:
        assert client.get(page).status_code == 200
    assert {name: read[name] - known[name] for name in ("events", "manifests")} == {"events": 0, "manifests": 0}
    assert read["records"] - known["records"] <= 2 * len(SUMS), "the last one is looked at again"
    for page in PAGES[len(SUMS) :]:
        before = read["records"]
        assert client.get(page).status_code == 200
        assert read["records"] - before <= office.ledger.head().records + 2, "what is shown is read"
    known = dict(read)
    spend(office.ledger, "going-1", "fit", mu2=mu2_of(0.1, 1e-6))
    append(office.workspace, Event(kind=Kind.STEP, dataset="people", release="r1", step="fit", seconds=1.0))
    assert client.get("/records").text != first["/records"]
    assert client.get("/metrics").text != first["/metrics"]
    assert read["events"] - known["events"] == 1


RELEASES = 500


@pytest.mark.slow
def test_a_scrape_after_500_releases_does_what_one_after_5_did(tmp_path, read):
    """Counted in records that are decoded and in calls of the ledger's database, of which a clock would tell less."""
    from fractions import Fraction
    from statistics import median

    from support.work_counter import count_calls

    from synth_core.events.office import Office
    from synth_core.ledger.sql import open_ledger
    from synth_core.privacy.accounts import Account

    ledger = open_ledger(tmp_path, create=True)
    ledger.declare(Account(dataset="houses", delta=1e-6, cap_epsilon=50.0, largest_n=100_000), actor="board")
    office = Office(tmp_path)
    office.chain_status()
    work, decoded = [], []
    for number in range(RELEASES):
        spend(ledger, f"r{number}", "fit", mu2=Fraction(1, 10_000))
        append(tmp_path, Event(kind=Kind.STEP, dataset="houses", release=f"r{number}", step="fit", seconds=1.0))
        before = read["records"]
        work.append(count_calls(lambda: exposition(office)))
        decoded.append(read["records"] - before)
    assert set(decoded[1:]) == {4}, "three new ones, and the last one once more"
    assert median(work[-50:]) <= 1.2 * median(work[:50])
    text = exposition(office)
    assert f'synth_ledger_entries{{dataset="houses",state="measured"}} {RELEASES}.0' in text
    assert f'synth_steps_total{{dataset="houses",step="fit"}} {RELEASES}.0' in text


@pytest.mark.slow
def test_a_page_decodes_the_records_that_are_new_or_shown_however_long_the_ledger_is(tmp_path, read, monkeypatch):
    """Counted in records: those of the release that was added, and of the releases of which lines are listed."""
    from fractions import Fraction

    from synth_core.events.office import Office
    from synth_core.ledger.sql import open_ledger
    from synth_core.privacy.accounts import Account
    from synth_core.web import records, routes

    monkeypatch.setattr(routes, "RECORDS_ON_A_PAGE", 4)
    monkeypatch.setattr(records, "PORTION", 10)
    ledger = open_ledger(tmp_path, create=True)
    ledger.declare(Account(dataset="houses", delta=1e-6, cap_epsilon=50.0, largest_n=100_000), actor="board")
    office, who = Office(tmp_path), Visitor("vera", may_edit=False)
    app = create_app(office=lambda: office, visitor=lambda: who, secret=lambda: "s" * 32)
    client, decoded = TestClient(app), []
    for number in range(30):
        spend(ledger, f"r{number}", "fit", mu2=Fraction(1, 10_000))
        counts = []
        for page in (*SUMS[:3], "/records", "/records?each=true", f"/release?name=r{number}"):
            before = read["records"]
            assert client.get(page).status_code == 200
            counts.append(read["records"] - before)
        decoded.append(counts)
    # The three new ones and the last one known; that one; four releases of three records and that one; the release.
    assert decoded[29] == decoded[6] == [4, 1, 1, 13, 13, 3]
    held = []
    monkeypatch.setattr(records, "to_csv", lambda records, head=True: held.append(len(list(records))) or "")
    client.get("/records.csv")
    assert max(held) == 10
    assert sum(held) == 31


def test_a_list_of_the_releases_of_a_dag_goes_on_over_pages(office, monkeypatch):
    """Each release once, newest first, and links that keep what the address names."""
    from synth_core.web import routes

    monkeypatch.setattr(routes, "RELEASES_ON_A_PAGE", 2)
    for number in range(3):
        spend(office.ledger, f"more-{number}", "fit", mu2=mu2_of(0.01, 1e-6))
    who = Visitor("vera", may_edit=False)
    client = TestClient(create_app(office=lambda: office, visitor=lambda: who, secret=lambda: "s" * 32))
    address, listed = "/dag?dag=census_release", []
    while address:
        page = client.get(address).text
        listed += re.findall(r'<th scope="row"><a href="release\?name=([^"]+)"', page)
        link = re.search(r'href="([^"]+)" rel="next"', page)
        address = f"/{html.unescape(link[1])}" if link else ""
        assert not link or "dag=census_release" in address
    assert listed[:3] == ["more-2", "more-1", "more-0"]
    assert len(listed) == len(set(listed)) > 3


@pytest.mark.parametrize("finish", [True, False])
def test_a_tally_says_what_a_count_of_all_records_says(office, finish):
    from collections import Counter

    from synth_core.ledger.groups import latest_records

    for number in range(3):
        spend(office.ledger, "going-1", f"step-{number}", mu2=mu2_of(0.01, 1e-6), finish=finish)
        counted = Counter((record.dataset, record.state.value) for record in latest_records(office.ledger.records()))
        assert office.entries() == counted


def test_a_tally_of_another_chain_is_counted_anew(office, workspace):
    before = office.entries()
    tampered(workspace, "DELETE FROM ledger_records WHERE id > 5")
    assert sum(office.entries().values()) <= 5 < sum(before.values())


def test_a_chain_that_is_another_one_is_read_from_its_beginning(office, workspace):
    before = {place: one.last for place, one in office.by_release(digest).items()}
    assert max(before.values()) == office.ledger.head().records > 5
    tampered(workspace, "DELETE FROM ledger_records WHERE id > 5")
    assert {place: one.last for place, one in office.by_release(digest).items()} != before


def test_a_log_that_is_another_one_is_read_from_its_beginning(office, workspace):
    assert len(office.events()) > 1
    log = journal.event_log(workspace)
    first = log.read_bytes().splitlines(keepends=True)[0]
    log.write_bytes(first + b'{"kind": "step", "torn')
    assert len(office.events()) == 1
    with log.open("ab") as file:
        file.write(b"\n" + first)
    assert len(office.events()) == 2


def test_a_manifest_that_was_changed_is_read_again(office):
    assert office.manifest("r1")["release"] == "r1"
    path = office.paths("r1").manifest
    other = json.loads(path.read_text()) | {"dataset": "other"}
    path.unlink()
    path.write_text(json.dumps(other))
    assert office.manifest("r1")["dataset"] == "other"
    assert 'dataset="other"' in exposition(office)
