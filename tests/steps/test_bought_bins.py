"""Bins that a release buys: their edges, their price, their record, and what a crash or another run does to them."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.small_release import write_release

from synth_core import Schema, synthesize
from synth_core.errors import SchemaError, SpecError
from synth_core.ledger.book import cost_by_step
from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.privacy.accounts import State
from synth_core.privacy.budget import epsilon_of
from synth_core.release.paths import ReleasePaths
from synth_core.release.verify import verify_release
from synth_core.schema import DeclaredSchema
from synth_core.steps import STEPS, cost, ingest, prepare, run_step
from synth_core.steps.ingest import PURPOSE, quantile_edges
from synth_core.storage.ingest import Snapshot, read_codes

SCHEMA = """
columns:
  - {name: sex, kind: categorical, values: [f, m]}
  - {name: pay, kind: real, bounds: [0, 100000], bins: {private_quantiles: 8}, not_in_universe: N, unseen: clip}
  - {name: age, kind: integer, bounds: [0, 99], bins: {private_quantiles: 4, grid: 50}, nullable: true, unseen: clip}
"""
ROWS = 4000


def earners(rows=ROWS, seed=8):
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 90, rows)
    pay = np.exp(rng.normal(9, 0.6, rows)).round(2).astype(str)
    pay[age < 16] = "N"
    return pd.DataFrame({"sex": rng.choice(["f", "m"], rows), "pay": pay, "age": np.where(age > 85, np.nan, age)})


def write(folder, **changes):
    folder.mkdir(exist_ok=True)
    spec = write_release(
        folder, frame=earners(), **{"method": "independent", "bins_share": 0.2, "epsilon": 2.0} | changes
    )
    (folder / "schema.yaml").write_text(SCHEMA)
    return spec


def ledger_of(folder):
    return SqlLedger(ledger_url(folder / "workspace", None))


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bins")
    spec = write(folder)
    address = prepare(spec, workspace=folder / "workspace")
    for step in STEPS:
        run_step(step, address)
    return folder, spec, ReleasePaths.of_address(address)


@pytest.mark.slow
def test_the_bins_of_a_release_hold_about_equally_many_records(released):
    *_, paths = released
    schema = Schema.load(paths.schema)
    pay = earners()["pay"]
    counts, _ = np.histogram(pay[pay != "N"].astype(float).clip(0, 100_000), schema.column("pay").edges)
    even, _ = np.histogram(pay[pay != "N"].astype(float).clip(0, 100_000), np.linspace(0, 100_000, 9))
    assert counts.max() < 0.3 * counts.sum(), "a bin has far more than its share of an eighth"
    assert even.max() > 0.5 * even.sum(), "equal widths would have told little"
    assert set(schema.column("age").edges) <= set(range(0, 101, 2))


def test_the_rows_have_the_codes_that_the_source_has_by_the_bought_bins(released):
    from synth_core.schema.codec import encode

    *_, paths = released
    schema, snapshot = Schema.load(paths.schema), Snapshot.load(paths.snapshot)
    assert not paths.grid.exists()
    found = read_codes(paths.encoded / snapshot.partitions[0])
    for name, codes in encode(earners(), schema).items():
        assert np.array_equal(found[name], codes)
        assert found[name].dtype == codes.dtype


def test_the_price_is_recorded_planned_and_certified(released):
    folder, spec, paths = released
    records = ledger_of(folder).records(release="r1")
    costs = cost_by_step(records)
    total = sum(costs.values(), Fraction(0))
    assert float(costs["ingest"] / total) == pytest.approx(0.2, rel=1e-6)
    assert 0.99 * spec["epsilon"] < epsilon_of(total, 1e-6) <= spec["epsilon"]
    certificate = json.loads(paths.certificate.read_text())
    assert {name: column["origin"] for name, column in certificate["domain"].items()} == {
        "sex": "declared in the public schema",
        "pay": "private quantiles, bought",
        "age": "private quantiles, bought",
    }
    (spend,) = [spend for spend in certificate["spends"] if spend["step"] == "ingest"]
    assert (spend["purpose"], spend["mechanism"]["count"]) == (PURPOSE, 2)
    assert "the bins of pay, age from noisy histograms" in " ".join(paths.deployment.read_text().split())
    assert verify_release(paths.public) == []
    shares = dict(dict(cost(spec, workspace=folder / "workspace"))["How the budget is shared"])
    assert shares["bins"].split()[0] == "20.0%"


def test_the_table_is_published_in_the_declared_form(released):
    *_, paths = released
    table = pd.read_parquet(paths.extract)
    in_universe = table["pay"] != "N"
    assert 0 < in_universe.sum() < len(table)
    assert table["pay"][in_universe].astype(float).between(0, 100_000).all()


def test_a_release_that_is_run_again_buys_nothing_and_keeps_its_bins(released):
    folder, spec, paths = released
    before, schema = ledger_of(folder).records(), paths.schema.read_text()
    address = prepare(spec, workspace=folder / "workspace")
    for step in STEPS:
        run_step(step, address)
    measured = [record for record in ledger_of(folder).records()[len(before) :] if record.state is State.MEASURED]
    assert measured == []
    assert paths.schema.read_text() == schema


@pytest.mark.parametrize("crash", ["_bought_edges", "coarsen_partitions", "atomic_write"])
def test_a_crash_anywhere_draws_nothing_twice(tmp_path, monkeypatch, crash):
    spec = write(tmp_path)
    address = prepare(spec, workspace=tmp_path / "workspace")
    paths = ReleasePaths.of_address(address)
    with monkeypatch.context() as patched:
        real = getattr(ingest, crash)

        def stop(*args, **kwargs):
            real(*args, **kwargs)
            raise RuntimeError("the machine stops")

        patched.setattr(ingest, crash, stop)
        with pytest.raises(RuntimeError):
            run_step("ingest", address)
    assert not paths.snapshot.exists()
    (tmp_path / "people.csv").write_text("sex,pay,age\nf,1,1\n")  # the rows of the first attempt are kept
    run_step("ingest", address)
    records = [r for r in ledger_of(tmp_path).records(release="r1") if r.state is State.MEASURED]
    assert len(records) == 1
    assert DeclaredSchema.load(paths.schema) != DeclaredSchema.load(paths.schema).declaration
    assert len(read_codes(paths.encoded / Snapshot.load(paths.snapshot).partitions[0])["sex"]) == ROWS


@pytest.mark.slow
def test_strata_and_bought_bins_add_up(tmp_path):
    spec = write(tmp_path, strata="sex")
    address = prepare(spec, workspace=tmp_path / "workspace")
    for step in STEPS:
        run_step(step, address)
    total = sum(cost_by_step(ledger_of(tmp_path).records(release="r1")).values(), Fraction(0))
    assert 0.99 * 2.0 < epsilon_of(total, 1e-6) <= 2.0
    assert cost(spec, workspace=tmp_path / "workspace")


def test_shares_and_bins_need_each_other(tmp_path):
    spec = write(tmp_path)
    with pytest.raises(SpecError, match="column 'pay' has bins that are to be bought; say with bins_share"):
        prepare(spec | {"bins_share": 0}, workspace=tmp_path / "workspace")
    plain = tmp_path / "plain.yaml"
    plain.write_text("columns: [{name: sex, kind: categorical, values: [f, m]}]")
    with pytest.raises(SpecError, match="bins_share buys nothing"):
        prepare(spec | {"schema": str(plain)}, workspace=tmp_path / "workspace")


def test_bins_of_another_release_are_not_taken_for_bought_ones(tmp_path):
    spec = write(tmp_path)
    DeclaredSchema.load(tmp_path / "schema.yaml").planned.save(tmp_path / "schema.yaml")
    with pytest.raises(SpecError, match="bins that another release has bought"):
        prepare(spec, workspace=tmp_path / "workspace")


def test_another_declaration_is_another_release(tmp_path):
    spec = write(tmp_path)
    run_step("ingest", prepare(spec, workspace=tmp_path / "workspace"))
    (tmp_path / "schema.yaml").write_text(SCHEMA.replace("private_quantiles: 8", "private_quantiles: 9"))
    with pytest.raises(SpecError, match=r"was begun with other settings \(schema\)"):
        prepare(spec, workspace=tmp_path / "workspace")


def test_a_frame_in_memory_has_no_share_for_bins(tmp_path):
    write(tmp_path)
    with pytest.raises(SchemaError, match="'pay' has bins that are to be bought"):
        synthesize(earners(), DeclaredSchema.load(tmp_path / "schema.yaml"), epsilon=1.0, delta=1e-6)
    with pytest.raises(SchemaError, match="'pay' has bins that are to be bought"):
        Schema.load(tmp_path / "schema.yaml")


def exact(counts, *, bins, tails=0.0):
    return quantile_edges(range(len(counts) + 1), np.array(counts, dtype=float), sigma=0.0, bins=bins, tails=tails)


def test_quantiles_of_exact_counts_are_the_quantiles():
    assert exact([0, 10, 10, 0, 20, 10, 10, 20, 0], bins=4) == (1, 3, 5, 7, 8)


def test_a_heavy_cell_is_a_bin_by_itself():
    assert exact([5, 1000, 5, 5, 5, 5], bins=4) == (0, 1, 2, 6)


def test_tails_are_cut_off_at_the_ends():
    counts = [1, 0, 500, 500, 0, 1, 0, 1, 0]
    assert exact(counts, bins=2) == (0, 3, 8)
    assert exact(counts, bins=2, tails=0.01) == (2, 3, 4)


@pytest.mark.parametrize(("noisy", "sigma"), [([-3.0] * 8, 0.0), ([5.0] * 8, 10.0)])
def test_noise_alone_gives_even_bins(noisy, sigma):
    assert quantile_edges(range(9), np.array(noisy), sigma=sigma, bins=4, tails=0.0) == (0, 2, 4, 6, 8)


@settings(max_examples=60)
@given(
    st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=60),
    st.integers(2, 60),
    st.floats(0, 0.49),
    st.floats(0, 1e6),
)
def test_edges_are_a_part_of_the_grid_whatever_the_noise(noisy, bins, tails, sigma):
    bins = min(bins, len(noisy))
    edges = quantile_edges(range(len(noisy) + 1), np.array(noisy), sigma=sigma, bins=bins, tails=tails)
    assert 2 <= len(edges) <= bins + 1
    assert list(edges) == sorted(set(edges) & set(range(len(noisy) + 1)))


def test_noise_moves_quantiles_little_and_outer_edges_not_into_the_void():
    """Numbers fill a tenth of the grid; sums of 1,000 counts with sigma 30 stray by about 700 of 100,000 records."""
    rng = np.random.default_rng(3)
    counts = np.zeros(1000)
    counts[:100] = rng.multinomial(100_000, np.full(100, 0.01))
    sums = np.concatenate([[0], np.cumsum(counts)])
    strayed = 0
    for _ in range(20):
        noisy = counts + rng.normal(0, 30, 1000)
        edges = quantile_edges(range(1001), noisy, sigma=30.0, bins=10, tails=0.0)
        assert edges[-1] <= 110
        assert np.diff(sums[list(edges)]).max() < 14_000
        strayed += quantile_edges(range(1001), noisy, sigma=0.0, bins=10, tails=0.0)[-1] > 110
    assert strayed >= 5, "without regard to the noise the last edge is where it took the sums highest"
