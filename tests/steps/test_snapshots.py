"""A release whose data changed under way: its strata compose in parallel inside each snapshot, snapshots add up."""

import json
from fractions import Fraction

import pytest
from support.strata_release import ledger_of, people, run_steps, write_release

from synth_core.ledger.book import cost_by_step, counted_records
from synth_core.privacy.budget import mu2_of
from synth_core.release import certificate as certificates
from synth_core.release.paths import ReleasePaths
from synth_core.steps import run_step, strata

BUDGET = mu2_of(1.0, 1e-6)


@pytest.fixture
def records(tmp_path, monkeypatch):
    """Some strata were asked about the first snapshot when the run died; the others are asked about the next."""
    monkeypatch.setattr("synth_core.ledger.verbs.require_room", lambda *_, **__: None)
    converse, asked = strata._converse_each, [slice(0, 3), slice(3, None)]
    monkeypatch.setattr(
        strata,
        "_converse_each",
        lambda run, phase, division, parts: converse(run, phase, division, parts[asked.pop(0)]),
    )
    address = run_steps(write_release(tmp_path), tmp_path, ("ingest", "score"))
    people(seed=6).to_csv(tmp_path / "people.csv", index=False)
    ReleasePaths(tmp_path / "workspace", "r1").snapshot.unlink()
    for step in ("ingest", "score"):
        run_step(step, address)
    return ledger_of(tmp_path).records(dataset="people", release="r1"), ledger_of(tmp_path)


def test_strata_of_two_snapshots_add_up_in_ledger_and_manifest(records) -> None:
    """A person of the first snapshot's north may be in the next one's south, and has answers about both then."""
    found, ledger = records
    charged = ledger.balance("people").charged_mu2
    assert charged > Fraction(3, 2) * BUDGET
    assert sum(cost_by_step(found).values()) == charged
    snapshots = {record.snapshot for record in found if record.mu2 and record.key}
    assert len(snapshots) == 2
    assert {record.snapshot for record in counted_records(found) if record.stratum} == snapshots


def test_a_certificate_adds_up_without_naming_its_snapshots(records) -> None:
    found, _ = records
    steps = {step: {"mu2": str(mu2)} for step, mu2 in cost_by_step(found).items() if step}
    manifest = dict.fromkeys(("source_digest", "schema_digest", "domain", "method"), "") | {
        "release": "r1",
        "dataset": "people",
        "guarantee": {"rows_per_unit": 1, "steps": steps},
    }
    certificate = certificates.certificate(manifest, found)
    assert certificates.certificate_problems(certificate, manifest) == []
    spends = certificate["spends"]
    assert {spend["snapshot"] for spend in spends} == {1, 2}
    assert not any(record.snapshot in json.dumps(spends) for record in found if record.snapshot)
    for spend in spends:
        spend["snapshot"] = 1
    assert certificates.certificate_problems(certificate, manifest), "in one snapshot the parts would be cheaper"
