"""However few records there are, a release says nothing about their number, and is published."""

import pytest
from support.small_release import people, run_all, write_release

from synth_core.ledger.sql import open_ledger
from synth_core.release.paths import ReleasePaths
from synth_core.release.verify import check_release


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("method", ["independent", "privmrf"])
def test_a_table_of_one_or_two_records_is_published(tmp_path, rows, method):
    """Before, all was spent and the release was then refused with the number of records it would need."""
    spec = write_release(tmp_path, frame=people(rows).assign(job="farm"), method=method, quality_share=0.1, rows=50)
    run_all(spec, tmp_path / "workspace")
    assert check_release(ReleasePaths(tmp_path / "workspace", "r1").public).sound
    assert open_ledger(tmp_path / "workspace").balance("people").refusals == 0
