"""A release of two linked tables from its files to its public folder, by every runner, killed and gone on with."""

from __future__ import annotations

import json
import re
import shutil
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from support.linked_release import DELTA, write_linked_release
from support.linked_tables import SCHEMA, linked_frames, linked_schema
from support.logs import all_logged
from support.small_release import run_all, write_release
from support.strata_release import with_the_same_answers

from synth_core.errors import SourceError, SpecError
from synth_core.ledger.sql import open_ledger
from synth_core.models.households import HouseholdModel
from synth_core.privacy.accounts import State
from synth_core.privacy.budget import delta_of, mu2_of
from synth_core.privacy.curator import Curator
from synth_core.release.household_check import check_shards, shard_files
from synth_core.release.paths import ReleasePaths
from synth_core.release.verify import check_release
from synth_core.steps import STEPS, ask_approval, cost, finished_steps, prepare, run_step, summary
from synth_core.steps.sample import Recipe, write_shard
from synth_core.storage.ingest import read_codes


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A published release and its folder."""
    folder = tmp_path_factory.mktemp("linked")
    spec = write_linked_release(folder, households=700, csv=True, quality_share=0.1)
    return folder, run_all(spec, folder / "workspace"), spec


@pytest.fixture
def paths(released):
    return ReleasePaths.of_address(released[1])


def tables(paths):
    return {name: pd.read_parquet(paths.extract / name) for name in ("household", "person")}


def test_two_data_sets_are_published_that_can_be_joined(paths):
    found = tables(paths)
    assert list(found["household"]) == ["hid", "tenure", "area"]
    assert list(found["person"]) == ["hid", "relation", "age"]
    assert sorted(found["household"].hid) == list(range(1, len(found["household"]) + 1)), "unique over shards"
    assert set(found["person"].hid) == set(found["household"].hid)
    assert found["person"].groupby("hid").size().max() <= SCHEMA.largest
    assert not any(rows.any() for rows in SCHEMA.violations(found).values())
    assert not any(rows.any() for rows in SCHEMA.person.violations(found["person"]).values())
    csv = pd.concat(pd.read_csv(path) for path in sorted((paths.csv_extract / "person").iterdir()))
    assert csv.reset_index(drop=True).equals(found["person"].astype(csv.dtypes.to_dict()))


def test_shards_have_whole_households(paths):
    for household, person in shard_files(paths.extract):
        assert set(pq.read_table(household)["hid"].to_pylist()) == set(pq.read_table(person)["hid"].to_pylist())


def test_manifest_and_certificate_say_what_it_is(paths, released):
    manifest, certificate = (json.loads(path.read_text()) for path in (paths.manifest, paths.certificate))
    about = manifest["tables"]
    assert about == certificate["tables"]
    found = tables(paths)
    assert (about["household"], about["person"]) == (len(found["household"]), len(found["person"]))
    mu = float(mu2_of(manifest["guarantee"]["epsilon"], DELTA)) ** 0.5
    assert delta_of(2 * mu, about["one_person"]["epsilon"]) == pytest.approx(DELTA, rel=1e-3)
    assert "twice mu" in about["one_person"]["says"]
    assert "replicates" in about["left_out"]
    assert manifest["guarantee"]["unit"] == "household"
    assert set(manifest["domain"]) == set(SCHEMA.flat.domain.attributes)
    assert summary(released[1])["quality"]["synthetic households"] == f"{len(found['household']):,}"
    report = paths.public_report.read_text()
    assert "Households and their people" in report
    assert "twice mu" in report
    assert "explore.html" not in report.replace(about["left_out"], "")


def test_pairs_of_people_are_paid_for_and_judged(paths, released):
    ledger = open_ledger(released[0] / "workspace")
    measured = [r for r in ledger.records(release="r1") if r.state is State.MEASURED]
    pairs = [r for r in measured if r.purpose.startswith("pairs: ")]
    assert {r.step for r in pairs} == {"fit"}
    assert sum((r.mu2 for r in pairs), Fraction(0)) <= mu2_of(2.0, DELTA) / 10
    quality = json.loads(paths.quality.read_text())
    assert quality["pairs"]
    assert all(any("@2" in name for name in one["clique"]) for one in quality["pairs"])
    answers = pd.read_parquet(paths.answers)
    sizes = answers[answers.attributes.map(lambda names: "size" in names and any("@2" in n for n in names))]
    place = sizes.attributes.iloc[0].tolist().index("size") if len(sizes) else 0
    assert {cell[place] for cell in sizes.cell} <= {"2", "3", "4"}, "households of one person have no pairs"


def test_the_internal_report_compares_households(paths):
    errors = json.loads(paths.evaluation.read_text())
    assert set(errors) >= {"households", "pairs", "groups", "broken"}
    assert errors["broken"] == 0
    assert 0 < errors["pairs"] < 0.2
    assert "Households and their people" in paths.internal_report.read_text()


def test_it_verifies_and_says_what_of_the_tables(paths):
    checks = {check.name: check for check in check_release(paths.public).checks}
    assert [check.outcome for check in checks.values()] == ["agrees"] * 5
    assert "everybody has a household" in checks["tables"].says
    assert "none of 4 rules" in checks["tables"].says


@pytest.mark.parametrize(
    ("table", "change", "said"),
    [
        ("person", lambda frame: frame[frame.hid != 3], "a household has nobody"),
        (
            "person",
            lambda frame: frame.assign(hid=frame.hid.where(frame.hid != 3, 99_999)),
            "somebody has no household",
        ),
        ("person", lambda frame: frame[::-1], "people are not in the order of their households"),
        ("household", lambda frame: frame.assign(hid=frame.hid.where(frame.hid != 3, 4)), "numbers that follow"),
        ("person", lambda frame: pd.concat([frame, frame[-1:], frame[-1:], frame[-1:], frame[-1:]]), "more than 4"),
    ],
)
def test_tables_that_do_not_fit_are_found(paths, tmp_path, table, change, said):
    homes, people = shard_files(paths.extract)[0]
    shard = {"household": tmp_path / "household" / homes.name, "person": tmp_path / "person" / homes.name}
    for name, source in (("household", homes), ("person", people)):
        shard[name].parent.mkdir()
        frame = pd.read_parquet(source)
        (change(frame) if name == table else frame).to_parquet(shard[name], index=False)
    problems = check_shards(shard_files(tmp_path), schema=SCHEMA).problems
    assert len(problems) == 1
    assert said in problems[0]


def test_a_broken_rule_is_found(paths, tmp_path):
    homes, people = shard_files(paths.extract)[0]
    for name, source in (("household", homes), ("person", people)):
        (tmp_path / name).mkdir()
        frame = pd.read_parquet(source)
        if name == "person":
            frame.loc[0, "relation"] = "child"
        frame.to_parquet(tmp_path / name / homes.name, index=False)
    assert check_shards(shard_files(tmp_path), schema=SCHEMA).broken["one reference"] == 1


def test_the_same_answers_give_the_same_digest_on_a_cluster(released, tmp_path):
    address = released[1]
    again = write_linked_release(tmp_path, households=700, csv=True, quality_share=0.1)
    with_the_same_answers(released[0], tmp_path)
    other = prepare(again, workspace=tmp_path / "workspace")
    for step in STEPS:
        run_step(step, other, cluster="local")
    assert summary(other)["digest"] == summary(address)["digest"]
    assert open_ledger(tmp_path / "workspace").balance("homes").charged_mu2 == charged(released[0])


def charged(folder):
    return open_ledger(folder / "workspace").balance("homes").charged_mu2


def test_running_again_costs_nothing(released):
    folder, address, _ = released
    before, digest = charged(folder), summary(address)["digest"]
    assert finished_steps(address) == STEPS
    for step in STEPS:
        run_step(step, address)
    assert (charged(folder), summary(address)["digest"]) == (before, digest)


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("after", [1, 2, 5])
def test_a_fit_killed_among_pairs_goes_on_with_the_same_questions(tmp_path, monkeypatch, after):
    """What is asked next follows from stored answers: nothing is charged twice, and the release is the same."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    more = {"households": 2000, "epsilon": 4.0, "method": "independent"}
    spec = write_linked_release(first, **more)
    address = prepare(spec, workspace=first / "workspace")
    for step in STEPS[:3]:
        run_step(step, address)
    asked, answer = [], Curator._answer

    def killed(self, purpose, *args, **more):
        found = answer(self, purpose, *args, **more)
        asked.append(purpose)
        if sum(one.startswith("pairs: ") for one in asked) == after:
            raise Killed
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Curator, "_answer", killed)
        with pytest.raises(Killed):
            run_step("fit", address)
    for step in STEPS[3:]:
        run_step(step, address)
    records = [r for r in open_ledger(first / "workspace").records(release="r1") if r.state is State.MEASURED]
    assert len({(r.step, r.purpose, r.key) for r in records}) == len({(r.step, r.purpose) for r in records})
    again = write_linked_release(second, **more)
    with_the_same_answers(first, second)
    other = run_all(again, second / "workspace")
    assert summary(other)["digest"] == summary(address)["digest"]
    assert charged(second) == charged(first)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"strata": "tenure"}, "strata is not offered"),
        ({"protect": [["tenure", "area"]]}, "protect is not offered"),
        ({"replicates": 2}, "replicates is not offered"),
        ({"bins_share": 0.1}, "bins_share is not offered"),
        ({"moments_share": 0.1}, "moments_share is not offered"),
        ({"reuse": ["r0"]}, "reuse is not offered"),
        ({"source": "person.csv"}, "declares two linked tables"),
    ],
)
def test_what_does_not_go_with_linked_tables_is_refused_before_anything_is_set_aside(tmp_path, changes, said):
    spec = write_linked_release(tmp_path, **changes)
    for door in (cost, prepare):
        with pytest.raises(SpecError, match=said):
            door(spec, workspace=tmp_path / "workspace")
    balance = open_ledger(tmp_path / "workspace").balance("homes")
    assert (balance.charged_mu2, balance.held_mu2) == (0, 0)


