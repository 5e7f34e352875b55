"""A release that builds on a public table: what it may name, what it says, what it keeps, what it refuses."""

import json
import shutil

import pytest
from support.small_release import people, run_all, write_release

from synth_core.errors import SourceError, SpecError
from synth_core.ledger.sql import open_ledger
from synth_core.release.paths import ReleasePaths
from synth_core.release.prior import FrozenPrior
from synth_core.release.spec import ReleaseSpec
from synth_core.release.verify import verify_release
from synth_core.steps import prepare, run_step
from synth_core.steps.preview import preview_release

pytestmark = pytest.mark.slow

REASON = "the office published it in 2025 as a public-use file"


def asked(folder, *, columns=("sex", "age", "job"), rows=4000, **changes):
    """A spec in a folder, with a public table beside it."""
    public = folder / "public.csv"
    people(rows=rows, seed=77)[list(columns)].to_csv(public, index=False)
    prior = {"source": str(public), "public_because": REASON}
    return folder / "workspace", write_release(folder, cap=9.0, evaluate="none", **{"prior": prior, **changes})


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Workspace and paths of a release that is published, with its spec."""
    workspace, spec = asked(tmp_path_factory.mktemp("prior"))
    return workspace, ReleasePaths.of_address(run_all(spec, workspace)), spec


def test_manifest_certificate_and_report_name_the_public_table(published):
    _, paths, _ = published
    said = json.loads(paths.manifest.read_text())["public_information"]
    frozen = FrozenPrior.load(paths.prior)
    assert (said["rows"], said["columns"], said["public_because"]) == (4000, ["sex", "age", "job"], REASON)
    assert said["files"] == [{"name": "public.csv", "sha256": frozen.files[0].sha256}]
    assert json.loads(paths.certificate.read_text())["public_information"] == said
    report = paths.public_report.read_text()
    assert "Public information used: public.csv" in report
    assert REASON in report
    assert verify_release(paths.public) == []


def test_no_public_file_says_where_the_table_lies(published):
    """Its name and digest are published; its address, like that of the source, is the agency's own."""
    _, paths, spec = published
    folder = spec["prior"]["source"].rpartition("/")[0].encode()
    files = [path for path in paths.public.rglob("*") if path.is_file()]
    assert paths.prior in files
    assert [path.name for path in files if folder in path.read_bytes()] == []


def test_a_release_without_a_prior_says_nothing_of_one(tmp_path):
    workspace, spec = asked(tmp_path, prior=None)
    paths = ReleasePaths.of_address(run_all(spec, workspace))
    assert "public_information" not in json.loads(paths.manifest.read_text())
    assert not paths.prior.exists()


def test_running_a_step_again_gives_the_same_and_costs_nothing(published, tmp_path):
    workspace, spec = asked(tmp_path)
    address = prepare(spec, workspace=workspace)
    for step in ("ingest", "score"):
        run_step(step, address)
    paths = ReleasePaths.of_address(address)
    before, records = paths.scores.read_bytes(), len(open_ledger(workspace).records())
    paths.scores.unlink()
    prepare(spec, workspace=workspace)
    run_step("score", address)
    charged = [r for r in open_ledger(workspace).records()[records:] if r.mu2]
    assert paths.scores.read_bytes() == before
    assert charged == []


def test_a_prior_that_changes_on_the_way_is_refused(tmp_path):
    workspace, spec = asked(tmp_path)
    address = prepare(spec, workspace=workspace)
    run_step("ingest", address)
    (tmp_path / "public.csv").write_text((tmp_path / "public.csv").read_text() + "f,3,\n")
    with pytest.raises(SpecError, match="prior: its files have changed since the release began; restore them"):
        run_step("score", address)


def test_the_synthetic_table_of_a_published_release_may_be_a_prior(published, tmp_path):
    _, paths, _ = published
    prior = {"source": str(paths.public), "public_because": "it was released under its own promise"}
    workspace, spec = asked(tmp_path, prior=prior)
    said = dict(dict(preview_release(spec, workspace=workspace))[f"Release {spec['release']}"])["builds on"]
    assert "public records of 3 columns, as far as noisy answers bear it out" in said


