"""Steps 2 to 4 of a release with strata: the conversations with all of its parts, at once where there are workers.

`score` buys the noisy number of rows of each stratum (and the tables of the level above), divides the rows, and lets
each part's conversation begin; `select` makes the parts' answers agree with what is known of all of them; `fit` fits
each part that is not fitted yet and joins the models. What happens to a part is the plain step, in a run of its own.

The parts must agree on the rows of each stratum and the tables of the level above. That is post-processing of noisy
answers. Before the parts are fitted their one-way tables are made to agree; afterwards the models are, because a fit
follows its tables only as closely as their noise deserves, and what every stratum leaves out in the same direction
would add up above.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain
from synth_core.errors import SourceError, SpecError
from synth_core.files import atomic_write
from synth_core.ledger.sql import SqlLedger, ledger_url, open_ledger
from synth_core.measurement import Measurement
from synth_core.models.markov_random_field import MarkovRandomField, rake
from synth_core.models.mixture import AnyModel, Component, Mixture, Model, load_model
from synth_core.models.refined import Refined
from synth_core.privacy.accounts import Runner
from synth_core.privacy.curator import Spending
from synth_core.privacy.strategies import Strategy
from synth_core.release.strata import Division, Part, StrataLayout, divide_strata, lay_out_strata
from synth_core.steps import conversation
from synth_core.steps.context import StepRun, open_run
from synth_core.steps.replicates import join_replicates
from synth_core.storage.ingest import Snapshot, divide_rows
from synth_core.synthesizers.base import Scores, Structure, load_scores, save_scores, save_structure
from synth_core.synthesizers.consistency import Upper, agree_with_upper, fit_margins, nearest_non_negative, stratum_rows


@dataclass(frozen=True)
class StratumRun(StepRun):
    """A step's run about one part: its own rows, domain, budget and artifacts; its questions name the stratum."""

    division: Division
    part: Part

    @property
    def domain(self) -> Domain:
        """The public domain inside the part."""
        return self.division.domain(self.schema.domain, self.part)

    @property
    def partitions(self) -> list[Path]:
        """Addresses of the part's rows; there are some even where the part has no rows."""
        found = sorted(self.paths.encoded.glob("*.parquet"))
        if not found:
            raise SourceError(
                f"the rows of stratum {self.part.name!r} are gone; remove {self.paths.divided_rows} and run the "
                "step `score` again"
            )
        return found

    def spending(self, step: str, snapshot: Snapshot | None = None) -> Spending:
        """On whose account the part spends."""
        return replace(super().spending(step, snapshot), stratum=self.division.stratum(self.part))


def score(run: StepRun) -> Path:
    """Ask how many rows each stratum has, divide the rows, and let every part ask its first questions."""
    division, scores = _divide(run)
    with atomic_write(run.paths.division) as temporary:
        division.save(temporary)
    divide_rows(
        run.partitions,
        run.paths.divided_rows,
        column=division.layout.by,
        parts=[(part.folder, part.codes) for part in division.parts],
        dropped=[division.layout.level] if division.layout.level else [],
        cluster=run.cluster,
    )
    _converse_each(run, conversation.score, division, division.parts)
    return run.finish("score", run.paths.scores, partial(save_scores, scores))


def select(run: StepRun) -> Path:
    """Make the parts' noisy tables agree with what is known of all of them, and let each choose its structure."""
    division, scores = Division.load(run.paths.division), load_scores(run.paths.scores)
    parts = [run.paths.stratum(part.folder) for part in division.parts]
    found = agreed_scores(division, scores, [load_scores(paths.scores) for paths in parts])
    for paths, agreed in zip(parts, found, strict=True):
        paths.model.unlink(missing_ok=True)  # of an earlier structure
        with atomic_write(paths.agreed) as temporary:
            save_scores(agreed, temporary)
    _converse_each(run, conversation.select, division, division.parts)
    return run.finish("select", run.paths.structure, partial(save_structure, Structure(scores)))


