"""Work grows with the number of declared values, not with its square, and there is a limit to it."""

import pytest
from support.work_counter import count_calls

from synth_core.errors import SchemaError
from synth_core.schema import Schema
from synth_core.schema.columns.categorical import MAX_VALUES


class Value(str):
    """A text that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other):
        Value.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def declared(count):
    values = [f"value {number}" for number in range(count)]
    groups = {f"group {number}": values[number :: count // 10] for number in range(count // 10)}
    labels = {value: value.upper() for value in values}
    return {"columns": [{"name": "a", "kind": "categorical", "values": values, "labels": labels, "hierarchy": groups}]}


def test_labels_and_groups_of_many_values_are_looked_up():
    """Before, each label was searched in the list of values: 20,000 of them took more than a minute."""
    from synth_core.schema.columns import categorical

    comparisons = []
    for count in (200, 2000):
        column = Schema.model_validate(declared(count)).columns[0]
        values = tuple(map(Value, column.values))
        object.__setattr__(column, "values", values)
        Value.compared = 0
        categorical.Categorical._check(column)
        comparisons.append(Value.compared)
    assert comparisons[1] <= 11 * comparisons[0] + 1000


def test_reading_values_takes_work_in_proportion():
    few, many = (count_calls(lambda count=count: Schema.model_validate(declared(count))) for count in (300, 3000))
    assert many <= 12 * few


def test_captions_are_made_once():
    """Before, a release with a column of 20,000 values wrote its noisy answers for twenty minutes: all for each."""

    def read(count):
        column = Schema.model_validate(declared(count)).columns[0]
        return count_calls(lambda: [column.captions[code] for code in range(count)])

    assert read(3000) <= 12 * read(300)


def test_more_values_than_may_be_are_refused():
    column = {"name": "a", "kind": "categorical", "values": range(MAX_VALUES + 1)}
    with pytest.raises(SchemaError, match=rf"column 'a': values: .*at most {MAX_VALUES}"):
        Schema.model_validate({"columns": [column]})
