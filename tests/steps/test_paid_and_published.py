"""What a plan accepts is published: declarations for which all was paid, and the release refused then."""

import pandas as pd
import pytest
from support.linked_release import write_linked_release
from support.linked_tables import linked_frames, linked_schema
from support.small_release import SCHEMA, people, run_all, write_release

from synth_core.errors import SpecError
from synth_core.ledger.sql import open_ledger
from synth_core.models.mixture import load_model
from synth_core.release.paths import ReleasePaths
from synth_core.release.verify import check_release
from synth_core.schema import Schema
from synth_core.steps import cost, prepare


def released(folder, **changes):
    run_all(write_release(folder, evaluate="none", **changes), folder / "workspace")
    return ReleasePaths(folder / "workspace", "r1")


@pytest.mark.parametrize("kind", ["integer", "categorical"])
def test_a_column_of_numbers_takes_unseen_values_and_none_is_missing(tmp_path, kind):
    column = "bounds: [0, 49], bins: 5" if kind == "integer" else "values: [10, 20, 30]"
    declared = SCHEMA.replace("kind: integer, bounds: [0, 99], bins: 5", f"kind: {kind}, {column}, unseen: other")
    paths = released(tmp_path, declared=declared, method="independent")
    assert check_release(paths.public).sound
    rows = pd.concat(map(pd.read_parquet, paths.extract.iterdir()))
    assert rows["age"].isna().any(), "what was unseen has no number"


def test_rows_that_a_method_found_are_published_without_replicates(tmp_path):
    paths = released(tmp_path, method="dualquery", preset="rows", options={"rounds": 5})
    assert check_release(paths.public).sound


def test_strata_are_refused_by_the_plan_as_by_the_release(tmp_path):
    """Before, the plan looked at one stratum, and not at the account."""
    declared = SCHEMA + "unit_column: who\n"
    rows = people().assign(who=range(617))
    spec = write_release(tmp_path, declared=declared, frame=rows, strata="sex", method="mst", rows_per_unit=3)
    for refused in (cost, prepare):
        with pytest.raises(SpecError, match="only an account with one row per unit can be stratified"):
            refused(spec, workspace=tmp_path / "workspace")
    assert not open_ledger(tmp_path / "workspace").balance("people").held_mu2


def test_fewer_households_than_files_are_published(tmp_path):
    """Before, a file without rows left its encoded piece behind, and the release could not be judged."""
    spec = write_linked_release(tmp_path, households=60, method="independent", evaluate="none", rows=1, shards=3)
    address = run_all(spec, tmp_path / "workspace")
    assert check_release(ReleasePaths.of_address(address).public).sound


def test_linked_tables_take_unseen_numbers_and_none_is_missing(tmp_path):
    rooms = {"name": "rooms", "kind": "categorical", "values": [1, 2], "unseen": "other"}
    schema = linked_schema(household={"columns": [rooms]})
    frames = linked_frames(120)
    frames["household"] = frames["household"][["hid"]].assign(rooms=lambda table: table.hid % 3 + 1)
    spec = write_linked_release(tmp_path, schema=schema, frames=frames, method="independent", evaluate="quick")
    paths = ReleasePaths.of_address(run_all(spec, tmp_path / "workspace"))
    assert check_release(paths.public).sound
    assert pd.read_parquet(paths.extract / "household")["rooms"].isna().any()


def test_fewer_bins_than_asked_are_published(tmp_path):
    """Where many records share a number there are fewer; the model had as many as were asked, and the extract fewer."""
    declared = SCHEMA.replace("bins: 5", "bins: {private_quantiles: 8}, unseen: clip")
    rows = people().assign(age=lambda table: table.age.where(table.age % 3 == 0, 40))
    paths = released(
        tmp_path, declared=declared, frame=rows, method="independent", bins_share=0.1, epsilon=3.0, cap=4.0
    )
    assert check_release(paths.public).sound
    schema = Schema.load(paths.public / "schema.yaml")
    assert schema.column("age").size < 8
    assert load_model(paths.public / "model.npz").domain == schema.domain


def test_shares_that_leave_nothing_are_refused_by_the_plan(tmp_path):
    """Before, a third of the budget was paid, and the last question refused."""
    spec = write_release(tmp_path, method="mst", preset="paper", options={"one_way": 0.6667})
    for refused in (cost, prepare):
        with pytest.raises(SpecError, match="the shares of the budget leave nothing for pairs"):
            refused(spec, workspace=tmp_path / "workspace")
