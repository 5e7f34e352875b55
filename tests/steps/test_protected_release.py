"""A spec that protects tables: what it may say, what strata make of it, and what a release of it publishes."""

import json

import pytest
from support.small_release import run_all, write_release

from synth_core.errors import SpecError
from synth_core.release.paths import ReleasePaths
from synth_core.release.spec import ReleaseSpec
from synth_core.release.verify import verify_release
from synth_core.steps import prepare
from synth_core.steps.preview import preview_release


@pytest.mark.parametrize(
    ("protect", "said"),
    [
        ([[]], "protect.0: a protected table has one to three columns, such as [sex, veteran] or [income]"),
        ([["a", "b", "c", "d"]], "a protected table has one to three columns"),
        ([["sex", "sex"]], "protect.0: a column is named twice in a protected table; name different ones"),
        ("sex", "protect: Input should be a valid tuple"),
        (["sex", "job"], "protect.0: 'sex' is no table; write [[sex]] for the column alone, and [[a, b]] for a pair"),
    ],
)
def test_what_is_no_table_is_refused_with_the_form(tmp_path, protect, said):
    with pytest.raises(SpecError) as refused:
        ReleaseSpec.parse(write_release(tmp_path, protect=protect))
    assert said in str(refused.value)


def test_a_form_may_say_a_table_in_one_line(tmp_path):
    spec = ReleaseSpec.parse(write_release(tmp_path, protect=["sex, job", ["age", "job"], "[age]"]))
    assert spec.protect == (("sex", "job"), ("age", "job"), ("age",))
    spec.save(tmp_path / "spec.yaml")
    assert ReleaseSpec.load(tmp_path / "spec.yaml").protect == spec.protect


def test_the_column_of_strata_is_in_no_model_and_cannot_be_protected(tmp_path):
    """Each stratum has a model of its own, so the column is kept exactly, whatever the method."""
    spec = write_release(tmp_path, strata="sex", protect=[["sex", "job"]], method="independent")
    for ask in (prepare, preview_release):
        with pytest.raises(SpecError, match="protect: column 'sex' is not among those modelled"):
            ask(spec, workspace=tmp_path / "workspace")


@pytest.mark.slow
def test_strata_protect_other_tables_in_each_of_them(tmp_path):
    spec = write_release(tmp_path, strata="sex", protect=[["age", "job"]], method="independent", evaluate="none")
    paths = ReleasePaths.of_address(run_all(spec, tmp_path / "workspace"))
    assert not verify_release(paths.public)
    assert json.loads(paths.manifest.read_text())["method"]["protected"] == [["age", "job"]]


@pytest.mark.slow
def test_a_release_measures_and_publishes_its_protected_tables(tmp_path):
    spec = write_release(tmp_path, protect=[["sex", "job"]], protect_share=0.3, method="independent", evaluate="none")
    paths = ReleasePaths.of_address(run_all(spec, tmp_path / "workspace"))
    assert not verify_release(paths.public)
    certificate = paths.certificate.read_text()
    assert "protected tables" in certificate
    report = paths.public_report.read_text()
    assert (
        '<th scope="row">sex</th><td class="words">job</td><td class="words">–</td><td class="words">age</td>' in report
    )
    assert "Of 3 pairs of columns 1 were measured together" in report


def test_another_protected_table_makes_another_release(tmp_path):
    spec = write_release(tmp_path, protect=[["sex", "job"]], method="independent", evaluate="none")
    run_all(spec, tmp_path / "workspace", steps=("ingest", "score"))
    with pytest.raises(SpecError, match=r"begun with other settings \(protect\)"):
        prepare({**spec, "protect": [["age", "job"]]}, workspace=tmp_path / "workspace")