def test_a_prior_may_lack_columns(tmp_path):
    workspace, spec = asked(tmp_path, columns=("age", "job"))
    paths = ReleasePaths.of_address(run_all(spec, workspace))
    assert json.loads(paths.manifest.read_text())["public_information"]["columns"] == ["age", "job"]


def test_confidential_files_are_refused_by_where_they_lie(tmp_path):
    """The release's own source, by another name too; the source of another release; whatever lies in the zone."""
    workspace, spec = asked(tmp_path)

    def refused(named, match, **changes):
        prior = {"source": str(named), "public_because": REASON}
        with pytest.raises(SpecError, match=match):
            prepare({**spec, **changes, "prior": prior}, workspace=workspace)

    source = tmp_path / "people.csv"
    refused(source, "prior: it is the source of a release, so its rows are confidential; name a public table")
    (tmp_path / "linked.csv").symlink_to(source)
    refused(tmp_path / "linked.csv", "prior: it is the source of a release")
    prepare({**spec, "prior": None}, workspace=workspace)
    shutil.copy(source, tmp_path / "second.csv")
    refused(source, "prior: it is the source of a release", release="r2", source=str(tmp_path / "second.csv"))
    inside = workspace / "confidential" / "copy.csv"
    shutil.copy(tmp_path / "public.csv", inside)
    refused(inside, "prior: it lies among the workspace's confidential files", release="r2")


def test_nothing_tells_whether_a_public_file_equals_the_confidential_one(tmp_path):
    """A copy of the source elsewhere is taken for what the spec declares it: refusing it would be an equality test."""
    workspace, spec = asked(tmp_path)
    shutil.copy(tmp_path / "people.csv", tmp_path / "copy.csv")
    prior = {"source": str(tmp_path / "copy.csv"), "public_because": REASON}
    prepare({**spec, "prior": prior}, workspace=workspace)


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"method": "absyn"}, "prior: the method does not build on a public table; use privmrf, or leave it out"),
        ({"preset": "paper"}, "prior: the method does not build on a public table"),
        ({"strata": "sex"}, "prior: it is not offered together with strata; leave one of them out"),
        ({"protect": [["sex", "job"]]}, "prior: it is not offered together with protect"),
    ],
)
def test_what_cannot_build_on_a_prior_is_refused_before_anything_is_set_aside(tmp_path, changes, refusal):
    workspace, spec = asked(tmp_path, **changes)
    before = len(open_ledger(workspace).records())
    for ask in (prepare, preview_release):
        with pytest.raises(SpecError, match=refusal):
            ask(spec, workspace=workspace)
    assert len(open_ledger(workspace).records()) == before


def test_a_table_that_does_not_fit_the_schema_is_refused(tmp_path):
    workspace, spec = asked(tmp_path)
    public = tmp_path / "public.csv"
    public.write_text("sex,age,job\nx,3,farm\n")
    with pytest.raises(SourceError, match="the prior: column 'sex'"):
        prepare(spec, workspace=workspace)
    public.write_text("sex\nf\n")
    with pytest.raises(SpecError, match="prior: it has no rows, or fewer than two columns of the schema"):
        prepare(spec, workspace=workspace)


def test_a_spec_names_a_prior_in_two_ways(tmp_path):
    declared = write_release(tmp_path)
    short = ReleaseSpec.parse({**declared, "prior": f"2025.csv because {REASON}"})
    assert (
        short.prior
        == ReleaseSpec.parse(
            {**declared, "prior": {"source": "2025.csv", "public_because": REASON, "strength": "auto"}}
        ).prior
    )
    with pytest.raises(SpecError, match="write it as `FILE because REASON`"):
        ReleaseSpec.parse({**declared, "prior": "2025.csv"})
    with pytest.raises(SpecError, match="public_because"):
        ReleaseSpec.parse({**declared, "prior": {"source": "2025.csv"}})
    with pytest.raises(SpecError, match="strength"):
        ReleaseSpec.parse({**declared, "prior": {"source": "2025.csv", "public_because": REASON, "strength": "full"}})
