"""The page of a release on which anybody may ask for tables, from its public files alone."""

from __future__ import annotations

from synth_core.files import write_text
from synth_core.inference.published import Asking
from synth_core.inference.uncertain import Uncertain
from synth_core.privacy.wording import loss_text, scientific
from synth_core.report.explore import Explored, explore_page
from synth_core.schema.codec import number_columns
from synth_core.steps.context import StepRun
from synth_core.synthesizers.moments import read_moments


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
    asking = Asking(uncertain, run.schema, read_moments(run.paths.moments))
    means = {column.name: asking.code_means(column) for column in number_columns(run.schema)}
    write_text(run.paths.explorer, explore_page(about, run.schema, uncertain, means=means, each=run.cluster.map))