def fit(run: StepRun) -> Path:
    """Fit the parts that have no model yet and join all models into one."""
    division = Division.load(run.paths.division)
    paths = {part: run.paths.stratum(part.folder) for part in division.parts}
    _converse_each(run, conversation.fit, division, [part for part, own in paths.items() if not own.model.exists()])
    models = [load_model(paths[part].model) for part in division.parts]
    agreed = [load_scores(paths[part].agreed) for part in division.parts]
    targets = agreed_marginals(division, load_scores(run.paths.scores), agreed, models)
    settled = run.cluster.map(_settled, list(zip(models, targets, strict=True))) if any(targets) else models
    components = [
        Component(
            model,
            division.rows_of(part),
            division.constants(part),
            {division.layout.by: part.codes} if part.pooled else {},
        )
        for part, model in zip(division.parts, settled, strict=True)
    ]
    model = Mixture(run.domain, tuple(components))
    join_replicates(run, model, [paths[part].replicates for part in division.parts], sigma=_rows_sigma(run, division))
    return run.finish("fit", run.paths.model, model.save)


def _rows_sigma(run: StepRun, division: Division) -> list[float]:
    """The standard deviation of each part's number of rows."""
    counts = load_scores(run.paths.scores).measurements[0]
    return [counts.sigma * len(part.codes) ** 0.5 for part in division.parts]


def fit_part(run: StepRun, address: str) -> Path:
    """Fit the part at this address; the step `fit` then has only to join the models."""
    division = Division.load(run.paths.division)
    for part in division.parts:
        if part.folder == Path(address).name:
            return conversation.fit(stratum_run(run, division, part))
    raise SpecError(f"{address} is no stratum of release {run.spec.release!r}")


def stratum_run(run: StepRun, division: Division, part: Part) -> StratumRun:
    """The run about one part."""
    return StratumRun(
        spec=run.spec,
        declared=run.declared,
        paths=run.paths.stratum(part.folder),
        ledger=run.ledger,
        cluster=run.cluster,
        runner=run.runner,
        progress=run.progress,
        division=division,
        part=part,
    )


def converse(number: int, *, phase: Callable[[StepRun], Path], address: str, runner: Runner) -> None:
    """One phase of the conversation about one part; runs on a worker, which counts the part's rows by itself.

    A cluster that loses a worker asks again for what it had finished too: a part that is fitted stays as it is.
    """
    with open_run(address, runner=runner) as run:
        division = Division.load(run.paths.division)
        known = replace(run, ledger=_ledger(run.paths.workspace, ledger_url(run.paths.workspace, None)))
        own = stratum_run(known, division, division.parts[number])
        if phase is conversation.fit and own.paths.model.exists():
            return
        own.paths.scores.parent.mkdir(parents=True, exist_ok=True)
        phase(own)


@lru_cache(maxsize=4)
def _ledger(workspace: Path, url: str) -> SqlLedger:
    """A worker's own ledger: it reads the chain once and then what is new, not all of it again for each part."""
    return open_ledger(workspace, url)


def _converse_each(run: StepRun, phase: Callable[[StepRun], Path], division: Division, parts: Sequence[Part]) -> None:
    """The same phase for several parts; what a lost worker had under way starts again and finds its answers stored."""
    run.progress(f"{phase.__name__} of {len(parts)} strata")
    run.cluster.map_by_size(
        converse,
        [part.number for part in parts],
        sizes=[division.rows_of(part) for part in parts],
        phase=phase,
        address=str(run.paths.spec),
        runner=run.runner,
    )


def _divide(run: StepRun) -> tuple[Division, Scores]:
    """The noisy number of rows of each stratum, and the division that follows from it.

    Both questions are about all records. A record lies in one cell of each table, so a table has sensitivity 1, and the
    division, computed from the noisy answers and public declarations alone, costs nothing more.
    """
    assert run.spec.strata is not None  # noqa: S101 - checked by the caller
    strata, layout, curator = run.spec.strata, lay_out_strata(run.spec.strata, run.schema), run.curator("score")
    (counts,) = curator.measure([(layout.by,)], run.budget.stratum_rows, purpose="rows of each stratum")
    uppers: list[Upper] = []
    if layout.upper_of is not None:
        asked = {name: _summed_above(layout, run.domain, name) for name in layout.attributes(run.domain)}
        answers = curator.answer(list(asked.values()), run.budget.level_above, purpose="tables of the level above")
        for name, answer in zip(asked, answers, strict=True):
            upright = answer.strategy.clique[0] == layout.by
            uppers.append(Upper(name, answer.noisy if upright else answer.noisy.T, answer.sigma))
    rows = stratum_rows(counts, uppers, upper_of=layout.upper_of)
    division = divide_strata(layout, rows.tolist(), pool_below=strata.pool_below)
    above = [Measurement((str(strata.within), u.attribute), u.noisy, u.sigma) for u in uppers]
    return division, Scores(float(rows.sum()), (), (counts, *above))


