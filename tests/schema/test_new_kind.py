"""A kind of column that the product does not have: one class, one name in the union, and everything else follows."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pydantic import Field

from synth_core import Schema, synthesize
from synth_core.domain import breaking_rows
from synth_core.errors import SchemaError, SourceError
from synth_core.schema import Categorical
from synth_core.schema.cells import as_text, distinct_cells, is_missing
from synth_core.schema.codec import decode, encode
from synth_core.schema.columns.base import MISSING, UNSEEN, ColumnBase
from synth_core.storage.ingest import ingest_partitions, read_codes


class Postcode(ColumnBase):
    """Codes of four digits, of which the first, the region, is kept."""

    kind: Literal["postcode"] = "postcode"
    regions: str
    unseen_remedy: ClassVar[str] = "has a postcode of no declared region; declare it or use unseen: other"

    @property
    def declared(self):
        return len(self.regions)

    def reads_numbers(self, names):
        return False

    def _declared_captions(self):
        return tuple(f"{region}…" for region in self.regions)

    def _declared_groups(self):
        return None

    def _marks(self, cells, source):
        coded = distinct_cells(cells)
        found = [
            MISSING if is_missing(cell) else self.regions.find(as_text(cell)[0])
            for cell in coded.dictionary.to_pylist()
        ]
        assert "a".find("b") == UNSEEN
        return np.array([*found, MISSING])[coded.indices.fill_null(len(found)).to_numpy()]

    def _cells(self, codes, rng):
        drawn = rng.integers(0, 1000, len(codes))
        known = codes < self.declared
        texts = [f"{self.regions[c]}{n:03d}" if k else None for c, n, k in zip(codes, drawn, known, strict=True)]
        return pa.array(texts, pa.string())

    def _codes_of(self, item):
        if not isinstance(item, str) or item not in self.regions:
            raise ValueError(f"{item!r} is no region; use a declared one")
        return self.regions.index(item)

    def _matches(self, cells, items):
        return cells.str[0].isin(items).to_numpy(dtype=np.bool_)


class WiderSchema(Schema):
    """The union with one kind more, as `AnyColumn` would have it."""

    columns: tuple[Annotated[Categorical | Postcode, Field(discriminator="kind")], ...]


COLUMNS = [
    {"name": "home", "kind": "postcode", "regions": "128", "nullable": True},
    {"name": "sex", "kind": "categorical", "values": ["f", "m"]},
]
RULES = [{"name": "no men in 8", "when": {"home": "8"}, "never": {"sex": "m"}}]
SCHEMA = WiderSchema.model_validate({"columns": COLUMNS, "rules": RULES})
FRAME = pd.DataFrame({"home": ["1234", "8001", None, "2000"], "sex": ["m", "f", "m", "f"]})


def test_cells_of_a_new_kind_become_codes_and_cells_again(tmp_path):
    codes = encode(FRAME, SCHEMA)
    assert codes["home"].tolist() == [0, 2, 3, 1]
    assert codes["home"].dtype == np.uint8
    table = np.column_stack(list(codes.values()))
    assert encode(decode(table, SCHEMA, np.random.default_rng(1)), SCHEMA)["home"].tolist() == [0, 2, 3, 1]
    FRAME.to_csv(tmp_path / "people.csv", index=False)
    snapshot = ingest_partitions([tmp_path / "people.csv"], SCHEMA, tmp_path / "encoded", key=bytes(32))
    assert read_codes(tmp_path / "encoded" / snapshot.partitions[0])["home"].tolist() == [0, 2, 3, 1]


def test_a_cell_without_a_code_is_refused_in_the_kinds_own_words():
    with pytest.raises(SourceError, match="the source: column 'home' has a postcode of no declared region"):
        encode(pd.DataFrame({"home": ["9000"], "sex": ["m"]}), SCHEMA)


def test_rules_may_speak_of_a_new_kind():
    assert SCHEMA.domain.impossible[0].codes == (("home", (2,)), ("sex", (1,)))
    frame = pd.DataFrame({"home": ["8001", "8001", None], "sex": ["m", "f", "m"]})
    assert SCHEMA.violations(frame)["no men in 8"].tolist() == [True, False, False]
    codes = np.column_stack(list(encode(frame, SCHEMA).values()))
    assert breaking_rows(codes, SCHEMA.domain).tolist() == [True, False, False]
    with pytest.raises(SchemaError, match="rule 'no men in 8': column 'home': '9' is no region"):
        WiderSchema.model_validate({"columns": COLUMNS, "rules": [{**RULES[0], "when": {"home": "9"}}]})


def test_a_table_with_a_new_kind_is_synthesized():
    frame = pd.concat([FRAME] * 500, ignore_index=True)
    made = synthesize(frame, SCHEMA, epsilon=5.0, delta=1e-6, method="independent", rows=200).table
    assert set(made["home"].dropna().str[0]) <= set("128")
    assert not SCHEMA.violations(made)["no men in 8"].any()
