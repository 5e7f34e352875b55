"""Stratified releases: parts that see their own rows alone, a price in parallel, agreement, and replays."""

import json
import shutil
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.strata_release import DISTRICTS, STATES, ledger_of, people, run_steps, with_the_same_answers, write_release

from synth_core.errors import SourceError, SpecError
from synth_core.evaluation.distances import tvd
from synth_core.ledger.book import charged_records, cost_by_step
from synth_core.models.mixture import load_model
from synth_core.privacy import curator as curators
from synth_core.privacy.accounts import State
from synth_core.privacy.budget import epsilon_of
from synth_core.release.paths import ReleasePaths
from synth_core.release.strata import Division
from synth_core.release.verify import verify_release
from synth_core.steps import STEPS, cost, list_parts, prepare, run_step, summary
from synth_core.storage.ingest import read_codes
from synth_core.synthesizers.base import load_scores

CONVERSATION = STEPS[:4]


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    folder = tmp_path_factory.mktemp("strata")
    spec = write_release(folder, quality_share=0.1)
    return folder, run_steps(spec, folder), spec


def answers_by_part(folder):
    """The stored noisy answers of each part, by what was asked."""
    ledger = ledger_of(folder)
    found = {}
    for record in ledger.records(release="r1"):
        if record.state is State.MEASURED:
            part = record.stratum.part if record.stratum else "all"
            found.setdefault(part, {})[record.step, record.purpose] = ledger.reserve(record.request).answer
    return found


@pytest.mark.slow
def test_it_is_published_and_verifies(released):
    _, address, _ = released
    public = ReleasePaths.of_address(address).public
    assert verify_release(public) == []
    manifest = json.loads((public / "manifest.json").read_text())
    assert manifest["strata"]["by"] == "district"
    assert {"strata.json", "strata/00006-b3/model.npz"} <= set(manifest["artifacts"])
    spends = json.loads((public / "certificate.json").read_text())["spends"]
    assert {spend["stratum"][1] for spend in spends if spend["stratum"]} == {
        f"{number} {name}" for number, name in enumerate(DISTRICTS)
    }
    assert "in each stratum" in (public / "report.html").read_text()


def test_the_price_is_that_of_one_stratum_and_of_what_all_share(released):
    folder, _, spec = released
    ledger = ledger_of(folder)
    records = ledger.records(release="r1")
    charged = charged_records(records)
    shared = sum((r.mu2 for r in charged if r.stratum is None), Fraction(0))
    parts = {}
    for record in charged:
        if record.stratum:
            parts[record.stratum.part] = parts.get(record.stratum.part, Fraction(0)) + record.mu2
    assert len(parts) == len(DISTRICTS)
    assert len({r.stratum.partition for r in charged if r.stratum}) == 1
    balance = ledger.balance("people").charged_mu2
    assert balance == shared + max(parts.values()) == sum(cost_by_step(records).values())
    assert 0.99 < epsilon_of(balance, 1e-6) <= spec["epsilon"]
    assert sum(parts.values()) > 6 * max(parts.values()), "one after the other they would cost that"
    rows = next(r for r in charged if r.purpose == "rows of each stratum")
    assert rows.mu2 / balance == pytest.approx(0.9 * 0.05)


def test_a_certificate_whose_strata_cost_more_than_stated_is_found(released, tmp_path):
    _, address, _ = released
    public = tmp_path / "workspace" / "public" / "r1"
    shutil.copytree(ReleasePaths.of_address(address).public, public)
    path = public / "certificate.json"
    certificate = json.loads(path.read_text())
    certificate["spends"].append(certificate["spends"][-3] | {"stratum": ["district", "somewhere"]})
    path.write_text(json.dumps(certificate))
    assert any("do not add up" in problem for problem in verify_release(public))


def test_the_table_has_all_columns_and_every_stratum_its_noisy_rows(released):
    _, address, _ = released
    paths = ReleasePaths.of_address(address)
    table = pd.read_parquet(paths.extract)
    assert list(table.columns) == ["sex", "district", "state", "age"]
    division = Division.load(paths.division)
    assert [part.name for part in division.parts] == list(DISTRICTS), "also those without records"
    counts = table.groupby("district").size().reindex(DISTRICTS, fill_value=0)
    assert len(table) == round(sum(division.rows))
    assert np.abs(counts.to_numpy() - np.array(division.rows)).max() < 1
    exact = people().groupby("district").size().reindex(DISTRICTS, fill_value=0).to_numpy()
    assert not np.array_equal(counts.to_numpy(), exact)
    assert np.abs(counts.to_numpy() - exact).max() < 120


def test_public_quality_is_about_the_whole_table(released):
    _, address, _ = released
    quality = json.loads(ReleasePaths.of_address(address).quality.read_text())
    judged = {tuple(one["clique"]) for one in quality["measured"]}
    assert judged == {("district",), ("sex",), ("state",), ("age",)}
    assert [one["alpha"] for one in quality["bought"]] == [1, 2, 3]


