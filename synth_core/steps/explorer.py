"""The page of a release on which anybody may ask for tables, from its public files alone."""

from __future__ import annotations

import numpy as np

from synth_core.files import write_text
from synth_core.inference.uncertain import Uncertain
from synth_core.privacy.wording import loss_text, scientific
from synth_core.report.explore import Explored, Floats, explore_page
from synth_core.schema.codec import number_columns
from synth_core.steps.context import StepRun
from synth_core.synthesizers.moments import read_moments
from synth_core.synthesizers.pooled_numbers import pool_numbers


def write_explorer(run: StepRun) -> None:
    """Write the page; replicates are gone through where the cluster says."""
    spec, uncertain = run.spec, Uncertain.load(run.paths.home)
    about = Explored(
        release=spec.release,
        dataset=spec.dataset,
        unit=spec.unit,
        epsilon=loss_text(spec.epsilon),
        delta=scientific(spec.delta),
    )
    densities = pool_numbers(run.schema, uncertain.model.marginal, read_moments(run.paths.moments)).densities
    means = {
        column.name: _of_codes(column.mean_numbers(densities[column.name]), column.size)
        for column in number_columns(run.schema)
    }
    write_text(run.paths.explorer, explore_page(about, run.schema, uncertain, means=means, each=run.cluster.map))


def _of_codes(means: Floats, size: int) -> Floats:
    """The mean number of every code; NaN for codes beyond the bins, which are no numbers."""
    return np.concatenate([means, np.full(size - len(means), np.nan)])
