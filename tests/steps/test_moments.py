"""Bought sums of numbers inside bins: planned, charged, certified, replayed, and better means for it."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from support.small_release import run_all, write_release

from synth_core import synthesize
from synth_core.errors import SourceError, SpecError
from synth_core.ledger.book import cost_by_step
from synth_core.ledger.memory import MemoryLedger
from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.privacy.accounts import Account, Runner, State
from synth_core.privacy.curator import Curator, Spending
from synth_core.release.paths import ReleasePaths
from synth_core.release.verify import verify_release
from synth_core.schema import Schema
from synth_core.schema.codec import encode_numbers, summed_columns
from synth_core.steps import STEPS, prepare, run_step
from synth_core.steps.preview import preview_release
from synth_core.storage.counting import TableCounts
from synth_core.synthesizers.moments import (
    PURPOSE,
    CountErrors,
    Moments,
    ask_moments,
    read_moments,
    require_answerable,
    summed_domain,
)
from synth_core.synthesizers.pooled_numbers import pool_numbers

COLUMNS = [
    {"name": "sex", "kind": "categorical", "values": ["f", "m"]},
    {"name": "pay", "kind": "real", "bins": [0, 1000, 2000, 4000, 200_000], "unseen": "clip", "moments": True},
    {"name": "age", "kind": "integer", "bounds": [0, 99], "bins": 4, "moments": True, "nullable": True},
    {"name": "size", "kind": "integer", "bins": [1, 2, 3, 4]},
]
ROWS = 4000


def earners(rows=ROWS, seed=8):
    """Numbers that lie low in their bins, so that what is guessed of them is wrong."""
    rng = np.random.default_rng(seed)
    bins = np.array([0, 1000, 2000, 4000, 200_000.0])
    at = rng.choice(4, rows, p=[0.3, 0.4, 0.2, 0.1])
    pay = bins[at] + np.array([1000, 1000, 2000, 8000])[at] * 0.2 * rng.random(rows)
    age = np.where(rng.random(rows) < 0.1, np.nan, 25 * rng.integers(0, 4, rows) + rng.integers(20, 25, rows))
    return pd.DataFrame(
        {"sex": rng.choice(["f", "m"], rows), "pay": pay.round(2), "age": age, "size": rng.integers(1, 4, rows)}
    )


def write(folder, **changes):
    folder.mkdir(exist_ok=True)
    spec = write_release(folder, frame=earners(), **{"method": "independent", "moments_share": 0.2} | changes)
    (folder / "schema.yaml").write_text(yaml.safe_dump({"columns": COLUMNS}))
    return spec


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    folder = tmp_path_factory.mktemp("moments")
    spec = write(folder)
    return folder, spec, ReleasePaths.of_address(run_all(spec, folder / "workspace"))


def ledger_of(folder):
    return SqlLedger(ledger_url(folder / "workspace", None))


def test_the_price_is_recorded_planned_and_certified(released):
    folder, spec, paths = released
    records = ledger_of(folder).records(release="r1")
    (asked,) = [record for record in records if record.purpose.startswith(PURPOSE) and record.state is State.MEASURED]
    totals = [own.total for own in read_moments(paths.moments).values() if own.total]
    assert (asked.step, asked.mechanism.count) == ("fit", 2 + len(totals))
    total = sum(cost_by_step(records).values(), Fraction(0))
    assert float(asked.mu2 / total) == pytest.approx(0.2, rel=1e-3)
    (spend,) = [one for one in json.loads(paths.certificate.read_text())["spends"] if PURPOSE in one["purpose"]]
    assert spend["step"] == "fit"
    assert "moments.json" in json.loads(paths.manifest.read_text())["artifacts"]
    assert verify_release(paths.public) == []
    shares = dict(dict(preview_release(spec, workspace=folder / "workspace"))["How the budget is shared"])
    assert shares["sums inside bins"].split()[0] == "20.0%"


def test_published_means_are_near_the_true_ones_and_state_their_margin(released):
    *_, paths = released
    published = pq.read_table(paths.extract).to_pandas()
    means = {one["column"]: one for one in json.loads(paths.quality.read_text())["means"]}
    assert set(means) == {"pay", "age"}
    for name, one in means.items():
        assert one["mean"] == pytest.approx(published[name].mean(), rel=2e-3)
        assert abs(one["mean"] - earners()[name].mean()) < 2 * one["margin"]
        assert one["margin"] < 0.1 * one["mean"]
    assert "Means of published numbers" in paths.public_report.read_text()


def test_the_sums_are_noisy_and_right(released):
    *_, paths = released
    schema, kept = Schema.load(paths.schema), read_moments(paths.moments)
    for name, own in kept.items():
        column, numbers = schema.column(name), earners()[name].dropna().to_numpy()
        codes = np.searchsorted(column.edges, numbers, side="right") - 1
        places = (column.places(numbers, codes) + 0.5) / column.place_count - 0.5
        true = np.bincount(codes, weights=places, minlength=column.declared)
        assert np.abs((own.sums - true) / own.sigma).max() < 5
        assert np.abs(own.sums - true).max() > 0
        if own.total is not None:
            deviation = (numbers - own.total.centre).sum() - own.total.answer
            assert 0 < abs(deviation) < 5 * own.total.sigma
    # The noise is for half a bin, or for the reach of a column: of an account of epsilon 1 a fifth in all.
    reaches = {"pay": 200_000, "age": 99}
    spent = sum((0.5 / own.sigma) ** 2 for own in kept.values())
    for name, own in kept.items():
        assert own.sigma < 2.9 * 0.5 / np.sqrt(0.1 * float(budget_of(paths))), "an eighth of its share at least"
        if own.total is not None:
            reach = max(own.total.centre, reaches[name] - own.total.centre)
            spent += (reach / own.total.sigma) ** 2
    assert spent == pytest.approx(0.2 * float(budget_of(paths)), rel=2e-2)


def budget_of(paths):
    from synth_core.privacy.budget import mu2_of

    return mu2_of(1.0, 1e-6)


def test_running_the_steps_again_draws_nothing_anew(released, tmp_path):
    folder, _, paths = released
    records = len(ledger_of(folder).records(release="r1"))
    text = paths.moments.read_text()
    spec = write(tmp_path / "again")
    workspace = tmp_path / "again" / "workspace"
    address = prepare(spec, workspace=workspace)
    for step in (*STEPS[:-2], "fit", "sample"):
        run_step(step, address)
    again = ReleasePaths.of_address(address)
    first, shards = again.moments.read_text(), [again.shard(n).read_bytes() for n in range(2)]
    again.moments.unlink()
    for step in ("fit", "sample"):
        run_step(step, address)
    assert again.moments.read_text() == first
    assert [again.shard(n).read_bytes() for n in range(2)] == shards
    assert first != text, "another account has other noise"
    assert len(ledger_of(folder).records(release="r1")) == records


def test_the_same_codes_are_drawn_with_and_without_them(released):
    """What is bought says where in their bins numbers lie, and nothing else."""
    from synth_core.models.mixture import load_model
    from synth_core.schema.codec import decode, encode

    *_, paths = released
    schema, model = Schema.load(paths.schema), load_model(paths.model)
    codes = model.sample(500, np.random.default_rng(1))
    found = []
    for moments in ({}, read_moments(paths.moments)):
        densities = pool_numbers(schema, model.marginal, moments).densities
        frame = decode(codes, schema, np.random.default_rng(2), densities)
        found.append(frame)
        again = encode(frame, schema)
        assert all(np.array_equal(again[name], codes[:, k]) for k, name in enumerate(schema.domain))
    assert found[0]["age"].mean() - found[1]["age"].mean() < -5  # they lie at the upper ends of their bins


def test_a_frame_in_memory_buys_them_too():
    frame, schema = earners(), Schema.model_validate({"columns": COLUMNS})
    found = synthesize(frame, schema, epsilon=1.0, delta=1e-6, method="independent", moments_share=0.2)
    assert found.table["age"].mean() == pytest.approx(frame["age"].mean(), rel=0.05)
    assert PURPOSE in " ".join(record.purpose for record in found.records)
    with pytest.raises(SpecError, match="moments_share= buys the sums of columns with moments: true; give both"):
        synthesize(frame, schema, epsilon=1.0, delta=1e-6, method="independent")


def test_a_share_needs_columns_and_columns_a_share(tmp_path):
    spec = write(tmp_path)
    with pytest.raises(SpecError, match="column 'pay' declares moments: true; say with moments_share"):
        prepare(spec | {"moments_share": 0}, workspace=tmp_path / "workspace")
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump({"columns": [COLUMNS[0], {**COLUMNS[3], "moments": True}]}))
    with pytest.raises(SpecError, match="moments_share buys nothing: no column of bins wider than one number"):
        prepare(spec, workspace=tmp_path / "workspace")


@pytest.mark.slow
def test_a_release_in_strata_buys_them_of_all_records_at_once(tmp_path):
    """Each stratum has a model of its own; sums are about the whole table, and are charged once."""
    spec = write(tmp_path, strata="sex")
    paths = ReleasePaths.of_address(run_all(spec, tmp_path / "workspace"))
    records = ledger_of(tmp_path).records(release="r1")
    (asked,) = [one for one in records if one.purpose.startswith(PURPOSE) and one.state is State.MEASURED]
    assert asked.step == "fit"
    assert verify_release(paths.public) == []
    published = pq.read_table(paths.extract).to_pandas()
    for one in json.loads(paths.quality.read_text())["means"]:
        assert one["mean"] == pytest.approx(published[one["column"]].mean(), rel=5e-3)
        assert abs(one["mean"] - earners()[one["column"]].mean()) < 2 * one["margin"]


@pytest.mark.parametrize("epsilon", [0.001, 0.01, 0.02])
def test_a_budget_too_small_for_sums_is_refused_before_anything_is_set_aside(tmp_path, epsilon):
    spec = write(tmp_path)
    with pytest.raises(SpecError, match="moments_share: the noise of sums would exceed every sum; raise it"):
        prepare(spec | {"epsilon": epsilon}, workspace=tmp_path / "workspace")
    assert not ledger_of(tmp_path).balance(spec["dataset"]).held_mu2
    with pytest.raises(SpecError, match="moments_share: the noise of sums would exceed every sum; raise it"):
        preview_release(spec | {"epsilon": epsilon}, workspace=tmp_path / "workspace")
    schema = Schema.model_validate({"columns": COLUMNS})
    with pytest.raises(SpecError, match="moments_share: the noise of sums would exceed every sum; raise it"):
        synthesize(earners(), schema, epsilon=epsilon, delta=1e-6, method="independent", moments_share=0.2)


def test_what_is_not_refused_can_be_asked():
    """With the least budget that passes, whatever the model expects: one number for all, or none."""
    schema = Schema.model_validate({"columns": COLUMNS})
    low, high = Fraction(0), Fraction(1, 100)
    for _ in range(40):
        middle = (low + high) / 2
        try:
            require_answerable(summed_columns(schema), middle)
            high = middle
        except SpecError:
            low = middle
    frame = earners(300)
    for share in (0.0, 1.0):
        counts = TableCounts(encode_numbers(frame, schema, source="t"), summed_domain(schema))
        spending = Spending(dataset="d", snapshot="s", release="r", step="fit", runner=Runner(actor="t"))
        book = MemoryLedger()
        book.declare(Account(dataset="d", delta=1e-6, cap_epsilon=1.0, unit="record"), actor="t")
        curator = Curator(counts=counts, ledger=book, spending=spending)
        errors = CountErrors(dict.fromkeys(schema.domain, 50.0), 40.0)
        asked = ask_moments(
            curator, schema, high, marginal=lambda c, n=share: np.full(schema.column(c[0]).size, n), errors=errors
        )
        assert set(asked) == {"pay", "age"}


def test_few_records_are_guessed_and_many_are_measured():
    schema = Schema.model_validate({"columns": COLUMNS})
    own = Moments(np.array([-300.0, -300.0, -300.0, -2.0]), sigma=10.0)
    counts = np.array([1000.0, 1000, 1000, 5])
    guessed = schema.column("pay").densities(counts)
    pooled = pool_numbers(schema, lambda clique: counts if clique == ("pay",) else np.ones(9), {"pay": own})
    tilted = pooled.densities["pay"]
    assert tilted.means[:3] == pytest.approx([0.2] * 3, abs=0.01)
    assert tilted.means[3] == pytest.approx(guessed.means[3], abs=0.02)
    assert guessed.means[:3].min() > 0.3


def test_a_file_that_holds_no_sums_is_refused(tmp_path):
    path = tmp_path / "moments.json"
    assert read_moments(path) == {}
    path.write_text('{"pay": [1, 2]}')
    with pytest.raises(SourceError, match=r"moments\.json holds no sums of numbers; run the step fit again"):
        read_moments(path)


def test_the_question_knows_codes_and_places_alone():
    schema = Schema.model_validate({"columns": COLUMNS})
    assert len(summed_domain(schema)) == 4
    assert TableCounts({}, summed_domain(schema)).domain.sizes == (4, 4096, 5, 4096)
