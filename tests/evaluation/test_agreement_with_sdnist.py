"""The k-marginal score must be the one that SDNist gives, as `record_sdnist.py` recorded it."""

import json

import pytest
from record_sdnist import AREA, RECORD, SIZES, make_tables

from synth_core.evaluation import compare
from synth_core.schema import Schema

SCORES = json.loads(RECORD.read_text(encoding="utf-8"))
TABLES = make_tables()


def score(name, *, area):
    """Our score of the same tables; the role says which column is the area."""
    real, synthetic = TABLES[name]
    columns = [column for column in real.columns if area or column != AREA]
    declared = [
        {"name": name, "values": list(range(SIZES[name])), **({"role": "area"} if name == AREA else {})}
        for name in columns
    ]
    schema = Schema.model_validate({"columns": declared})
    return compare(real[columns], synthetic[columns], schema, targets=[]).scores["k-marginal score"]


@pytest.mark.slow
@pytest.mark.parametrize("area", [False, True], ids=["all together", "by area"])
@pytest.mark.parametrize("name", TABLES)
def test_it_is_the_score_of_sdnist(name, area):
    recorded = SCORES[f"{name}{', by area' if area else ''}"]["score"]
    assert score(name, area=area) == pytest.approx(recorded, abs=1e-9)


def test_grouping_by_area_makes_another_score():
    """Otherwise the record would not show that areas count: tables whose areas were exchanged are far apart in them."""
    together, by_area = (SCORES[f"areas exchanged{more}"]["score"] for more in ("", ", by area"))
    assert together > 900
    assert by_area < 600