@pytest.mark.slow
def test_running_again_costs_nothing_and_gives_the_same_release(released, tmp_path):
    """In the same workspace, and in a new one by a cluster, stratum by stratum as Airflow does it."""
    folder, address, spec = released
    digest, charged = summary(address)["digest"], ledger_of(folder).balance("people").charged_mu2
    run_steps(spec, folder)
    assert summary(address)["digest"] == digest
    other = with_the_same_answers(folder, tmp_path)
    again = prepare(spec, workspace=other / "workspace")
    with pytest.raises(SourceError, match="run the step `score` first"):
        list_parts("fit", again)
    for step in ("ingest", "score", "select"):
        run_step(step, again, cluster="local")
    for one in list_parts("fit", again):
        run_step("fit", again, part=one)
    for step in STEPS[3:]:
        run_step(step, again, cluster="local")
    assert summary(again)["digest"] == digest
    assert ledger_of(other).balance("people").charged_mu2 == ledger_of(folder).balance("people").charged_mu2
    assert ledger_of(folder).balance("people").charged_mu2 == charged


def test_another_address_is_no_stratum(released, tmp_path):
    folder, _, _ = released
    paths = ReleasePaths(shutil.copytree(folder / "workspace", tmp_path / "workspace"), "r1")
    paths.signature.unlink()
    paths.adopt_unsigned()
    with pytest.raises(SpecError, match="is no stratum of release 'r1'"):
        run_step("fit", str(paths.spec), part="elsewhere/00009-zz")


def test_a_part_is_given_its_own_rows_and_nothing_of_the_others(released):
    _, address, _ = released
    paths, frame = ReleasePaths.of_address(address), people()
    for part in Division.load(paths.division).parts:
        (file,) = paths.stratum(part.folder).encoded.glob("*.parquet")
        codes = read_codes(file)
        own = frame[frame["district"] == part.name]
        assert set(codes) == {"sex", "state", "age"}
        assert codes["age"].tolist() == (own["age"] // 20).tolist()


@pytest.mark.slow
def test_a_conversation_needs_no_rows_but_its_own(tmp_path):
    """With everything else gone from the confidential zone, a stratum's model is still fitted."""
    spec = write_release(tmp_path, method="privmrf")
    address = run_steps(spec, tmp_path, CONVERSATION[:3])
    paths = ReleasePaths.of_address(address)
    first = list_parts("fit", address)[0]
    shutil.rmtree(paths.encoded)
    for other in paths.divided_rows.iterdir():
        if other.is_dir() and other.name != Path(first).name:
            shutil.rmtree(other)
    run_step("fit", address, part=first)
    assert paths.stratum(Path(first).name).model.exists()
    with pytest.raises(SourceError, match="the rows of stratum 'a2' are gone"):
        run_step("fit", address, part=list_parts("fit", address)[1])


@pytest.mark.slow
def test_a_record_of_one_stratum_changes_no_answer_of_another(tmp_path, monkeypatch):
    """With the same noise on both sides, answers differ where the record is, and nowhere else."""
    from support.seeded_entropy import SeededEntropy

    monkeypatch.setattr(curators, "SystemEntropy", lambda: SeededEntropy(3))
    frame = people()
    home = int(np.flatnonzero(frame["district"] == "b1")[0])
    without = frame.drop(index=home)
    found = []
    for name, rows in (("with", frame), ("without", without)):
        (tmp_path / name).mkdir()
        spec = write_release(tmp_path / name, frame=rows, method="privmrf")
        run_steps(spec, tmp_path / name, CONVERSATION)
        found.append(answers_by_part(tmp_path / name))
    one, two = found
    assert set(one) == set(two)
    for part in one:
        same = one[part].keys() == two[part].keys() and all(
            np.array_equal(one[part][asked], two[part][asked]) for asked in one[part]
        )
        assert same == (part not in ("all", "4 b1")), part
    (counts,) = one["all"].values()
    (fewer,) = two["all"].values()
    assert np.flatnonzero(counts - fewer).tolist() == [DISTRICTS.index("b1")]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["privmrf", "privbayes"])
def test_pooled_strata_share_a_model_that_knows_them(method, tmp_path):
    declared = {"by": "district", "pools": {"south": ["b2", "b1"]}, "pool_below": 150, "share": 0.2}
    address = run_steps(write_release(tmp_path, method=method, strata=declared, epsilon=3.0), tmp_path)
    paths = ReleasePaths.of_address(address)
    division = Division.load(paths.division)
    names = [part.name for part in division.parts]
    assert names == ["a1", "a2", "small strata", "south"]
    assert division.parts[2].codes == (2, 3, 6)
    model = load_model(paths.model)
    assert model.components[3].model.domain.size("district") == 2
    table = pd.read_parquet(paths.extract)
    counts = table.groupby("district").size().reindex(DISTRICTS, fill_value=0).to_numpy()
    if method == "privmrf":
        np.testing.assert_allclose(model.marginal(("district",)), division.rows, atol=0.1)
        assert np.abs(counts - np.array(division.rows)).max() < 5
    assert verify_release(paths.public) == []


