"""Every number that a release publishes about privacy, recomputed from the ledger alone."""

import json
import math
import re
import shutil
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
import yaml
from support import strata_release
from support.small_release import people, write_release
from typer.testing import CliRunner

from synth_core import Schema, synthesize
from synth_core.cli.ledger import app
from synth_core.events.notices import lineage_event
from synth_core.ledger.book import charged_records
from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.privacy.accounts import Account, Runner, State
from synth_core.privacy.budget import epsilon_of, group_mu2, mu2_of
from synth_core.privacy.wording import loss_text
from synth_core.release.paths import ReleasePaths
from synth_core.release.verify import verify_release
from synth_core.steps import STEPS, context, prepare, run_step
from synth_core.steps import publish as publishing
from synth_core.steps.preview import NO_LARGEST_N, preview_release
from synth_core.web.records import to_csv

pytestmark = pytest.mark.slow

DELTA = 1e-6
BEFORE_PUBLISH = STEPS[:-1]
SENTENCE = re.compile(
    r"all releases of this data set together, this one and those under way included, came to \S+ = ([\d.]+) "
    r"\(spent by then: \S+ = ([\d.]+)\)\. The cap was \S+ = ([\d.]+);"
)


@pytest.fixture
def site(tmp_path):
    spec = write_release(tmp_path, cap=4.0, method="independent", epsilon=0.5, shards=1)
    return Site(tmp_path, spec)


class Killed(BaseException):
    """The process dies here."""


def killed(*_, **__):
    raise Killed


class Site:
    """A workspace in which releases are begun, resumed and published in any order."""

    def __init__(self, folder, spec):
        self.workspace, self.spec = folder / "workspace", spec

    @property
    def ledger(self):
        return SqlLedger(ledger_url(self.workspace, None))

    def run(self, release, steps=STEPS, **changes):
        address = prepare({**self.spec, "release": release, **changes}, workspace=self.workspace)
        for step in steps:
            run_step(step, address)
        return address

    def paths(self, release):
        return ReleasePaths(self.workspace, release)

    def manifest(self, release):
        return json.loads(self.paths(release).manifest.read_text())


def charge(records):
    """mu^2 of one release, from its reservations: parts of one partition count once, by the dearest."""
    spends = defaultdict(Fraction)
    for record in records:
        price = group_mu2(record.mechanism.mu2(), record.account.rows_per_unit)
        part = (record.stratum.partition, record.stratum.part) if record.stratum else ("", "")
        if record.state is State.RESERVED:
            spends[part] += price
        elif record.state is State.REFUNDED:
            spends[part] -= price
    dearest = defaultdict(Fraction)
    for (partition, _), mu2 in spends.items():
        dearest[partition] = max(dearest[partition], mu2)
    return sum(dearest.values(), Fraction(0))


def price(records):
    """The larger of asked and charged; of a release that was ended before its publication, what was charged."""
    turns = [record for record in records if record.state in (State.HELD, State.CLOSED)]
    asked = max((record.mu2 for record in turns if record.state is State.HELD), default=Fraction(0))
    begun_to_publish = any(r.step == "publish" and r.state is State.NOTED for r in records)
    ended = bool(turns) and turns[-1].state is State.CLOSED and turns[-1].reason != "finished"
    ended = ended and not begun_to_publish
    return charge(records) if ended else max(asked, charge(records))


def expected(site, release, asked):
    """What the release must state, from the records up to the one that its manifest names."""
    last = site.manifest(release)["provenance"]["ledger"]["records"]
    everything = site.ledger.records(dataset=site.spec["dataset"])
    seen = [record for record in everything if record.id <= last]
    assert (seen[-1].state, seen[-1].step, seen[-1].release) == (State.NOTED, "publish", release)
    releases = defaultdict(list)
    for record in seen:
        releases[record.release].append(record)
    own, account = releases[release], seen[-1].account
    assert charge(own) == charge([r for r in everything if r.release == release]), "nothing was charged since"
    promised, spent = max(price(own), mu2_of(asked, account.delta)), charge(own)
    return {
        "epsilon": max(asked, epsilon_of(promised, account.delta)),
        "epsilon_spent": epsilon_of(spent, account.delta),
        "mu": math.sqrt(promised),
        "mu_spent": math.sqrt(spent),
        "account.epsilon": epsilon_of(sum(map(price, releases.values())), account.delta),
        "account.epsilon_spent": epsilon_of(sum(map(charge, releases.values())), account.delta),
        "account.epsilon_cap": account.cap_epsilon,
    }