@pytest.mark.parametrize("account", [{"unit": "person"}, {"rows_per_unit": 4}])
def test_an_account_of_another_unit_is_refused(tmp_path, account):
    spec = write_linked_release(tmp_path, **account)
    with pytest.raises(SpecError, match="need an account whose unit is the household"):
        prepare(spec, workspace=tmp_path / "workspace")


def test_a_spec_of_another_unit_is_refused(tmp_path):
    spec = write_linked_release(tmp_path)
    with pytest.raises(SpecError, match="unit 'person' is not the unit"):
        prepare({**spec, "unit": "person"}, workspace=tmp_path / "workspace")


def test_one_table_takes_no_keys_of_two(tmp_path):
    spec = write_release(tmp_path)
    with pytest.raises(SpecError, match="pairs_share is about two linked tables"):
        prepare({**spec, "pairs_share": 0.2}, workspace=tmp_path / "workspace")
    with pytest.raises(SpecError, match="source names two linked tables and the schema declares one"):
        prepare({**spec, "source": {"person": spec["source"]}}, workspace=tmp_path / "workspace")


def test_a_bad_value_is_counted_as_a_refusal_and_not_named(tmp_path):
    frames = linked_frames(50)
    frames["person"].loc[3, "relation"] = "lodger"
    spec = write_linked_release(tmp_path, frames=frames)
    address = prepare(spec, workspace=tmp_path / "workspace")
    with pytest.raises(SourceError, match="'relation'") as refused:
        run_step("ingest", address)
    assert "lodger" not in str(refused.value)
    balance = open_ledger(tmp_path / "workspace").balance("homes")
    assert (balance.refusals, balance.charged_mu2, balance.held_mu2) == (1, 0, 0)


