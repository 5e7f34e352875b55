"""What every method must do, whatever it does: one suite for all methods and presets."""

from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from synth_core.domain import Domain
from synth_core.errors import BudgetRefused, SpecError
from synth_core.ledger.book import charged_records
from synth_core.ledger.memory import MemoryLedger
from synth_core.ledger.sql import SqlLedger
from synth_core.models.mixture import Model
from synth_core.privacy.accounts import Account
from synth_core.privacy.budget import mu2_of
from synth_core.privacy.curator import Curator, Spending
from synth_core.storage.counting import TableCounts
from synth_core.synthesizers.base import Tools, has_replicates, load_scores, load_structure, save_scores, save_structure
from synth_core.synthesizers.methods import METHODS, synthesizer
from synth_core.synthesizers.replicates import LastFit, Redrawing

pytestmark = pytest.mark.slow

DOMAIN = Domain.of({"a": 3, "b": 4, "c": 2, "d": 5, "e": 3, "f": 2})
BUDGET = mu2_of(2.0, 1e-6)
VARIANTS = [(name, preset) for name, method in METHODS.items() for preset in method.presets]
variants = pytest.mark.parametrize(("method", "preset"), VARIANTS, ids=lambda value: value)


@pytest.fixture(scope="module")
def codes():
    """A chain of dependent attributes."""
    rng = np.random.default_rng(11)
    n = 6000
    columns = {"a": rng.choice(3, n, p=[0.6, 0.3, 0.1])}
    for before, name in zip("abcde", "bcdef", strict=True):
        copied = rng.random(n) < 0.75
        columns[name] = np.where(copied, columns[before], rng.integers(0, 10, n)) % DOMAIN.size(name)
    return {name: column.astype(np.uint8) for name, column in columns.items()}


class OnlyCurator:
    """Shows a method the protocol and nothing else, so that a look behind it fails."""

    __slots__ = ("answer", "choose", "domain", "measure", "score")

    def __init__(self, curator):
        self.domain, self.measure = curator.domain, curator.measure
        self.answer, self.score, self.choose = curator.answer, curator.score, curator.choose


def new_ledger(epsilon=2.0):
    ledger = MemoryLedger()
    ledger.declare(Account(dataset="people", delta=1e-6, cap_epsilon=epsilon), actor="test")
    return ledger


def converse(method, ledger, codes, folder=None, tools=None):
    """The three phases; with a folder the artifacts travel through files, as they do between tasks."""
    plan = method.plan(DOMAIN, BUDGET)
    counts = TableCounts(codes, DOMAIN)

    def curator(step):
        spending = Spending(dataset="people", snapshot="s", release="r", step=step)
        return OnlyCurator(Curator(counts=counts, ledger=ledger, spending=spending))

    scores = method.score(curator("score"), plan)
    if folder:
        save_scores(scores, folder / "scores.json")
        scores = load_scores(folder / "scores.json")
    structure = method.select(curator("select"), plan, scores)
    if folder:
        save_structure(structure, folder / "structure.json")
        structure = load_structure(folder / "structure.json")
    return method.fit(curator("fit"), plan, structure, tools or Tools())


def charged(ledger):
    return sum((record.mu2 for record in charged_records(ledger.records())), Fraction(0))


def mean_pair_tvd(model, codes):
    rows = len(codes["a"])
    errors = []
    for i, a in enumerate(DOMAIN):
        for b in DOMAIN.attributes[i + 1 :]:
            real = np.zeros(DOMAIN.shape((a, b)))
            np.add.at(real, (codes[a], codes[b]), 1 / rows)
            made = model.marginal((a, b))
            errors.append(0.5 * np.abs(real - made / made.sum()).sum())
    return float(np.mean(errors))


class Told(NamedTuple):
    """A conversation that several tests look at, and the ledger that has its answers."""

    method: str
    preset: str
    ledger: SqlLedger
    model: Model
    fits: LastFit