def rounded_up(stated, exact, digits):
    return -1e-12 <= stated - exact < 1.001 * 10**-digits


def check(site, release, *, asked=0.5):
    """Every number of manifest, certificate, report, deployment.yaml and lineage is the ledger's, rounded up."""
    wanted = expected(site, release, asked)
    manifest, paths = site.manifest(release), site.paths(release)
    assert verify_release(paths.public) == []
    certificate = json.loads(paths.certificate.read_text())
    for guarantee in (manifest["guarantee"], certificate["guarantee"]):
        flat = {**guarantee, **{f"account.{key}": value for key, value in guarantee["account"].items()}}
        assert all(rounded_up(flat[name], exact, 6) for name, exact in wanted.items()), (flat, wanted)
        assert (guarantee["epsilon_asked"], guarantee["delta"]) == (asked, DELTA)
        steps = sum(Fraction(cost["mu2"]) for cost in guarantee["steps"].values())
        assert epsilon_of(steps, DELTA) == wanted["epsilon_spent"]
        assert guarantee["account"]["epsilon"] >= guarantee["epsilon"] >= guarantee["epsilon_spent"]
    loss = yaml.safe_load(paths.deployment.read_text())["deployment"]["privacy_loss"]
    assert loss["privacy_parameters"] == {key: manifest["guarantee"][key] for key in ("epsilon", "delta", "mu")}
    report = paths.public_report.read_text()
    for text in (" ".join(report.split()), " ".join(loss["privacy_parameters_description"].split())):
        together, spent, cap = map(float, SENTENCE.search(text).groups())
        assert rounded_up(together, wanted["account.epsilon"], 4)
        assert rounded_up(spent, wanted["account.epsilon_spent"], 4)
        assert cap == wanted["account.epsilon_cap"]
        assert "never more than" not in text
    headline = float(re.search(r"<strong>ε = ([\d.]+)</strong> bounds", report)[1])
    assert rounded_up(headline, wanted["epsilon"], 4)
    facet = lineage_event(manifest, Runner())["run"]["facets"]["synth_privacyLoss"]
    stated = manifest["guarantee"]
    assert {key: facet[key] for key in ("epsilon", "epsilonSpent", "delta", "mu")} == {
        "epsilon": stated["epsilon"],
        "epsilonSpent": stated["epsilon_spent"],
        "delta": DELTA,
        "mu": stated["mu"],
    }
    assert (facet["accountEpsilon"], facet["accountEpsilonSpent"], facet["accountEpsilonCap"]) == tuple(
        stated["account"][key] for key in ("epsilon", "epsilon_spent", "epsilon_cap")
    )
    return wanted


def test_a_release_resumed_after_others_states_all_of_them(site):
    site.run("early", steps=STEPS[:2])
    for name in ("b", "c"):
        site.run(name)
    site.run("early")
    three = epsilon_of(3 * mu2_of(0.5, DELTA), DELTA)
    assert check(site, "early")["account.epsilon"] == pytest.approx(three, abs=1e-9)
    for name in ("b", "c"):
        check(site, name)


def test_of_two_releases_side_by_side_each_states_the_other(site):
    first, second = (site.run(name, steps=BEFORE_PUBLISH) for name in ("one", "two"))
    run_step("publish", first)
    run_step("publish", second)
    both = epsilon_of(2 * mu2_of(0.5, DELTA), DELTA)
    for name in ("one", "two"):
        assert check(site, name)["account.epsilon"] == pytest.approx(both, abs=1e-9)


def test_publications_in_the_same_moment_state_what_the_ledger_had(site):
    names = ["one", "two"]
    addresses = [site.run(name, steps=BEFORE_PUBLISH) for name in names]
    with ThreadPoolExecutor(len(names)) as threads:
        list(threads.map(lambda address: run_step("publish", address), addresses))
    both = epsilon_of(2 * mu2_of(0.5, DELTA), DELTA)
    for name in names:
        assert check(site, name)["account.epsilon"] == pytest.approx(both, abs=1e-9)


def test_what_a_cancelled_release_was_charged_counts(site):
    site.run("cancelled", steps=STEPS[:2])
    site.ledger.close("people", "cancelled", reason="cancelled", runner=Runner())
    charged = charge(site.ledger.records(release="cancelled"))
    site.run("r1")
    together = epsilon_of(charged + mu2_of(0.5, DELTA), DELTA)
    assert charged > 0
    assert check(site, "r1")["account.epsilon"] == pytest.approx(together, abs=1e-9)