def test_people_alone_with_the_columns_of_their_household_give_the_same_release(released, tmp_path):
    """The rows are the same, so the same snapshot and the same answers."""
    folder, address, _ = released
    one = write_linked_release(tmp_path, households=700, csv=True, quality_share=0.1)
    with_the_same_answers(folder, tmp_path)
    frames = linked_frames(700)
    frames["person"].merge(frames["household"], on="hid").to_csv(tmp_path / "person.csv", index=False)
    other = run_all({**one, "source": {"person": one["source"]["person"]}}, tmp_path / "workspace")
    assert summary(other)["digest"] == summary(address)["digest"]


def test_households_of_one_person_and_no_share_for_pairs(tmp_path):
    spec = write_linked_release(tmp_path, schema=linked_schema(largest=1, together=[]), households=200)
    address = run_all(spec, tmp_path / "workspace")
    assert len(check_release(ReleasePaths.of_address(address).public).problems) == 0
    assert not [r for r in open_ledger(tmp_path / "workspace").records() if r.purpose.startswith("pairs: ")]


def test_a_stored_model_draws_the_same_households(paths, tmp_path):
    model = HouseholdModel.load(paths.model)
    model.save(tmp_path / "again.npz")
    again = HouseholdModel.load(tmp_path / "again.npz")
    left, right = (one.sample(100, np.random.default_rng(3)) for one in (model, again))
    assert np.array_equal(left.sizes, right.sizes)
    assert all(np.array_equal(codes, right.people[name]) for name, codes in left.people.items())
    (tmp_path / "again.npz").write_bytes(b"no model")
    with pytest.raises(SourceError, match="is not a stored model"):
        HouseholdModel.load(tmp_path / "again.npz")


