"""The faults of `make sabotage` can still be put back; whether tests turn red is tried there, in minutes."""

from pathlib import Path

from sabotage import FAULTS, ROOT, misfits


def test_every_fault_fits_the_code():
    assert misfits(FAULTS) == []


def test_every_fault_names_tests_that_exist():
    for fault in FAULTS:
        for test in fault.tests:
            file, _, name = test.partition("::")
            assert f"def {name}(" in Path(ROOT / file).read_text() or not name, test
