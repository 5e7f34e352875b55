"""What reports say of two linked tables beside what they say of any."""

from __future__ import annotations

from dataclasses import asdict

from synth_core.evaluation.linked import LinkedErrors
from synth_core.evaluation.public import PublicQuality
from synth_core.report.page import Table, percent

GROUPS = {
    "households": "three columns of households, the size among them",
    "people": "two columns of people",
    "people_3": "three columns of people",
    "people_in_households": "a column of households and two of their people",
    "pairs": "a column of one person and one of another of the household",
    "pairs_by_size": "the same within each size of household",
    "groups": "share of households with at least so many people of a group (relative error)",
}
"""What each group of true errors is about."""


def errors_table(errors: LinkedErrors) -> Table:
    """True errors of households and their people, which stay inside."""
    found = asdict(errors)
    rows = [(words, percent(found[name])) for name, words in GROUPS.items()]
    return Table(
        head=("households and their people", "mean distance"),
        rows=(*rows, ("households that break a rule across people", f"{errors.broken:,}")),
    )


def pairs_of_people_table(quality: PublicQuality) -> Table:
    """The measured tables of two people of one household: how far the extract is from each noisy answer."""
    rows = [
        (" × ".join(one.clique), f"{one.cells:,}", percent(one.distance), percent(one.noise)) for one in quality.pairs
    ]
    return Table(head=("columns of two people", "cells", "distance", "noise alone"), rows=tuple(rows))