@pytest.mark.slow
def test_200_000_households_break_no_rule(paths, tmp_path):
    recipe = Recipe(paths.model, paths.schema, "r1", 200_000, 3, 0, linked=True)
    for number in range(3):
        write_shard((number, tmp_path / f"part-{number:05d}.parquet"), recipe=recipe)
    seen = check_shards(shard_files(tmp_path), schema=SCHEMA)
    assert seen.households == 200_000
    assert seen.problems == []
    assert set(seen.broken.values()) == {0}
    assert len(seen.broken) == 4


CANARY, HOUSEHOLDS = "zyzzyva", 6173


def test_nothing_confidential_is_in_public_files_logs_or_events(tmp_path):
    """A planted value, an exact number of households, and one of people: nowhere but in the confidential zone."""
    schema = linked_schema(
        household={
            "columns": [
                {"name": "tenure", "kind": "categorical", "values": ["owned", "rented"], "unseen": "other"},
                {"name": "area", "kind": "categorical", "values": ["north", "east", "west"]},
            ]
        }
    )
    frames = linked_frames(HOUSEHOLDS)
    frames["household"].loc[17, "tenure"] = CANARY
    spec = write_linked_release(tmp_path, frames=frames, schema=schema, method="independent")
    with all_logged() as said:
        address = prepare(spec, workspace=tmp_path / "workspace")
        said += [run_step(step, address, progress=said.append) for step in STEPS]
    paths = ReleasePaths.of_address(address)
    secrets = {CANARY, str(HOUSEHOLDS), str(len(frames["person"]))}
    texts = {
        path: path.read_bytes().decode("latin-1")
        for path in [*paths.public.rglob("*.*"), tmp_path / "workspace" / "events.jsonl"]
    }
    texts |= {path: str(path) for path in paths.public.rglob("*")}
    texts["log"] = "\n".join(said)
    for where, text in texts.items():
        assert CANARY not in text, where
        if str(where).endswith((".json", ".yaml", ".html", ".jsonl", "log")):
            words = set(re.findall(r"[A-Za-z]+|\d+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", text)))
            assert not secrets & words, where
    left = {path.name for path in paths.confidential.iterdir() if path.suffix != ".lock"}
    assert left == {"encoded", "evaluation.json", "release.yaml", "report.html", "snapshot.json"}
    held = [read_codes(path) for path in (paths.encoded / "household").iterdir()]
    assert sum(len(codes["size"]) for codes in held) == HOUSEHOLDS, "that is where they are"


def test_who_approves_is_told_what_it_means_for_one_person(tmp_path):
    spec = write_linked_release(tmp_path, method="independent", approval=True, evaluate="quick")
    address = prepare(spec, workspace=tmp_path / "workspace")
    for step in STEPS[:-1]:
        run_step(step, address)
    _, certificate = ask_approval(address)
    assert "| Protects | one household, with all its people;" in certificate
    assert "| One person | ε 4.31" in certificate
    assert "| Synthetic households |" in certificate


def test_a_workspace_is_not_needed_to_verify(paths, tmp_path):
    shutil.copytree(paths.public, tmp_path / "copy")
    assert check_release(tmp_path / "copy").problems == ()
