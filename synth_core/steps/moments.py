"""The step `fit` buys sums of numbers, and keeps them as a public file for those that draw rows.

They are about all records, also where there are strata. They are asked when the model is there: what it says of the
columns decides how their budget is divided.
"""

from __future__ import annotations

from synth_core.files import write_text
from synth_core.models.mixture import load_model
from synth_core.privacy.curator import Curator
from synth_core.release.strata import Division
from synth_core.steps.context import StepRun
from synth_core.storage.counting import PartitionCounts
from synth_core.synthesizers.moments import ask_moments, count_errors, summed_domain, write_moments


def buy_moments(run: StepRun) -> None:
    """Ask for the sums of all columns that declare them and write the answers; nothing without such a column."""
    if not run.budget.moments:
        return
    parts = len(Division.load(run.paths.division).parts) if run.spec.strata else 1
    errors = count_errors(run.method, run.domain, run.plan, parts=parts)
    counts = PartitionCounts(run.partitions, summed_domain(run.schema), run.cluster)
    curator = Curator(counts=counts, ledger=run.ledger, spending=run.spending("fit"))
    marginal = load_model(run.paths.model).marginal
    answers = ask_moments(curator, run.schema, run.budget.moments, marginal=marginal, errors=errors)
    write_text(run.paths.moments, write_moments(answers))
