"""Rules from the schema to the manifest: refused early if they leave nothing, kept by the table, counted, enforced."""

import json
import shutil

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.small_release import SCHEMA, people, write_release

from synth_core import api
from synth_core.errors import FeasibilityError, PublishError
from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.release.paths import ReleasePaths
from synth_core.schema import Schema
from synth_core.steps import STEPS, cost, prepare, run_step

pytestmark = pytest.mark.slow

RULES = """rules:
  - {name: no work under 20, when: {age: {max: 19}}, only: {job: [null]}}
  - {name: no office for women over 60, when: {sex: [f], age: {min: 60}}, never: {job: [office]}}
"""
NOTHING_LEFT = RULES + "  - {name: everybody works, when: {sex: [f, m]}, never: {job: [null]}}\n"


def ruled_release(folder, rules, **changes):
    spec = write_release(folder, method="mst", **changes)
    (folder / "schema.yaml").write_text(SCHEMA + rules)
    return spec


def released(folder, rules=RULES, **changes):
    address = prepare(ruled_release(folder, rules, **changes), workspace=folder / "workspace")
    for step in STEPS:
        run_step(step, address)
    return ReleasePaths.of_address(address)


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return released(tmp_path_factory.mktemp("ruled"))


def test_the_table_keeps_the_rules_and_manifest_and_report_say_so(paths):
    """The source has rows that break the second rule: they are counted like others, the table has none of them."""
    schema = Schema.load(paths.schema)
    assert schema.violations(people())["no office for women over 60"].any()
    frame = pd.concat([pq.read_table(paths.shard(number)).to_pandas() for number in range(2)])
    assert not any(broken.any() for broken in schema.violations(frame).values())
    counted = json.loads(paths.manifest.read_text())["quality"]["rule_violations"]
    assert counted == {"no work under 20": 0, "no office for women over 60": 0}
    assert "no office for women over 60" in paths.public_report.read_text()


def test_a_table_that_breaks_a_rule_is_not_published(paths, tmp_path):
    workspace = shutil.copytree(paths.workspace, tmp_path / "workspace")
    paths = ReleasePaths(workspace.resolve(), "r1")
    paths.signature.unlink()
    paths.adopt_unsigned()
    shard = paths.shard(0)
    table = pq.read_table(shard)
    broken = table.set_column(
        table.column_names.index("job"),
        "job",
        pa.array(["office"] * len(table), table.schema.field("job").type),
    )
    pq.write_table(broken, shard)
    run_step("evaluate", str(paths.spec))
    with pytest.raises(PublishError, match=r"'r1' is not published: \d+ synthetic rows break rule 'no work under 20'"):
        run_step("publish", str(paths.spec))


def test_rules_that_leave_nothing_are_refused_before_anything_is_held(tmp_path):
    spec = ruled_release(tmp_path, NOTHING_LEFT)
    workspace = tmp_path / "workspace"
    guilty = "rules 'no work under 20', 'everybody works' leave no record in which 'age' is 0–19"
    with pytest.raises(FeasibilityError, match=guilty):
        prepare(spec, workspace=workspace)
    with pytest.raises(FeasibilityError, match=guilty):
        cost(spec, workspace=workspace)
    schema = Schema.load(tmp_path / "schema.yaml")
    with pytest.raises(FeasibilityError, match=guilty):
        api.synthesize(people(), schema, method="mst", epsilon=1.0, delta=1e-6)
    assert SqlLedger(ledger_url(workspace, None)).records(release="r1") == []
    assert not ReleasePaths(workspace.resolve(), "r1").spec.exists()


def test_strata_keep_the_rules_too(tmp_path):
    paths = released(tmp_path, strata="sex")
    counted = json.loads(paths.manifest.read_text())["quality"]["rule_violations"]
    assert counted == {"no work under 20": 0, "no office for women over 60": 0}
