"""The step `fit` buys the sums of numbers inside their bins, and keeps them as a public file for those that draw rows.

They are about all records, also where there are strata.
"""

from __future__ import annotations

from synth_core.files import write_text
from synth_core.privacy.curator import Curator
from synth_core.steps.context import StepRun
from synth_core.storage.counting import PartitionCounts
from synth_core.synthesizers.moments import ask_moments, summed_domain, write_moments


def buy_moments(run: StepRun) -> None:
    """Ask for the sums of all columns that declare them and write the answers; nothing without such a column."""
    if not run.budget.moments:
        return
    counts = PartitionCounts(run.partitions, summed_domain(run.schema), run.cluster)
    curator = Curator(counts=counts, ledger=run.ledger, spending=run.spending("fit"))
    write_text(run.paths.moments, write_moments(ask_moments(curator, run.schema, run.budget.moments)))
