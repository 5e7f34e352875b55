"""The papers' program: what is kept is not measured again, and pages say what reproduces and from how many runs."""

import itertools
import json
import math
import time

import numpy as np
import pandas as pd
import pytest

from synth_core import Schema, synthesize
from synth_core.domain import Domain
from synth_core.measurement import Measurement
from tests.benchmarks.papers import absyn, comparators, costs, data, epsilons, pgm, privbayes, privmn, privmrf
from tests.benchmarks.papers.__main__ import main
from tests.benchmarks.papers.figures import Contestant, Figure, Result, load, run, write_page
from tests.benchmarks.papers.releases import DATA, by_scheme, count_best, rising_steps, said_of_rises


def test_contestants_take_presets_and_options():
    assert Contestant.parse("absyn") == ("absyn", "default", {})
    expected = ("privmrf", "paper", {"theta": 2, "t_per_attribute": 0.5})
    assert Contestant.parse("privmrf:paper{theta=2, t_per_attribute=0.5}") == expected
    assert Contestant.parse("absyn{estimation=parallel}").options == {"estimation": "parallel"}
    with pytest.raises(ValueError, match="is no contestant"):
        Contestant.parse("privmrf paper")


def figure(measured):
    def measure(cell):
        measured.append(cell["k"])
        return {"value": float(cell["k"])}

    return Figure(
        name="1",
        title="Figure 1",
        setting="Numbers.",
        cells=[{"k": k} for k in range(3)],
        measure=measure,
        show=lambda results: f"{len(results)} results",
        draw=lambda axes, results: axes.plot([r.values["value"] for r in results]),
    )


def test_runs_are_kept_and_go_on_where_they_stopped(tmp_path):
    measured, path = [], tmp_path / "paper.jsonl"
    one = figure(measured)
    assert list(run(one, path, runs=1, deadline=time.process_time() - 1)) == []
    first = list(itertools.islice(run(one, path, runs=2, deadline=math.inf), 2))
    assert [r.cell["k"] for r in first] == [0, 1]
    rest = list(run(one, path, runs=2, deadline=math.inf))
    assert [(r.cell["k"], r.run) for r in rest] == [(2, 0), (0, 1), (1, 1), (2, 1)]
    assert list(run(one, path, runs=2, deadline=math.inf)) == []
    assert measured == [0, 1, 2, 0, 1, 2]
    for folder in ("papers", "images"):
        (tmp_path / folder).mkdir()
    write_page("paper", "A paper", [one], load(path), tmp_path)
    text = (tmp_path / "papers" / "paper.md").read_text()
    assert "## Figure 1" in text
    assert "6 results" in text
    assert (tmp_path / "images" / "paper-paper-1.svg").read_text().startswith("<?xml")


def test_every_method_by_epsilon_has_its_runs_and_a_rise_is_named():
    text = epsilons.show([])
    assert "| nltcs | 0.8 | 0.0065 (3) |" in text
    assert "| adult | 3.2 | – |" in text, "refused there"
    high = [Result("methods", {"scheme": "swift", "epsilon": 3.2, "data": "nltcs"}, 0, {"tvd3": 0.9})]
    assert "`swift` on nltcs from 1.6 to 3.2" in epsilons.show(high)
    assert "`swift` on nltcs" not in text
    assert "| nltcs | 3.2 | 0.0053 (1) | 0.4509 (2) |" in epsilons.show(high)


def test_costs_of_all_cells_follow_from_those_that_were_timed(tmp_path):
    one = figure([])
    results = [Result("1", {"k": 0}, run, {"seconds": 9.0}, cost) for run, cost in enumerate((2.0, 4.0))]
    assert costs.costs(one, results) == (1, 9.0), "three cells of the one mean"
    results.append(Result("1", {"k": 1}, 0, {"seconds": 1.0}))
    assert costs.costs(one, results) == (2, 6.0)
    assert costs.costs(one, []) == (0, 0.0)
    (tmp_path / "papers").mkdir()
    costs.write_costs({"paper": ([one], results), "other": ([one], [])}, tmp_path)
    text = (tmp_path / "papers" / "costs.md").read_text()
    assert "| paper | Figure 1 | 3 | 2 | 6 |" in text
    assert "| other | Figure 1 | 3 | 0 | – |" in text
    assert "about 6 CPU seconds" in text.replace("\n", " ")