def test_what_the_python_api_returned_counts_with_what_was_asked_for(site):
    schema = Schema.load(Path(site.spec["schema"]))
    charging = {"ledger": site.workspace, "dataset": "people", "method": "independent"}
    synthesize(people(), schema, epsilon=0.3, delta=DELTA, **charging)
    site.run("r1")
    together = epsilon_of(mu2_of(0.3, DELTA) + mu2_of(0.5, DELTA), DELTA)
    assert check(site, "r1")["account.epsilon"] == pytest.approx(together, abs=1e-9)


def test_a_release_that_was_set_aside_counts_as_one_under_way(site):
    site.run("waiting", steps=())
    site.run("r1")
    assert check(site, "r1")["account.epsilon"] == pytest.approx(epsilon_of(2 * mu2_of(0.5, DELTA), DELTA))


def test_a_publication_that_was_interrupted_states_the_account_anew(site, monkeypatch):
    address = site.run("early", steps=BEFORE_PUBLISH)
    with monkeypatch.context() as patched:
        patched.setattr(publishing, "_sign", killed)
        with pytest.raises(Killed):
            run_step("publish", address)
    site.run("other")
    run_step("publish", address)
    both = epsilon_of(2 * mu2_of(0.5, DELTA), DELTA)
    assert check(site, "early")["account.epsilon"] == pytest.approx(both, abs=1e-9)


def test_a_published_release_states_the_same_for_ever(site):
    address = site.run("r1")
    before = site.manifest("r1")
    site.ledger.set_cap("people", epsilon=9.5, actor="board", reason="decision 7")
    site.run("r2")
    run_step("publish", address)
    again = site.manifest("r1")
    assert again["digest"] == before["digest"]
    assert again["provenance"]["ledger"] == before["provenance"]["ledger"]
    assert check(site, "r1")["account.epsilon_cap"] == 4.0
    assert check(site, "r2")["account.epsilon_cap"] == 9.5


def test_releases_in_strata_and_attempts_given_up(tmp_path):
    spec = strata_release.write_release(tmp_path, epsilon=0.5, shards=1)
    site = Site(tmp_path, spec)
    site.run("whole", strata=None)
    site.run("early", steps=STEPS[:1])
    site.run("strata")
    (asked, *_) = [r for r in site.ledger.records(release="strata") if r.state is State.RESERVED]
    site.ledger.begin(site.ledger.reserve(replace(asked.request, release="lost")))
    site.run("early")
    for name in ("whole", "strata", "early"):
        wanted = check(site, name)
    balance = site.ledger.balance("people")
    assert wanted["account.epsilon_spent"] == epsilon_of(balance.charged_mu2, DELTA)


def test_a_release_charged_more_than_it_asked_for_states_what_it_was_charged(site, monkeypatch):
    """An attempt that was given up stays charged, so the release costs more than its spec said."""
    address = site.run("r1", steps=STEPS[:1])
    with monkeypatch.context() as patched:
        patched.setattr(SqlLedger, "store", killed)
        with pytest.raises(Killed):
            run_step("score", address)
    for step in STEPS[1:]:
        run_step(step, address)
    wanted = check(site, "r1")
    assert wanted["epsilon"] == wanted["epsilon_spent"] > 0.5


def test_the_headline_is_what_was_asked_for_and_not_what_a_run_happened_to_spend(site, monkeypatch):
    """A method that leaves half of its budget, as an adaptive one may: with all of it spent both are the same."""
    divide = context.divide_budget

    def halve(spec, **account):
        budget = divide(spec, **account)
        return replace(budget, method=budget.whole / 2)

    monkeypatch.setattr(context, "divide_budget", halve)
    site.run("r1", quality_share=0.0)
    guarantee = site.manifest("r1")["guarantee"]
    assert guarantee["epsilon"] == 0.5
    assert guarantee["epsilon_spent"] < 0.4
    assert guarantee["epsilon_spent"] >= epsilon_of(charge(site.ledger.records(release="r1")), DELTA)
    check(site, "r1")


