"""Rules that leave nothing to synthesize are refused from the schema alone, by the names of those to blame."""

import pytest

from synth_core.errors import FeasibilityError
from synth_core.example.population import population_schema
from synth_core.models import feasibility
from synth_core.models.feasibility import check_rules
from synth_core.schema import Schema

COLUMNS = [
    {"name": "age", "kind": "integer", "bins": [0, 16, 65, 100]},
    {"name": "job", "kind": "categorical", "values": ["none", "clerk"]},
    {"name": "pay", "kind": "real", "bins": [0, 100, 1000], "nullable": True},
    {"name": "home", "kind": "categorical", "values": ["own", "rent"]},
]
HARMLESS = {"name": "harmless", "when": {"home": ["own"]}, "never": {"job": ["clerk"], "age": {"max": 15}}}


def with_rules(*rules):
    return Schema.model_validate({"columns": COLUMNS, "rules": [HARMLESS, *rules]})


def test_rules_that_leave_something_pass():
    check_rules(with_rules({"name": "r", "when": {"age": {"max": 15}}, "only": {"pay": [None]}}))
    check_rules(population_schema())
    check_rules(Schema.from_sizes({"a": 2}))


def test_rules_without_a_possible_record_are_refused_and_only_the_guilty_are_named():
    schema = with_rules(
        {"name": "pay is null", "when": {"home": ["own", "rent"]}, "only": {"pay": [None]}},
        {"name": "pay is not null", "when": {"home": ["own", "rent"]}, "never": {"pay": [None]}},
    )
    with pytest.raises(FeasibilityError) as refusal:
        check_rules(schema)
    assert "rules 'pay is null', 'pay is not null' leave no possible record" in str(refusal.value)


def test_a_value_that_no_record_can_have_is_refused_and_only_the_guilty_are_named():
    """No rule says it alone: clerks are 16 to 64, and at that age everybody has the job none."""
    schema = with_rules(
        {"name": "clerks are grown", "when": {"job": ["clerk"]}, "only": {"age": {"min": 16, "max": 64}}},
        {"name": "nobody works", "when": {"age": {"min": 16, "max": 64}}, "only": {"job": ["none"]}},
    )
    with pytest.raises(FeasibilityError) as refusal:
        check_rules(schema)
    text = str(refusal.value)
    assert text.startswith("rules 'clerks are grown', 'nobody works' leave no record in which 'job' is clerk;")
    assert "harmless" not in text


def test_one_rule_alone_may_be_to_blame():
    with pytest.raises(FeasibilityError, match="rules 'old' leave no record in which 'age' is"):
        check_rules(with_rules({"name": "old", "when": {"age": {"min": 65}}, "never": {"age": {"min": 65}}}))


def test_rules_that_together_need_too_large_a_model_are_refused_by_name(monkeypatch):
    monkeypatch.setattr(feasibility, "LARGEST_RULE", 10)
    schema = with_rules({"name": "r", "when": {"age": {"max": 15}}, "never": {"pay": {"min": 0}}})
    with pytest.raises(FeasibilityError, match=r"rules 'harmless' join age, job, home .* 12 cells.*coarser"):
        check_rules(schema)