def timed(times):
    cells = [({"algorithm": name, "attributes": d}, s) for name, points in times.items() for d, s in points.items()]
    return [Result("2b", cell, 0, {"seconds": seconds}) for cell, seconds in cells]


def test_the_claim_on_scaling_can_fail():
    vectors = {"MW": {3: 1e-4, 6: 0.1}, "LSMR": {3: 1e-4, 6: 0.2}}
    text = pgm.show(timed({"PGM": {3: 1e-4, 1000: 0.03}, **vectors}))
    assert "**The claim reproduces**" in text
    assert "| 6 | – | 100.00 ms (1) | 200.00 ms (1) |" in text
    assert "does not reproduce" in pgm.show(timed({"PGM": {3: 1e-4, 1000: 300.0}, **vectors}))


@pytest.mark.parametrize("algorithm", [pgm.graphical, pgm.weights])
def test_what_is_timed_comes_nearer_to_the_triples(algorithm):
    step = algorithm(4)
    distances = [step() for _ in range(20)]
    assert distances[-1] < 0.995 * distances[0]  # steps in shares of records are small


def test_an_iteration_of_least_squares_is_timed():
    assert pgm.measure({"algorithm": "LSMR", "attributes": 3})["seconds"] >= 0


def errors_of(values):
    return [
        Result("table-2", {"data": "titanic", "epsilon": 1.0, "scheme": s}, 0, {f"tvd{a}": v for a in (2, 3, 4)})
        for s, v in values.items()
    ]


def test_ranks_need_all_schemes_and_the_claim_can_fail():
    values = {scheme: 0.1 + 0.01 * k for k, scheme in enumerate(absyn.SCHEMES)}
    assert absyn.mean_ranks(errors_of(values), "tvd3")["absyn:paper"] == 1
    assert "**The claim reproduces**" in absyn.show(errors_of(values))
    assert "does not reproduce" in absyn.show(errors_of(values | {"aim:paper": 0.01}))
    assert "**The claim reproduces**" in absyn.show(errors_of(values | {"privmrf": 0.01})), "ours is not the paper's"
    some = dict(itertools.islice(values.items(), 3))
    assert absyn.mean_ranks(errors_of(some), "tvd3") == {}


def runs_of(value, errors):
    return [
        Result("1", {"data": "nltcs", "epsilon": e, "scheme": scheme}, 0, {value: error})
        for scheme, by_epsilon in errors.items()
        for e, error in by_epsilon.items()
    ]


def test_settings_that_not_all_schemes_were_run_in_do_not_count():
    results = runs_of("tvd3", {"a": {0.1: 0.2, 0.8: 0.1, 3.2: 0.05}, "b": {0.1: 0.3, 0.8: 0.09}})
    assert count_best(results, "tvd3", ("a", "b"), first="a") == (1, 2)
    assert "| nltcs | 3.2 | 0.0500 (1) | – |" in by_scheme(results, "tvd3", ("a", "b"))


def test_an_error_that_rises_with_epsilon_is_named():
    results = runs_of("tvd3", {"a": {0.1: 0.2, 0.8: 0.1, 3.2: 0.12}, "b": {0.1: 0.3, 0.8: 0.31}})
    found = rising_steps(results, "tvd3", ("a", "b"))
    assert found == ([("nltcs", "a", 0.8, 3.2, pytest.approx(1.2))], 3)
    text = "more than 5% in 1 of 3 steps: `a` on nltcs from 0.8 to 3.2 (× 1.20)."
    assert said_of_rises(found).endswith(text)
    assert said_of_rises(rising_steps(results, "tvd3", ("b",))).endswith("in 0 of 1 steps.")