@pytest.fixture(scope="module", params=VARIANTS, ids="-".join)
def told(request, codes):
    """One conversation of each method and preset; who asks again is given its answers."""
    method, preset = request.param
    ledger, fits = new_ledger(), LastFit()
    model = converse(synthesizer(method, preset), ledger, codes, tools=fits.observing(Tools()))
    return Told(method, preset, ledger, model, fits)


@pytest.fixture(scope="module")
def floor(codes):
    """How far a model without any dependence is from the table."""
    return mean_pair_tvd(converse(synthesizer("independent"), new_ledger(), codes), codes)


def test_spends_its_plan_and_not_more(told):
    assert charged(told.ledger) <= BUDGET
    assert charged(told.ledger) >= BUDGET * Fraction(999, 1000), "budget was left unused"


def test_a_method_says_beforehand_whether_its_models_have_replicates(told):
    """Before, methods without them were named, but not presets: replicate tables were refused when all was paid."""
    found = Redrawing.where_known(told.model, told.fits.of(told.model), (), seed=0) is not None
    assert has_replicates(synthesizer(told.method, told.preset), DOMAIN) == found


@variants
def test_stops_when_refused(method, preset, codes):
    ledger = new_ledger(epsilon=0.2)
    with pytest.raises(BudgetRefused):
        converse(synthesizer(method, preset), ledger, codes)
    assert charged(ledger) <= mu2_of(0.2, 1e-6)


def test_samples_inside_the_domain(told):
    rows = told.model.sample(1234, np.random.default_rng(0))
    assert rows.shape == (1234, len(DOMAIN))
    assert (rows >= 0).all()
    assert (rows < np.array(DOMAIN.sizes)).all()
    assert abs(told.model.total - 6000) < 600


def test_replays_identically_at_no_cost(told, codes, tmp_path):
    cost = charged(told.ledger)
    again = converse(synthesizer(told.method, told.preset), told.ledger, codes, Path(tmp_path))
    assert charged(told.ledger) == cost
    np.testing.assert_array_equal(
        told.model.sample(500, np.random.default_rng(1)), again.sample(500, np.random.default_rng(1))
    )


def test_never_asks_the_rows(told):
    """The counts are gone when the answers are replayed: everything came through stored answers."""
    empty = {name: np.zeros(0, dtype=np.uint8) for name in DOMAIN}
    model = converse(synthesizer(told.method, told.preset), told.ledger, empty)
    assert abs(model.total - 6000) < 600


@pytest.mark.parametrize(
    "told", [v for v in VARIANTS if v[0] != "independent"], ids="-".join, indirect=True, scope="module"
)
def test_beats_independence_by_far(told, floor, codes):
    assert mean_pair_tvd(told.model, codes) < floor / 3


@variants
def test_previews_without_data(method, preset):
    built = synthesizer(method, preset)
    lines = built.preview(DOMAIN, built.plan(DOMAIN, BUDGET))
    assert any("sigma" in value for _, value in lines)


@variants
def test_a_single_column_works(method, preset):
    domain = Domain.of({"only": 4})
    built = synthesizer(method, preset)
    plan = built.plan(domain, BUDGET)
    ledger = new_ledger()
    counts = TableCounts({"only": np.repeat(np.arange(4, dtype=np.uint8), 500)}, domain)
    spending = Spending(dataset="people", snapshot="s", release="r", step="all")
    curator = Curator(counts=counts, ledger=ledger, spending=spending)
    model = built.fit(curator, plan, built.select(curator, plan, built.score(curator, plan)), Tools())
    assert model.sample(10, np.random.default_rng(0)).shape == (10, 1)
    assert built.preview(domain, plan)


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(SpecError, match=r"unknown method 'magic'.*privmrf"):
        synthesizer("magic")
    with pytest.raises(SpecError, match=r"no preset 'best'.*default"):
        synthesizer("privmrf", "best")
    with pytest.raises(SpecError, match=r"no option 'thetta'.*theta"):
        synthesizer("privmrf", "paper", {"thetta": 3})
    with pytest.raises(SpecError, match="theta must be of type float"):
        synthesizer("privmrf", "paper", {"theta": "six"})


def test_options_replace_constants():
    assert synthesizer("privmrf", "paper", {"theta": 3}).theta == 3.0