def test_a_smaller_statement_is_found_by_the_ledger_and_without_it(site, tmp_path):
    site.run("r1")
    site.run("r2")
    public = site.paths("r2").public
    for change in ("epsilon", "epsilon_spent", "account"):
        other = tmp_path / change / "public" / "r2"
        shutil.copytree(public, other)
        for name in ("manifest.json", "certificate.json"):
            content = json.loads((other / name).read_text())
            part = content["guarantee"]["account"] if change == "account" else content["guarantee"]
            part["epsilon" if change == "account" else change] = 0.2
            (other / name).write_text(json.dumps(content))
        assert any("than its spends are worth" in problem for problem in verify_release(other))
        for path in site.workspace.glob("ledger.sqlite*"):
            shutil.copy(path, tmp_path / change)
        assert any(problem.startswith("ledger: gives") for problem in verify_release(other))


def test_a_release_of_laplace_noise_alone_says_what_it_loses_without_a_delta(site, tmp_path):
    """The sum of all charged sensitivities over scales, in manifest, certificate and report; a smaller one is found."""
    pure = {"method": "privmn", "preset": "pure", "quality_share": 0.0}
    site.run("r1", **pure)
    stated = site.manifest("r1")["guarantee"]["pure_epsilon"]
    mechanisms = [r.mechanism for r in charged_records(site.ledger.records(release="r1")) if r.mu2]
    exact = sum(m.count * m.sensitivity / m.scale for m in mechanisms)
    assert exact <= stated < exact + Fraction(1, 10**6)
    assert f"ε = {loss_text(stated)} and δ = 0" in site.paths("r1").public_report.read_text(encoding="utf-8")
    assert verify_release(site.paths("r1").public) == []
    forged = tmp_path / "forged" / "public" / "r1"
    shutil.copytree(site.paths("r1").public, forged)
    for name in ("manifest.json", "certificate.json"):
        content = json.loads((forged / name).read_text())
        content["guarantee"]["pure_epsilon"] = stated / 2
        (forged / name).write_text(json.dumps(content))
    assert any("a smaller epsilon without a delta" in problem for problem in verify_release(forged))
    site.run("r2", **pure | {"quality_share": 0.02})
    assert "pure_epsilon" not in site.manifest("r2")["guarantee"], "published quality has Gaussian noise"


def test_a_plan_warns_of_an_account_without_a_largest_number_of_records(site):
    old = Account(dataset="old", delta=DELTA, cap_epsilon=4.0)
    site.ledger.declare(old, actor="board")
    for dataset, warned in (("people", False), ("old", True)):
        sections = dict(preview_release({**site.spec, "dataset": dataset}, workspace=site.workspace))
        assert (("warning", NO_LARGEST_N) in sections[f"Account {dataset}"]) is warned


def hex_words(text):
    return set(re.findall(r"\b[0-9a-f]{12,}\b", text))


def test_nothing_published_tells_whether_two_releases_had_the_same_rows(site, tmp_path):
    site.run("one")
    site.run("same")
    other = tmp_path / "other.csv"
    people(seed=6).to_csv(other, index=False)
    site.run("different", source=str(other))
    digests = {record.snapshot for record in site.ledger.records() if record.snapshot}
    assert len(digests) == 4, "of two files and two snapshots"
    texts = {}
    for name in ("one", "same", "different"):
        files = [path for path in sorted(site.paths(name).public.rglob("*")) if path.is_file()]
        texts[name] = "\n".join(path.read_bytes().decode("latin-1") for path in files)
        texts[name] = texts[name].replace(site.manifest("one")["digest"], "")  # named as the release before
        assert not any(digest[:12] in texts[name] for digest in digests)
    assert hex_words(texts["one"]) & hex_words(texts["same"]) == (
        hex_words(texts["one"]) & hex_words(texts["different"])
    )
    export = tmp_path / "records.jsonl"
    where = ["-w", str(site.workspace)]
    shown = CliRunner().invoke(app, ["show", "--json", *where])
    assert CliRunner().invoke(app, ["export", str(export), *where]).exit_code == shown.exit_code == 0
    pages = to_csv(site.ledger.records())
    for text in (export.read_text(), shown.output, pages):
        assert not any(digest[:12] in text for digest in digests)
    rows = [json.loads(line) for line in export.read_text().splitlines()]
    shapes = {
        name: [(row["state"], row["step"], row["snapshot"]) for row in rows if row["release"] == name]
        for name in ("one", "same", "different")
    }
    assert shapes["one"] == shapes["same"] == shapes["different"], "numbered within each release"
    assert CliRunner().invoke(app, ["export", str(export), "--internal", *where]).exit_code == 0
    assert all(digest in export.read_text() for digest in digests)