def test_what_a_printed_element_changes():
    whole = {scheme: dict.fromkeys(privmrf.LITERAL_EPSILONS, 0.1) for scheme in privmrf.LITERAL}
    plain = "privmrf:paper{plain_fit=true}"
    whole[plain] = dict(zip(privmrf.LITERAL_EPSILONS, (0.1, 0.12, 0.14), strict=True))
    line = "| plain steps (Algorithm 5) | 0.1000 (1) | 0.1200 (1) | 0.1400 (1) | +20 % |"
    assert line in privmrf.show_literal(runs_of("tvd5", whole))


def mechanisms(without, graphical):
    cells = [({"data": "titanic", "scheme": "hdmm:lls"}, without), ({"data": "titanic", "scheme": "hdmm"}, graphical)]
    return [Result("1", cell, 0, values) for cell, values in cells]


def test_the_claims_of_private_pgm_can_fail():
    text = pgm.show_mechanisms(mechanisms({"error": 0.3}, {"error": 0.1}))
    assert "| titanic | HDMM | 0.3000 (1) | 0.1000 (1) | 3.0 | 6.6 |" in text
    assert "**The claim reproduces**" in text
    assert "in 0 of 1 settings" in pgm.show_mechanisms(mechanisms({"error": 0.1}, {"error": 0.3}))
    assert "| refused | 0.1000 (1) | – |" in pgm.show_mechanisms(mechanisms({"refused": 1.0}, {"error": 0.1}))
    assert "reproduces in part" in pgm.show_mechanisms(mechanisms({"refused": 1.0}, {"error": 0.1}))

    def losses(l2):
        errors = {"L1": 0.2, "L2": l2}
        values = {f"{v}@{p}": e for p in pgm.PASSES for v in ("L1", "L2", "error") for e in [1.0]}
        return [Result("3", {"data": "titanic", "loss": n}, 0, values | {"error@1000": e}) for n, e in errors.items()]

    assert "**The claim reproduces**" in pgm.show_losses(losses(0.1))
    assert "does not reproduce" in pgm.show_losses(losses(0.3))


def test_workloads_have_prefixes_along_wide_columns_and_no_large_triples():
    sizes = {"age": 91, "fare": 100, "sex": 2, "class": 3, "deck": 60}
    workload = pgm.workload_of(sizes)
    assert {"age", "fare"} not in [set(triple) & {"age", "fare"} for triple in workload["marginals"]]
    assert workload["prefixes"] == ["age", "fare"]


def test_the_claims_of_privmrf_can_fail():
    best, *others = privmrf.SCHEMES

    def errors(of_best):
        schemes = {best: of_best} | dict.fromkeys(others, 0.2)
        return [
            Result("4", {"data": "nltcs", "epsilon": 0.1, "scheme": s}, 0, {f"tvd{a}": v for a in (3, 4, 5)})
            for s, v in schemes.items()
        ]

    assert "**The claim reproduces**" in privmrf.show_marginals(errors(0.1))
    assert "does not reproduce everywhere" in privmrf.show_marginals(errors(0.3))
    by_k = {f"privmrf:paper{{k={k}}}": dict.fromkeys(privmrf.TUNED, k / 1000) for k in privmrf.CONSTANTS["k"]}
    assert "is least at 100 (1.00; at 400: 4.00)" in privmrf.show_constant(runs_of("tvd5", by_k), name="k")


def test_the_claim_of_privmn_can_fail_and_l2_is_that_of_shares():
    def said(mn):
        errors = {"privmn:paper": {0.1: mn}, "privbayes:paper": {0.1: 0.2}}
        return privmn.show_tables(runs_of("l2_4", errors), values={"l2_4": "4-way marginals"})

    assert "**The claim reproduces**" in said(0.1)
    assert "**The claim does not reproduce**" in said(0.3)
    one, sizes = np.array([[0, 0], [0, 0]]), {"a": 2, "b": 2}
    both = [privmn.counted(codes, sizes) for codes in (one, np.array([[0, 0], [1, 1]]))]
    assert privmn.mean_l2(*both, list(sizes), 2) == pytest.approx(math.sqrt(0.5))


