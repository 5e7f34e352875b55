"""Lineage events: what they say of a published release, what they never say, and where they go."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from synth_core.events.notices import lineage_event, send_lineage
from synth_core.privacy.accounts import Runner

MANIFEST = {
    "release": "r1",
    "dataset": "people",
    "digest": "abc",
    "quality": {"noisy_total": 617.3, "synthetic_rows": 617},
    "guarantee": {
        "unit": "person",
        "epsilon": 1.0,
        "delta": 1e-6,
        "mu": 0.24,
        "epsilon_spent": 0.9,
        "account": {"epsilon": 1.2, "epsilon_spent": 1.1, "epsilon_cap": 2.0},
    },
    "provenance": {"ledger": {"records": 12, "hash": "def"}},
}
RUNNER = Runner(dag="census_release", run="manual__1")


@pytest.fixture
def manifest(tmp_path):
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(MANIFEST))
    return path


def test_the_event_states_the_loss_and_no_count():
    event = lineage_event(MANIFEST, RUNNER)
    assert event["eventType"] == "COMPLETE"
    assert event["run"]["facets"]["synth_privacyLoss"]["epsilon"] == 1.0
    assert event["inputs"] == [{"namespace": "synth://confidential", "name": "people"}]
    assert event["outputs"][0]["name"] == "people/r1"
    assert "617" not in json.dumps({key: value for key, value in event.items() if key != "eventTime"})
    assert lineage_event(MANIFEST, RUNNER)["run"]["runId"] == event["run"]["runId"]


def test_events_are_appended_to_a_file(manifest, tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTH_LINEAGE", str(tmp_path / "lineage.jsonl"))
    send_lineage(manifest, RUNNER)
    send_lineage(manifest, RUNNER)
    lines = (tmp_path / "lineage.jsonl").read_text().splitlines()
    assert [json.loads(line)["job"]["name"] for line in lines] == ["census_release"] * 2


def test_events_are_posted_to_a_collector(manifest, monkeypatch):
    received = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        monkeypatch.setenv("SYNTH_LINEAGE", f"http://127.0.0.1:{server.server_port}/api/v1/lineage")
        send_lineage(manifest, RUNNER)
        thread.join()
    assert received[0]["outputs"][0]["name"] == "people/r1"


def test_a_collector_that_does_not_answer_is_a_warning(manifest, monkeypatch, caplog):
    monkeypatch.setenv("SYNTH_LINEAGE", "http://127.0.0.1:9/")
    send_lineage(manifest, RUNNER)
    assert "lineage was not sent: URLError" in caplog.text
    manifest.write_text("{")
    send_lineage(manifest, RUNNER)
    assert "lineage was not sent: JSONDecodeError" in caplog.text


def test_nobody_is_told_unless_asked_for(manifest, monkeypatch, tmp_path):
    monkeypatch.delenv("SYNTH_LINEAGE", raising=False)
    send_lineage(manifest, RUNNER)
    assert list(tmp_path.iterdir()) == [manifest]
