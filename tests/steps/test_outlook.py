"""`synth plan` says of each column and the largest pairs what noise leaves of them, from public numbers alone."""

import json
import math
import re
from fractions import Fraction
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from support.small_release import write_release
from support.wide_table import write_wide_release

from synth_core.domain import Domain
from synth_core.evaluation.distances import Z95
from synth_core.ledger.sql import open_ledger
from synth_core.privacy.accounts import Account
from synth_core.privacy.budget import mu2_of
from synth_core.release.paths import MANIFEST, PUBLIC_KEY, SIGNATURE
from synth_core.release.signing import public_pem, signature
from synth_core.release.spec import ReleaseSpec
from synth_core.schema import Schema
from synth_core.steps.outlook import known_records, least_visible
from synth_core.steps.preview import preview_release
from synth_core.synthesizers.base import CountNoise
from synth_core.synthesizers.methods import METHODS, synthesizer

LEAVES, WINS = "What the noise leaves", "Where noise wins, and what to do"


def sections(folder, spec):
    return {title: dict(lines) for title, lines in preview_release(spec, workspace=folder / "workspace")}


def publish(folder, release, total, *, dataset="survey", at="2026-01-01"):
    """What a published release leaves that says how many records it found."""
    home = folder / "workspace" / "public" / release
    home.mkdir(parents=True)
    manifest = {"release": release, "dataset": dataset, "quality": {"noisy_total": total}, "digest": "0"}
    content = json.dumps({**manifest, "provenance": {"published_at": at}}).encode()
    key = Ed25519PrivateKey.generate()
    (home / MANIFEST).write_bytes(content)
    (home / SIGNATURE).write_text(signature(content, key))
    (home / PUBLIC_KEY).write_text(public_pem(key))


def after_another(folder, **changes):
    """The spec of a release after one that found 20,000 records, and what is said of it.

    No row is read: the source does not exist.
    """
    spec = write_wide_release(folder, rows=100, **changes)
    (folder / "people.csv").unlink()
    publish(folder, "before", 20_000.0)
    return spec, sections(folder, spec)


def test_a_column_of_many_values_is_warned_of_with_its_remedy(tmp_path):
    _, said = after_another(tmp_path, epsilon=0.5, protect=[["SEX", "DVET"]])
    assert said[LEAVES]["records"] == "20,000, as release before has published, with noise"
    assert said[LEAVES]["OCCP"] == "271 values, 74 records each, noise ±90: noise wins"
    assert said[LEAVES]["SEX"] == "2 values, 10,000 records each, noise ±460"
    assert said[LEAVES]["dependence"].startswith("noise hides what moves less than 0.49 % of")
    assert said[LEAVES]["SEX × DVET"].startswith("6 cells, 3,333 records each, noise ±50")
    assert said[LEAVES]["OCCP × AGEP"].startswith("5,420 cells, 3.7 records each")
    assert list(said[WINS]) == ["OCCP"]
    assert said[WINS]["OCCP"].startswith("merge values, with `recode` or in the source, or spend more: epsilon ")


def test_the_plan_says_how_far_noise_may_move_a_mean(tmp_path):
    """Twenty bins from 0–4 to 95–99, by hand; protecting the column lowers it, and bought sums say it themselves."""
    spec = write_wide_release(tmp_path, rows=100, epsilon=0.5)
    publish(tmp_path, "before", 20_000.0)

    def said(**changes):
        return sections(tmp_path, {**spec, **changes})[LEAVES]

    count, off = re.search(r"noise ±(\d+), its mean ±([\d.]+)$", said()["AGEP"]).groups()
    spread = math.sqrt(sum((5 * k - 47.5) ** 2 for k in range(20)))
    assert float(off) == pytest.approx(int(count) * spread / 20_000, rel=0.05)
    assert "means" in said()
    protected = said(protect=[["AGEP"]])["AGEP"]
    assert float(protected.split("its mean ±")[1]) < 0.7 * float(off)
    assert "its mean" not in said()["SEX"]
    schema = yaml.safe_load(Path(spec["schema"]).read_text())
    schema["columns"][1]["moments"] = True
    Path(spec["schema"]).write_text(yaml.safe_dump(schema))
    assert "its mean" not in said(moments_share=0.1)["AGEP"]


def test_a_pair_in_which_noise_wins_has_its_remedy_where_its_columns_have_none(tmp_path):
    """OCCP loses to the noise with nine other columns; it is said once, for the largest pair."""
    _, said = after_another(tmp_path, epsilon=2.0)
    assert said[LEAVES]["OCCP × AGEP"].endswith("noise wins")
    assert said[LEAVES]["OCCP × PINCP_DECILE_OF_HOUSEHOLD"].endswith("noise wins")
    assert list(said[WINS]) == ["OCCP × AGEP"]
    assert said[WINS]["OCCP × AGEP"].startswith("OCCP: merge values, with `recode` or in the source, or spend more: ")


def test_the_epsilon_that_is_named_is_enough(tmp_path):
    spec, said = after_another(tmp_path, epsilon=0.5)
    named = float(said[WINS]["OCCP"].split("epsilon ")[1].split()[0])
    assert "OCCP" not in sections(tmp_path, {**spec, "epsilon": named})[WINS]
    assert "OCCP" in sections(tmp_path, {**spec, "epsilon": 0.8 * named})[WINS]