def test_views_cover_every_pair_and_six_of_eight_cover_sixteen_columns():
    for width, views in ((16, 6), (23, 14), (5, 1)):
        found = comparators.cover_pairs(range(width))
        assert len(found) == views
        pairs = {pair for view in found for pair in itertools.combinations(view, 2)}
        assert pairs == set(itertools.combinations(range(width), 2))


def test_priview_answers_with_what_its_views_know_and_nothing_else():
    """Of a chain a – b – c with views ab and bc: a and c are independent given b, as greatest entropy has it."""
    domain = Domain.of({"a": 2, "b": 2, "c": 2})
    rng = np.random.default_rng(1)
    given_b = rng.dirichlet([1, 1], size=(2, 2))  # of a and of c, for each b
    chain = np.einsum("b,ba,bc->abc", np.array([0.3, 0.7]), given_b[0], given_b[1])
    views = [
        Measurement(("a", "b"), 1000 * chain.sum(axis=2), 1.0),
        Measurement(("b", "c"), 1000 * chain.sum(axis=0), 1.0),
    ]
    assert comparators.largest_entropy(domain, ("a", "b", "c"), views) == pytest.approx(chain, abs=1e-6)
    assert comparators.largest_entropy(domain, ("a", "c"), views) == pytest.approx(
        np.outer(chain.sum(axis=(1, 2)), chain.sum(axis=(0, 1))), abs=1e-6
    ), "no view has both"


def binary_rows(rows=4000):
    """Six binary columns, each a noisy copy of the one before."""
    rng = np.random.default_rng(2)
    columns = [rng.integers(0, 2, rows)]
    for _ in range(5):
        columns.append(np.where(rng.random(rows) < 0.8, columns[-1], 1 - columns[-1]))
    sizes = {f"a{k}": 2 for k in range(6)}
    return pd.DataFrame(dict(zip(sizes, columns, strict=True))), sizes


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_comparators_come_nearer_to_the_table_with_more_budget(delta):
    rows, sizes = binary_rows()
    real = privmn.counted(rows.to_numpy(), sizes)

    def errors(epsilon):
        answers = [comparators.priview(rows, sizes, epsilon=epsilon, delta=delta)]
        if delta:
            made = comparators.junction_tree_rows(rows, sizes, epsilon=epsilon, delta=delta)
            answers.append(privmn.counted(made, sizes))
        return np.array([privmn.mean_l2(real, answer, list(sizes), 3) for answer in answers])

    assert (errors(5.0) < 0.03).all()
    assert (errors(5.0) < errors(0.02) / 3).all()


def test_pure_privmn_is_asked_for_as_much_as_loses_the_pure_epsilon_at_most():
    rows, sizes = binary_rows()
    asked = comparators.epsilon_for_pure(sizes, 1.0, delta=1e-6)
    cost = synthesize(rows, Schema.from_sizes(sizes), method="privmn", preset="pure", epsilon=asked, delta=1e-6).cost
    assert 0.7 < cost.pure <= 1.0, "what as many clusters as columns would lose is 1"


def test_classes_are_those_of_the_papers_questions():
    """A classifier of degrees sees no column that says the same; the others see every code."""
    domain = Domain.of({"a3": 16, "a4": 16, "a5": 7, "a9": 2, "a14": 2})
    rng = np.random.default_rng(3)
    degree = rng.integers(0, 16, 2000)
    table = np.column_stack(
        [degree, degree, rng.integers(0, 7, 2000), np.isin(degree, [7, 8, 9, 10, 12, 14]), rng.integers(0, 2, 2000)]
    )
    errors = privmn.two_classes(table, table, domain)
    assert errors["a9"] == 0, "told by the codes of a3"
    assert errors["a3"] == 0, "a9 says whether it is a degree"
    assert 0.05 < errors["a5"] < 0.2, "one of seven codes: guessing the others errs in a seventh"


