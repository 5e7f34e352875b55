"""A release that builds on answers of an earlier one: what it may name, what it costs, what it says, what it hides."""

import json
import shutil
from fractions import Fraction

import pytest
from support.small_release import SCHEMA, people, run_all, write_release

from synth_core.errors import SpecError
from synth_core.ledger.book import cost_by_step
from synth_core.ledger.sql import open_ledger
from synth_core.privacy.accounts import State
from synth_core.privacy.budget import epsilon_of, mu2_of
from synth_core.release.paths import ReleasePaths
from synth_core.release.reuse import FrozenReuse
from synth_core.release.spec import ReleaseSpec
from synth_core.release.verify import verify_release
from synth_core.schema import Schema
from synth_core.steps import prepare, run_step
from synth_core.steps.preview import preview_release

pytestmark = pytest.mark.slow

BOUGHT = SCHEMA.replace("bins: 5", "bins: {private_quantiles: 4}, unseen: clip")


def asked(folder, frame=None, **changes):
    """A spec in a folder with a published release r1; the workspace and the spec of r2, which names it."""
    first = write_release(folder, cap=9.0, evaluate="none", **({} if frame is None else {"frame": frame}))
    run_all(first, folder / "workspace")
    return folder / "workspace", {**first, "release": "r2", "reuse": ["r1"], **changes}


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Workspace and paths of r2, published, with the spec that it was made from."""
    workspace, spec = asked(tmp_path_factory.mktemp("reuse"))
    return workspace, ReleasePaths.of_address(run_all(spec, workspace)), spec


def test_it_says_what_it_was_built_on_and_verifies(published):
    workspace, paths, _ = published
    (said,) = json.loads(paths.manifest.read_text())["reused"]
    frozen = FrozenReuse.load(paths.reuse)
    assert said == {
        "release": "r1",
        "answers": len(frozen.answers),
        "tables": sum(answer.tables for answer in frozen.answers),
        "mu2": str(frozen.mu2),
        "used": True,
    }
    listed = json.loads(paths.certificate.read_text())["reused"]
    records = open_ledger(workspace).records(release="r1")
    measured = {(r.step, r.purpose, r.answer_digest): str(r.mu2) for r in records if r.state is State.MEASURED}
    assert listed
    assert all(measured[one["step"], one["purpose"], one["digest"]] == one["mu2"] for one in listed)
    assert "The model also knows" in paths.public_report.read_text()
    assert verify_release(paths.public) == []


def test_it_pays_for_its_own_questions_alone(published):
    """The first release is charged what it was, the second at most what it asked for."""
    workspace, *_ = published
    ledger = open_ledger(workspace)
    price = mu2_of(1.0, 1e-6)
    for release in ("r1", "r2"):
        spent = sum(cost_by_step(ledger.records(release=release)).values(), Fraction(0))
        assert 0.99 * price < spent <= price
    before = [r.id for r in ledger.records(release="r1")]
    assert max(before) < min(r.id for r in ledger.records(release="r2"))


def test_an_answer_that_the_ledger_does_not_have_is_found(published, tmp_path):
    workspace, *_ = published
    shutil.copytree(workspace, tmp_path / "workspace")
    copy = ReleasePaths(tmp_path / "workspace", "r2")
    listed = json.loads(copy.reuse.read_text())
    listed[0]["digest"] = "0" * 64
    copy.reuse.write_text(json.dumps(listed))
    found = verify_release(copy.public)
    assert any("reuse.json: does not match its checksum" in one for one in found)
    assert any("ledger: has no answer" in one and "of release 'r1', which reuse.json lists" in one for one in found)


def test_running_a_step_again_gives_the_same_bytes(tmp_path):
    """What it builds on is frozen when it begins: scores, model and list are the same whatever was released since."""
    workspace, spec = asked(tmp_path)
    address = run_all(spec, workspace, steps=("ingest", "score", "select", "fit"))
    paths = ReleasePaths.of_address(address)
    files = (paths.reuse, paths.scores, paths.structure, paths.model)
    before = [path.read_bytes() for path in files]
    run_all({**spec, "release": "r3", "reuse": []}, workspace)
    for path in files[1:]:
        path.unlink()
    assert prepare(spec, workspace=workspace) == address
    for step in ("score", "select", "fit"):
        run_step(step, address)
    assert [path.read_bytes() for path in files] == before


def shape_of(value):
    """What a document says without its numbers: keys, texts that are no digests, and lengths of lists."""
    if isinstance(value, dict):
        return {key: shape_of(one) for key, one in value.items()}
    return [shape_of(one) for one in value] if isinstance(value, list) else type(value).__name__


def test_equal_and_changed_rows_are_told_the_same(tmp_path):
    """One record more is neither refused nor set aside nor said: nothing is an equality test of confidential rows."""
    said = []
    for name, rows in (("equal", people()), ("changed", people(618))):
        folder = tmp_path / name
        folder.mkdir()
        workspace, spec = asked(folder, frame=people())
        rows.to_csv(folder / "people.csv", index=False)
        paths = ReleasePaths.of_address(run_all(spec, workspace))
        ledger = open_ledger(workspace)
        refused = [record for record in ledger.records() if record.state is State.REFUSED]
        said.append((refused, shape_of(json.loads(paths.manifest.read_text())["reused"]), paths.reuse.exists()))
        assert json.loads(paths.manifest.read_text())["reused"][0]["used"]
    assert said[0] == said[1]


def test_answers_about_other_rows_are_set_aside_by_noise_alone(tmp_path):
    other = people(5000, seed=9)
    other["job"] = "farm"
    workspace, spec = asked(tmp_path, frame=people(5000))
    other.to_csv(tmp_path / "people.csv", index=False)
    lines = []
    address = prepare(spec, workspace=workspace)
    for step in ("ingest", "score", "select", "fit", "sample", "evaluate", "publish"):
        run_step(step, address, progress=lines.append)
    paths = ReleasePaths.of_address(address)
    assert json.loads(paths.manifest.read_text())["reused"][0]["used"] is False
    assert "answers of release r1 disagree with those of now and are set aside" in lines
    assert "were not used" in paths.public_report.read_text()


def test_a_plan_says_what_answers_are_worth(published):
    workspace, paths, spec = published
    sections = dict(preview_release({**spec, "release": "r4"}, workspace=workspace))
    frozen = FrozenReuse.load(paths.reuse)
    worth = epsilon_of(mu2_of(1.0, 1e-6) + frozen.mu2, 1e-6)
    assert 1.3 < worth < 1.5
    assert dict(sections["Release r4"])["reuses"] == (
        f"{sum(a.tables for a in frozen.answers)} tables of r1: at no cost, as if epsilon "
        f"{dict(sections['Release r4'])['reuses'].split('epsilon ')[1].split()[0]} if the rows are the same"
    )
    assert abs(float(dict(sections["Release r4"])["reuses"].split("epsilon ")[1].split()[0]) - worth) < 1e-3


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"reuse": ["r2"]}, "reuse: 'r2' is this release itself; name releases that came before it"),
        ({"reuse": ["r9"]}, "reuse: release 'r9' has measured nothing from dataset 'people'"),
        ({"method": "absyn"}, "reuse: the method does not build on answers of earlier releases; use privmrf"),
        ({"preset": "paper"}, "reuse: the method does not build on answers of earlier releases; use privmrf"),
        ({"strata": "sex"}, "reuse: a release in strata asks about strata, of which nothing is known"),
    ],
)
def test_what_cannot_be_reused_is_refused_before_anything_is_set_aside(published, changes, refusal):
    workspace, _, spec = published
    before = len(open_ledger(workspace).records())
    for ask in (prepare, preview_release):
        with pytest.raises(SpecError) as refused:
            ask({**spec, "release": "r5" if "reuse" not in changes else "r2", **changes}, workspace=workspace)
        assert str(refused.value).startswith(refusal)
    assert len(open_ledger(workspace).records()) == before


@pytest.mark.parametrize(
    ("declared", "refusal"),
    [
        (SCHEMA.replace("bins: 5", "bins: 4"), "reuse: column 'age' has other codes than in release 'r1'"),
        (SCHEMA.replace("[farm, shop, office]", "[shop, farm, office]"), "reuse: column 'job' has other codes"),
        (SCHEMA.replace("nullable: true", "unseen: other"), "reuse: column 'job' has other codes"),
        (SCHEMA.replace("sex", "gender"), "reuse: release 'r1' has other columns, or another order of them"),
        (BOUGHT, "reuse: the bins of column 'age' are to be bought, so its codes are not those of before"),
    ],
)
def test_other_codes_are_refused(published, tmp_path, declared, refusal):
    workspace, _, spec = published
    (tmp_path / "schema.yaml").write_text(declared)
    changed = {**spec, "release": "r6", "schema": str(tmp_path / "schema.yaml")}
    if declared == BOUGHT:
        changed["bins_share"] = 0.1
    with pytest.raises(SpecError) as refused:
        prepare(changed, workspace=workspace)
    assert str(refused.value).startswith(refusal)


def test_a_description_may_change(published, tmp_path):
    workspace, _, spec = published
    (tmp_path / "schema.yaml").write_text(SCHEMA.replace("name: sex,", "name: sex, description: as registered,"))
    prepare({**spec, "release": "r7", "schema": str(tmp_path / "schema.yaml")}, workspace=workspace)


def test_bought_bins_are_built_on_as_a_list_of_edges(tmp_path):
    spec = write_release(tmp_path, declared=BOUGHT, cap=9.0, bins_share=0.1, evaluate="none")
    first = ReleasePaths.of_address(run_all(spec, tmp_path / "workspace"))
    edges = list(Schema.load(first.schema).column("age").edges)
    (tmp_path / "schema.yaml").write_text(
        BOUGHT.replace("bounds: [0, 99], bins: {private_quantiles: 4}", f"bins: {edges}")
    )
    again = {**spec, "release": "r2", "reuse": ["r1"], "bins_share": 0.0}
    paths = ReleasePaths.of_address(run_all(again, tmp_path / "workspace"))
    assert json.loads(paths.manifest.read_text())["reused"][0]["used"]


def test_a_release_that_is_under_way_or_in_strata_is_not_built_on(tmp_path):
    workspace = tmp_path / "workspace"
    spec = write_release(tmp_path, cap=9.0, evaluate="none", method="independent", strata="sex")
    run_all(spec, workspace, steps=("ingest", "score"))
    second = {**spec, "release": "r2", "strata": None, "method": "privmrf", "reuse": ["r1"]}
    with pytest.raises(SpecError, match="reuse: release 'r1' is still under way; publish or cancel it first"):
        prepare(second, workspace=workspace)
    run_all(spec, workspace, steps=("select", "fit", "sample", "evaluate", "publish"))
    with pytest.raises(SpecError, match="reuse: release 'r1' was made in strata, its answers are about parts"):
        prepare(second, workspace=workspace)


def test_a_form_may_say_releases_line_by_line(tmp_path):
    spec = ReleaseSpec.parse(write_release(tmp_path, reuse=["2026-q1", "2026-q2"]))
    assert spec.reuse == ("2026-q1", "2026-q2")
    with pytest.raises(SpecError, match="reuse"):
        ReleaseSpec.parse(write_release(tmp_path, reuse=["../q1"]))