def test_a_budget_too_small_for_any_dependence_is_warned_of(tmp_path):
    """The epsilon that is named shows the strongest dependence; a little less does not."""
    spec, said = after_another(tmp_path, epsilon=0.5)
    assert said[LEAVES]["dependence"].startswith("noise hides what moves less than ")
    assert "dependence" not in said[WINS]
    publish(tmp_path, "newer", 150.0, at="2026-02-01")
    warned = sections(tmp_path, spec)[WINS]["dependence"]
    assert warned.startswith("the budget is too small for any: columns will be as good as independent; epsilon ")
    named = float(warned.split("epsilon ")[1].split()[0])
    assert "dependence" not in sections(tmp_path, {**spec, "epsilon": named})[WINS]
    assert "dependence" in sections(tmp_path, {**spec, "epsilon": 0.9 * named})[WINS]


def test_what_dependence_is_visible_falls_with_records_and_budget():
    """Two binary columns, by hand: 4 cells, each with noise of mean size sqrt(2 / pi) / mu."""
    domain = Domain.of({"a": 2, "b": 2})
    assert least_visible(domain, Fraction(1, 100), 1000.0) == pytest.approx(4 * 0.79788456 * 10 / 2 / 1000)
    assert least_visible(domain, Fraction(4, 100), 500.0) == least_visible(domain, Fraction(1, 100), 1000.0)
    wider = Domain.of({"a": 2, "b": 2, "c": 2, "d": 9})
    assert least_visible(wider, Fraction(1, 100), 1000.0) > 3 * least_visible(domain, Fraction(1, 100), 1000.0) / 2


def test_the_noise_is_what_one_way_counts_will_have(tmp_path):
    spec = ReleaseSpec.parse(write_wide_release(tmp_path, rows=100, epsilon=0.5))
    domain = Schema.load(tmp_path / "schema.yaml").domain
    method = synthesizer("privmrf")
    plan = method.plan(domain, mu2_of(spec.epsilon, spec.delta))
    noise = method.count_noise(domain, plan)
    said = dict(method.preview(domain, plan))["noise on each one-way count"]
    columns = [noise[name,] for name in domain]
    assert said == f"sigma {min(columns):.1f} to {max(columns):.1f} records"
    assert noise["OCCP",] == min(columns)  # the largest column gets the most of the budget
    publish(tmp_path, "before", 20_000.0)
    assert f"noise ±{Z95 * noise['AGEP',]:,.0f}" in sections(tmp_path, spec.dump())[LEAVES]["AGEP"]


def test_the_best_public_number_of_records_is_taken(tmp_path):
    account = Account(dataset="survey", delta=1e-6, cap_epsilon=1.0, largest_n=50_000)
    spec = ReleaseSpec.parse(write_wide_release(tmp_path, rows=100))
    counted = spec.model_copy(update={"rows": 12_000})

    def found(asked, account):
        from synth_core.release.paths import ReleasePaths

        return known_records(asked, account, ReleasePaths(tmp_path / "workspace", "new"))

    assert found(spec, None) is None
    assert found(spec, account).number == 50_000
    assert found(counted, account).number == 12_000
    publish(tmp_path, "other", 9.0, dataset="another", at="2026-03-01")
    publish(tmp_path, "old", 21_000.0)
    publish(tmp_path, "newer", 19_000.0, at="2026-02-01")
    assert found(counted, account).number == 19_000


def test_without_a_public_number_it_says_how_to_give_one(tmp_path):
    spec = write_release(tmp_path, method="privmrf", dataset="nobody")
    said = sections(tmp_path, spec)[LEAVES]["records"]
    assert said.startswith("unknown: say --records, or declare --largest-n")
    found = dict(preview_release(spec, workspace=tmp_path / "workspace", records=7000))
    assert dict(found[LEAVES])["records"] == "7,000, as --records says"


def test_bins_are_to_be_fewer_and_a_hierarchy_is_to_be_used(tmp_path):
    schema = {
        "columns": [
            {"name": "age", "kind": "integer", "bounds": [0, 99], "bins": 100},
            {"name": "place", "kind": "categorical", "values": ["a", "b"], "hierarchy": {"all": ["a", "b"]}},
        ]
    }
    spec = write_release(tmp_path, epsilon=0.01, rows=300, method="independent")
    Path(spec["schema"]).write_text(yaml.safe_dump(schema))
    said = sections(tmp_path, spec)[WINS]
    assert said["age"].startswith("declare fewer bins, or spend more")
    assert said["place"].startswith("declare the groups of its hierarchy as values")


def test_a_stratum_is_judged_by_its_share_of_the_records(tmp_path):
    """Two strata of one model each: half of the records, and the stratum's own column is none of it."""
    spec = write_release(tmp_path, epsilon=1.0, rows=600, method="independent", strata="sex")
    said = sections(tmp_path, spec)["What the noise leaves in each stratum"]
    assert said["records"].endswith("a stratum's share of them 1/2")
    assert said["age"].startswith("5 values, 60 records each")
    assert "sex" not in said


@pytest.mark.parametrize("method", METHODS)
def test_each_method_says_its_noise_or_that_it_cannot(tmp_path, method):
    spec = write_release(tmp_path, method=method, rows=600)
    said = sections(tmp_path, spec)[LEAVES]
    if isinstance(synthesizer(method), CountNoise):
        assert {"sex", "age", "job"} <= set(said)
    else:
        assert said == {"noise": f"method {method} does not say how much its counts will have"}
    assert (method in ("hdmm", "dualquery")) == ("noise" in said)


def test_the_account_may_be_unknown_when_the_schema_is_judged(tmp_path):
    spec = write_wide_release(tmp_path, rows=100, dataset="nobody")
    open_ledger(tmp_path / "workspace")
    assert sections(tmp_path, {**spec, "rows": 20_000})[LEAVES]["records"] == "20,000, as `rows` declares"