@pytest.mark.slow
def test_districts_agree_with_their_state(tmp_path):
    spec = write_release(tmp_path, strata="district within state", method="privmrf")
    address = run_steps(spec, tmp_path, CONVERSATION[:3])
    paths = ReleasePaths.of_address(address)
    division, known = Division.load(paths.division), load_scores(paths.scores)
    parts = {"A": division.parts[:4], "B": division.parts[4:]}
    for attribute in ("sex", "age"):
        upper = next(m for m in known.measurements if m.clique == ("state", attribute))
        for code, own in enumerate(parts.values()):
            tables = [
                next(m for m in load_scores(paths.stratum(p.folder).agreed).measurements if m.clique == (attribute,))
                for p in own
            ]
            summed = np.sum([m.noisy for m in tables], axis=0)
            assert summed.sum() == pytest.approx(sum(map(division.rows_of, own)))
            assert np.abs(summed - upper.noisy[code]).max() < 4 * upper.sigma
            assert min(m.noisy.min() for m in tables) >= 0
    run_step("fit", address)
    model = load_model(paths.model)
    for attribute in ("sex", "age"):
        above, below = model.marginal(("state", attribute)), model.marginal(("district", attribute))
        np.testing.assert_allclose(above, [below[:4].sum(axis=0), below[4:].sum(axis=0)])
        agreed = [load_scores(paths.stratum(part.folder).agreed) for part in parts["A"]]
        tables = [m.noisy for one in agreed for m in one.measurements if m.clique == (attribute,)]
        np.testing.assert_allclose(above[0], np.sum(tables, axis=0), atol=0.01)
    run_step("sample", address)
    table = pd.read_parquet(paths.extract)
    assert (table["district"].map(STATES) == table["state"]).all()
    assert epsilon_of(ledger_of(tmp_path).balance("people").charged_mu2, 1e-6) <= 1.0


@pytest.mark.slow
def test_tables_of_the_states_have_less_error_than_without_their_level(tmp_path):
    """Means of four releases each; the same price, the same method."""
    frame = people(rows=4000)
    truth = frame.groupby(["state", frame["age"] // 20]).size().unstack(fill_value=0).to_numpy()
    errors = {}
    for declared in ("district", "district within state"):
        errors[declared] = []
        for number in range(4):
            folder = tmp_path / f"{len(declared)}-{number}"
            folder.mkdir()
            spec = write_release(folder, frame=frame, strata=declared, epsilon=0.5)
            model = load_model(ReleasePaths.of_address(run_steps(spec, folder, CONVERSATION)).model)
            marginal = model.marginal(("state", "age"))
            errors[declared].append(tvd(marginal / marginal.sum(), truth / truth.sum()))
    assert np.mean(errors["district within state"]) < 0.8 * np.mean(errors["district"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strata": "age"}, "is not categorical"),
        ({"strata": "region"}, "is not in the schema"),
        ({"rows_per_unit": 2}, "one row per unit"),
    ],
)
def test_what_cannot_be_stratified_is_refused_before_anything_is_set_aside(tmp_path, changes, message):
    spec = write_release(tmp_path, **changes)
    spec.pop("rows_per_unit", None)
    if "rows_per_unit" in changes:
        path = tmp_path / "schema.yaml"
        path.write_text(path.read_text() + "unit_column: person\n")
    with pytest.raises(SpecError, match=message):
        prepare(spec, workspace=tmp_path / "workspace")
    assert ledger_of(tmp_path).balance("people").held_mu2 == 0


def test_the_preview_shows_what_strata_cost(tmp_path):
    spec = write_release(tmp_path, strata="district within state")
    facts = dict(cost(spec, workspace=tmp_path / "workspace"))
    shares = dict(facts["How the budget is shared"])
    assert shares["rows of strata"].split()[0] == "5.0%"
    assert shares["level above"].split()[0] == "15.0%"
    assert ("strata", "7 of district") in facts["Release r1"]
    assert "What to expect in each stratum" in facts


def test_a_release_without_strata_has_none(tmp_path):
    spec = write_release(tmp_path, strata=None)
    address = run_steps(spec, tmp_path, CONVERSATION)
    assert list_parts("fit", address) == []
    assert not ReleasePaths.of_address(address).division.exists()


@pytest.mark.slow
def test_rules_about_strata_are_kept_inside_them_and_in_pools(tmp_path):
    frame = people()
    frame = frame[~((frame["district"].isin(["a1", "b2"])) & (frame["sex"] == "m"))]
    declared = {"by": "district", "pools": {"b": ["b1", "b2"]}}
    spec = write_release(tmp_path, frame=frame, strata=declared, method="privmrf", epsilon=0.2, rows=5000)
    rule = "rules: [{name: women only, when: {district: [a1, b2]}, never: {sex: [m]}}]\n"
    path = tmp_path / "schema.yaml"
    path.write_text(path.read_text() + rule)
    address = run_steps(spec, tmp_path, STEPS[:5])
    table = pd.read_parquet(ReleasePaths.of_address(address).extract)
    men = table[table["sex"] == "m"].groupby("district").size()
    assert not {"a1", "b2"} & set(men.index)
    assert men["b1"] > 100