def test_the_table_in_place_of_colorados_has_its_columns_and_a_pay_gap():
    rows, sizes, *_ = privbayes.colorado()
    assert list(rows) == list(sizes)
    assert len(sizes) == privbayes.COLUMNS
    assert (rows.max() < list(sizes.values())).all()
    gaps = rows.groupby(["city", "sex"]).income.mean().unstack().diff(axis=1)[1]
    assert gaps.std() > 0.5, "areas differ"


def test_a_radial_kernel_learns_what_no_linear_one_can():
    """Whether two numbers of five codes are near each other, on the scale of their codes."""
    domain = Domain.of({"a": 5, "b": 5, "near": 2})
    rng = np.random.default_rng(4)
    a, b = rng.integers(0, 5, (2, 3000))
    table = np.column_stack([a, b, np.abs(a - b) <= 1]).astype(np.int64)
    errors = {name: judge(table[:2000], table[2000:], domain)["near"] for name, judge in privmrf.KERNELS.items()}
    assert errors["rbf"] < 0.02
    assert errors["linear"] > 0.1
    alone = np.column_stack([a, b, np.zeros(3000, dtype=np.int64)])
    assert privmrf.KERNELS["rbf"](alone, table, domain)["near"] == pytest.approx(table[:, 2].mean()), "one class known"


def test_the_challenges_pack_is_read_as_codes_in_the_order_of_its_values(tmp_path):
    """A pack of the documented layout: values with gaps, a number with more values than codes."""
    wages = np.arange(0, 5000, 10)
    table = pd.DataFrame({"SEX": wages // 10 % 2 + 1, "INCWAGE": wages, "CITY": wages // 10 % 3 * 610})
    table.to_csv(tmp_path / "colorado.csv", index=False)
    specs = {name: {"type": "enum", "count": table[name].nunique(), "maxval": int(table[name].max())} for name in table}
    (tmp_path / "colorado-specs.json").write_text(json.dumps(specs))
    found = privbayes.read_pack(tmp_path)
    assert found.sizes == {"SEX": 2, "INCWAGE": 100, "CITY": 3}
    assert found.ordered == {"INCWAGE"}
    assert found.rows.INCWAGE.is_monotonic_increasing
    assert found.rows.INCWAGE.value_counts().eq(5).all(), "five neighbouring values a code"
    assert (found.rows.CITY == table.CITY // 610).all()
    (tmp_path / "colorado-specs.json").write_text(json.dumps(specs | {"SEX": specs["SEX"] | {"count": 3}}))
    with pytest.raises(ValueError, match="SEX has 2 values and should have 3"):
        privbayes.read_pack(tmp_path)


def test_the_command_writes_a_page_without_measuring_anything_new(tmp_path, capsys):
    for folder in ("papers", "images"):
        (tmp_path / folder).mkdir()
    main(["pgm", "--limit", "-1"], out=tmp_path)
    assert "Figure 2b" in (tmp_path / "papers" / "pgm.md").read_text()
    with pytest.raises(SystemExit):
        main(["nothing"])
    assert "choose of absyn, pgm" in capsys.readouterr().err


@pytest.mark.parametrize("name", data.ORIGINS)
def test_the_page_says_what_the_tables_here_are(name):
    if not DATA.exists():
        pytest.skip("the public tables are not beside the project")
    line = "| " + " | ".join(data.describe(name)) + " |"
    assert line in (data.ROOT / "docs" / "papers" / "data.md").read_text(encoding="utf-8").splitlines()


def test_another_file_than_that_of_the_commit_is_not_converted(tmp_path):
    (tmp_path / "nltcs.csv").write_text("0,1\n0,1\n")
    with pytest.raises(ValueError, match="is not the file of caicre/PrivMRF at that commit"):
        data.convert(tmp_path / "nltcs.csv", "nltcs")