def _summed_above(layout: StrataLayout, domain: Domain, attribute: str) -> Strategy:
    """The table of the level above with one attribute, as sums over the strata: each record counts once."""
    assert layout.upper_of is not None  # noqa: S101 - checked by the caller
    above = np.zeros((len(layout.upper_names), domain.size(layout.by)), dtype=np.int64)
    above[list(layout.upper_of), np.arange(domain.size(layout.by))] = 1
    matrices = {layout.by: above, attribute: np.eye(domain.size(attribute), dtype=np.int64)}
    clique = domain.clique(matrices)
    return Strategy(clique, tuple(matrices[name] for name in clique))


def _settled(job: tuple[AnyModel, dict[str, NDArray[np.float64]]]) -> AnyModel:
    """The model with the marginals it must have; a network stays as it was fitted."""
    model, targets = job
    if isinstance(model, Refined):
        return model.rake(targets)
    return rake(model, targets) if isinstance(model, MarkovRandomField) else model


def agreed_scores(division: Division, known: Scores, scores: Sequence[Scores]) -> list[Scores]:
    """The parts' scores, their one-way tables changed to agree with the rows of strata and the tables above."""
    by = division.layout.by
    tables: list[dict[Clique, Measurement]] = [
        {m.clique: m for m in one.measurements if len(m.clique) == 1} for one in scores
    ]
    for part, own in zip(division.parts, tables, strict=True):
        if (by,) in own:
            own[by,] = _with_rows(own[by,], division, part, known.measurements[0])
    for upper in known.measurements[1:]:
        clique = upper.clique[1:]
        for code, parts in _parts_above(division):
            if all(clique in tables[part.number] for part in parts):
                found = agree_with_upper(
                    [tables[part.number][clique] for part in parts],
                    upper.noisy[code],
                    sigma=upper.sigma,
                    rows=[division.rows_of(part) for part in parts],
                )
                for part, table in zip(parts, found, strict=True):
                    tables[part.number][clique] = table
    return [
        replace(one, measurements=tuple(own.get(m.clique, m) for m in one.measurements))
        for one, own in zip(scores, tables, strict=True)
    ]


def agreed_marginals(
    division: Division, known: Scores, agreed: Sequence[Scores], models: Sequence[Model]
) -> list[dict[str, NDArray[np.float64]]]:
    """For each part the one-way marginals that its model must have, as near as possible to those it has.

    A pooled part has its strata's rows. Parts of one upper code add up to the upper table they agreed on, and each
    keeps its rows.
    """
    targets: list[dict[str, NDArray[np.float64]]] = [
        {division.layout.by: np.array([division.rows[code] for code in part.codes])} if part.pooled else {}
        for part in division.parts
    ]
    for upper in known.measurements[1:]:
        clique = upper.clique[1:]
        for code, parts in _parts_above(division):
            rows = np.array([division.rows_of(part) for part in parts])
            tables = [m.noisy for part in parts for m in agreed[part.number].measurements if m.clique == clique]
            above = np.sum(tables, axis=0) if len(tables) == len(parts) else upper.noisy[code]
            above = nearest_non_negative(above + (rows.sum() - above.sum()) / above.size)
            shares = [models[part.number].marginal(clique) / models[part.number].total for part in parts]
            found = fit_margins(np.stack(shares) * rows[:, None], rows, above)
            for part, table in zip(parts, found, strict=True):
                targets[part.number][clique[0]] = table
    return targets


def _parts_above(division: Division) -> list[tuple[int, list[Part]]]:
    """The codes of the level above that hold parts, with these."""
    codes = sorted({part.upper for part in division.parts if part.upper is not None})
    return [(code, [part for part in division.parts if part.upper == code]) for code in codes]


def _with_rows(table: Measurement, division: Division, part: Part, counts: Measurement) -> Measurement:
    """A pooled part's table of its strata, averaged by inverse variance with their numbers of rows."""
    rows = np.array([division.rows[code] for code in part.codes])
    weight = table.sigma**2 / (table.sigma**2 + counts.sigma**2)
    mean = weight * rows + (1 - weight) * table.noisy
    return Measurement(table.clique, mean, table.sigma * counts.sigma / np.hypot(table.sigma, counts.sigma))
