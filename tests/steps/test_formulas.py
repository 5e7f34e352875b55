"""Declared values that a spreadsheet would run as formulas: warned of, and escaped in CSV files where asked."""

import pandas as pd
from support.small_release import SCHEMA, people, run_all, write_release

from synth_core.release.paths import ReleasePaths
from synth_core.steps import STEPS, cost

CALL = "=cmd|' /C calc'!A0"


def test_formulas_in_csv_are_escaped_where_asked_and_warned_of_elsewhere(tmp_path):
    spec = write_release(tmp_path, frame=people().assign(job=CALL), method="independent", csv=True, rows=50)
    (tmp_path / "schema.yaml").write_text(SCHEMA.replace("[farm, shop, office]", f"[\"{CALL}\", '-1', '@x']"))

    def released(release, **changes):
        own = spec | {"release": release, "epsilon": 0.5} | changes
        warned = "warning" in dict(dict(cost(own, workspace=tmp_path / "workspace"))[f"Release {release}"])
        paths = ReleasePaths.of_address(run_all(own, tmp_path / "workspace", steps=STEPS[:5]))
        texts = pd.concat([pd.read_csv(path, dtype=str)["job"] for path in paths.csv_extract.iterdir()]).dropna()
        cells = pd.read_parquet(paths.extract)["job"].dropna()
        assert CALL in set(cells), "the table itself has the declared values"
        return warned, set(texts) - set(cells), {text.removeprefix("'") for text in texts} == set(cells)

    assert released("r1") == (True, set(), True)
    warned, escaped, same = released("r2", escape_formulas=True)
    assert (warned, same) == (False, True)
    assert f"'{CALL}" in escaped
    assert all(text.startswith("'") for text in escaped)
