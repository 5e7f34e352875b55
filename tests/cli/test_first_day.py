"""The walk of a new user: a schema from a codebook, a plan that warns, runs that fail and hold nothing, a good one.

Every command is counted; somebody who meets the software for the first time gets through with at most fifteen.
"""

from __future__ import annotations

import re

import pandas as pd
import pytest
from support.wide_table import wide_table

from synth_core import Schema, compare
from synth_core.ledger.sql import open_ledger

MAX_COMMANDS = 15

CODEBOOK = """\
columns:
  - {name: OCCP, values: [OCCUPATIONS]}           # p. 12: four digits, leading zeros
  - {name: AGEP, kind: int, bounds: [0, 99], bins: 20}
  - {name: SEX, values: {1: Male, 2: Female}}
  - {name: DVET, kind: categorical, values: {0: no, 1: in one war}}
  - {name: FLAG_0, kind: categorial, values: [0, 1, 2]}
  - {name: FLAG_01, kind: categorical, values: [0, 1, 2], nulable: true}
"""

SPEC = """\
release: first
dataset: survey
source: people.csv
schema: schema.yaml
epsilon: 1.0
delta: 1.0e-6
evaluate: quick
shards: 1
protect: [[SEX, DVET]]
"""


def codes(first, end):
    """Codes as the codebook prints them, from the first up to the end."""
    return ", ".join(f"{code:04d}" for code in range(first, end))


class Walk:
    """Runs commands and counts them."""

    def __init__(self, synth):
        self.synth, self.commands = synth, 0

    def __call__(self, *arguments, fails=False):
        """What is said on both channels; a failure is one line, and happens where it must."""
        self.commands += 1
        code, out, err = self.synth(*arguments)
        assert bool(code) == fails, out + err
        if fails:
            assert len([line for line in err.splitlines() if line.startswith("synth: ")]) == 1
            assert "Traceback" not in err
        return " ".join((out + err).split())


@pytest.mark.slow
def test_a_new_user_gets_through_in_fifteen_commands(synth, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    columns = ["OCCP", "AGEP", "SEX", "DVET", "FLAG_00", "FLAG_01"]
    people = wide_table(4000)[columns]
    people.to_csv("people.csv", index=False)
    walk = Walk(synth)

    def edit(path, *pairs):
        text = (tmp_path / path).read_text()
        for before, after in pairs:
            assert before in text
            text = text.replace(before, after)
        (tmp_path / path).write_text(text)

    (tmp_path / "schema.yaml").write_text(CODEBOOK.replace("OCCUPATIONS", codes(0, 260)))
    (tmp_path / "release.yaml").write_text(SPEC.replace("epsilon", "epsilonn"))

    # Everything that is wrong in both files is said at once, with its line and what was meant.
    said = walk("plan", "release.yaml", fails=True)
    assert "line 5: unknown key 'epsilonn'; did you mean 'epsilon'?" in said
    assert "line 6: column 'FLAG_0'" in said
    assert "did you mean 'categorical'" in said
    assert "line 7: column 'FLAG_01': nulable: unknown key; did you mean 'nullable'?" in said
    edit("release.yaml", ("epsilonn", "epsilon"))
    edit("schema.yaml", ("categorial", "categorical"), ("nulable", "nullable"))

    # The plan prices the release, and warns of the column in which noise wins.
    walk("ledger", "account", "survey", "--epsilon", "5", "--delta", "1e-6", "--largest-n", "5000")
    said = walk("plan", "release.yaml")
    assert "protected SEX × DVET" in said
    assert re.search(r"OCCP 260 values, 19 records each, noise ±\d+: noise wins", said)
    assert "OCCP merge values, with `recode` or in the source, or spend more: epsilon" in said

    def left():
        balance = open_ledger(tmp_path / "workspace").balance("survey")
        assert not balance.charged_mu2
        return balance.held_mu2

    # A column that is misspelt is found in the header, before anything is set aside.
    said = walk("run", "release.yaml", fails=True)
    assert "column 'FLAG_0' is missing" in said or "no column 'FLAG_0'" in said
    assert left() == 0
    edit("schema.yaml", ("FLAG_0,", "FLAG_00,"))

    # A value that the codebook does not have is found in the rows: the run fails, and what it set aside is free again.
    said = walk("run", "release.yaml", fails=True)
    assert "column 'OCCP' has a value outside the declared values" in said
    assert left() == 0
    assert "0 of at most" not in walk("ledger", "show")  # the refusal depended on rows, and is counted
    edit("schema.yaml", ("0259]", f"0259, {codes(260, 271)}]"))

    # The same name again, with the corrected schema.
    walk("run", "release.yaml")
    said = walk("ledger", "show")
    assert "protected tables" in said
    assert "first" in said
    assert "signature" in walk("verify", "workspace/public/first")

    # What a reader of the release asks, in the words of the codebook; a misspelt word is said with what was meant.
    said = walk("ask", "workspace/public/first", "--by", "SEX", "--where", "DVET=in one wr", fails=True)
    assert "did you mean 'in one war'" in said
    said = walk("ask", "workspace/public/first", "--by", "SEX", "--where", "DVET=in one war")
    assert "Female" in said
    assert "measured: noisy answers about these columns together" in said, "SEX and DVET are protected"

    # In a notebook.
    extract = pd.read_parquet("workspace/public/first/extract")
    schema = Schema.load("workspace/public/first/schema.yaml")
    evaluation = compare(people, extract, schema, targets=["SEX"])
    assert "True errors: confidential" in evaluation._repr_html_()
    assert evaluation.pairs[schema.domain.position("SEX")][schema.domain.position("DVET")] < 0.05
    assert walk.commands <= MAX_COMMANDS
