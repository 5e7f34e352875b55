"""The forecast of when a cap is reached."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from support.ledgers import DATASET, TENTH, answered, in_memory, request

from synth_core.ledger.book import runway
from synth_core.privacy.accounts import Balance, Record, Stratum


def history(*days: int, strata: bool = False) -> tuple[list[Record], Balance]:
    """A release of one tenth of the cap on each of the days, counted from the first of January 2026."""
    ledger = in_memory()
    for number in range(len(days)):
        for part in ("north", "south") if strata else (None,):
            stratum = Stratum(partition="region", part=part) if part else None
            answered(ledger, release=f"r{number}", stratum=stratum)
    ledger.refund(ledger.reserve(request("unused", mu2=TENTH, release="never")), reason="cancelled")
    first = datetime(2026, 1, 1, tzinfo=UTC)
    when = {f"r{number}": first + timedelta(days=day) for number, day in enumerate(days)}
    records = [replace(record, at=when.get(record.release, first)) for record in ledger.records()]
    return records, ledger.balance(DATASET)


@pytest.mark.parametrize("strata", [False, True])
def test_the_cap_is_reached_by_the_first_release_that_has_no_room(strata: bool) -> None:
    # Quarterly releases use up ten tenths with the tenth one, in March 2028; the eleventh, in June, has no room.
    assert runway(*history(0, 91, 182, 273, strata=strata)) == "at the present schedule the cap is reached in 2028-Q2"


def test_only_recent_releases_make_the_schedule() -> None:
    slow_then_monthly = (0, 700, 1400, 1430, 1460, 1490, 1520, 1550)
    assert runway(*history(*slow_then_monthly)) == "at the present schedule the cap is reached in 2030-Q2"


@pytest.mark.parametrize("days", [(), (5,), (0, 0, 0), (0, 4000)])
def test_without_a_schedule_or_an_end_there_is_no_forecast(days: tuple[int, ...]) -> None:
    assert runway(*history(*days)) is None


def test_other_data_sets_do_not_count() -> None:
    records, balance = history(0, 91)
    other = [replace(record, account=replace(record.account, dataset="other")) for record in records]
    assert runway([*other, *other], balance) is None
    assert runway([*records, *other], balance) == runway(records, balance)
