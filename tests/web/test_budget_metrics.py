"""The exporter writes the text format, with the ledger's own numbers, also when the ledger is broken or absent."""

import re
from threading import Thread
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from support.budget_examples import tampered

from synth_core.errors import SpecError
from synth_core.events.journal import Event, Kind, append
from synth_core.events.office import Office
from synth_core.privacy.budget import epsilon_of, mu2_of, round_up
from synth_core.web.metrics import exposition, metrics_server

NAME, LABEL = r"[a-zA-Z_:][a-zA-Z0-9_:]*", r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"^({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)$")


def parsed(text):
    """A strict reader of the format: each family has help and type first, its samples together, no sample twice."""
    assert text.endswith("\n")
    families, current = {}, None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            current = line.split(" ", 3)[2]
            assert current not in families
            families[current] = {"help": line.split(" ", 3)[3], "samples": {}}
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current
            assert kind in ("counter", "gauge")
            assert name.endswith("_total") == (kind == "counter")
        else:
            name, labels, value = SAMPLE.match(line).groups()
            assert name == current
            assert labels not in families[name]["samples"]
            families[name]["samples"][labels] = float(value)
    return {name: family["samples"] for name, family in families.items()}


@pytest.mark.slow
def test_the_numbers_are_those_of_the_ledger(office):
    found = parsed(exposition(office))
    balance = office.ledger.balance("people")
    assert found["synth_up"] == {None: 1}
    assert found["synth_ledger_sound"] == {None: 1}
    assert found["synth_ledger_records_total"] == {None: office.ledger.head().records}
    assert found["synth_budget_cap_epsilon"] == {'dataset="people"': 2, 'dataset="houses"': 2}
    spent, left = (epsilon_of(mu2, 1e-6) for mu2 in (balance.charged_mu2, balance.remaining_mu2))
    assert spent <= found["synth_budget_spent_epsilon"]['dataset="people"'] == round_up(spent, 6)
    remaining = found["synth_budget_remaining_epsilon"]['dataset="people"']
    assert mu2_of(remaining, 1e-6) <= balance.remaining_mu2
    assert remaining == pytest.approx(left, abs=1.1e-6)
    assert found["synth_budget_held_epsilon"]['dataset="houses"'] == pytest.approx(0.4, rel=1e-6)
    assert found["synth_ledger_entries"]['dataset="houses",state="measuring"'] == 1


def test_runs_and_releases_are_counted(office):
    found = parsed(exposition(office))
    fit = 'dataset="people",step="fit"'
    assert found["synth_step_seconds_total"][fit] >= 3
    assert found["synth_refusals_total"] == {'dataset="houses",step="prepare"': 1}
    rows = found["synth_release_rows"]['dataset="people",release="r1"']
    assert rows == office.rows(office.manifest("r1"))
    assert rows > 100
    assert found["synth_release_epsilon"]['dataset="people",release="r1"'] <= 1


def test_labels_are_escaped(office):
    append(office.workspace, Event(kind=Kind.REFUSAL, dataset='a"b\\c\nd', step="fit"))
    found = parsed(exposition(office))
    assert 'dataset="a\\"b\\\\c\\nd",step="fit"' in found["synth_refusals_total"]


def test_a_touched_ledger_is_not_sound(office):
    tampered(office.workspace, "UPDATE ledger_records SET reason = 'x' WHERE id = 3")
    assert parsed(exposition(office))["synth_ledger_sound"] == {None: 0}


def test_without_a_ledger_the_exporter_still_answers(tmp_path):
    assert parsed(exposition(Office(tmp_path))) == {"synth_up": {None: 0}}


def test_a_manifest_or_an_extract_that_cannot_be_read_does_not_stop_the_exporter(office):
    office.paths("r1").shard(0).unlink()
    assert parsed(exposition(office))["synth_release_rows"]['dataset="people",release="r1"'] == 0
    office.paths("r1").manifest.write_text("{")
    assert "synth_release_rows" not in parsed(exposition(office))


def test_metrics_are_served_on_one_address_only(office):
    server = metrics_server(office, "127.0.0.1:0")
    with server:
        Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_address[1]}"
        with urlopen(f"{base}/metrics") as answer:
            assert answer.read().decode() == exposition(office)
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"{base}/")
        with pytest.raises(SpecError, match="in use"):
            metrics_server(office, f"127.0.0.1:{server.server_address[1]}")
        server.shutdown()


@pytest.mark.parametrize("address", ["9105", "host:", "host:http"])
def test_an_address_that_is_none_is_refused(office, address):
    with pytest.raises(SpecError, match="HOST:PORT"):
        metrics_server(office, address)
