"""What `synth plan` says: the cost of a release, how it is shared, and what noise will leave; no data is read."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from synth_core.documents import Unreadable, parse_document, read_document
from synth_core.errors import SchemaError, SpecError, SynthError
from synth_core.files import FORMULA_SIGNS
from synth_core.ledger.sql import open_ledger
from synth_core.privacy.accounts import Account, Balance
from synth_core.privacy.budget import BudgetPlan, epsilon_of, mu2_of, mu_of
from synth_core.privacy.wording import exact_text, left_text, loss_text
from synth_core.release.budget import ReleaseBudget
from synth_core.release.estimate import Shape, describe, estimate_release
from synth_core.release.expected_tree import expected_tree
from synth_core.release.paths import ReleasePaths
from synth_core.release.prior import FrozenPrior
from synth_core.release.reuse import FrozenReuse
from synth_core.release.spec import ReleaseSpec
from synth_core.release.strata import divide_strata, lay_out_strata, most_parts
from synth_core.schema import DeclaredSchema, Schema
from synth_core.schema.codec import number_columns
from synth_core.schema.linked import asked_domain, load_schema, planned_schema
from synth_core.steps.context import release_method
from synth_core.steps.outlook import Records, foresee, known_records
from synth_core.steps.preparation import (
    check_account,
    check_declared,
    check_moments,
    check_prior,
    check_replicates,
    check_reuse,
    check_strata,
    may_refit,
    model_domains,
    planned_budget,
)

NO_LARGEST_N = "no public bound of the number of records is declared: make sure that delta is at most 1/(10 x records)"
"""What is said of an account that was opened before the bound was asked for; an account cannot be declared again."""

DOUBTFUL_MEAN = 0.05
"""How far one record in a hundred may move a mean, by where in its bin it lies, before a preview warns of it."""

Section = tuple[str, list[tuple[str, str]]]


def preview_release(wanted: Mapping[str, Any] | Path, *, workspace: Path, records: int | None = None) -> list[Section]:
    """Sections of named facts: the release, its budget, what it takes and what noise leaves, the account.

    Time, memory, disk and what noise leaves are said for `records`; without it, for as many as the account may have or,
    of the noise, what is known of earlier releases.
    """
    spec = _load_spec(wanted) if isinstance(wanted, Path) else ReleaseSpec.parse(dict(wanted))
    declared = load_schema(Path(spec.schema_))
    check_declared(spec, declared)
    schema, method = planned_schema(declared), release_method(spec, declared)
    check_replicates(spec, schema)
    balance: Balance | None = None
    reused, prior = FrozenReuse(), check_prior(spec, declared, ReleasePaths(workspace.resolve(), spec.release))
    try:
        ledger = open_ledger(workspace, dataset=spec.dataset)
        balance = ledger.balance(spec.dataset)
    except SynthError as refusal:
        account_lines = [("not ready", str(refusal))]
    else:
        check_account(spec, balance.account, declared)
        if spec.strata:
            check_strata(spec, schema, balance.account)
        account_lines = _account_lines(spec, balance)
        reused = check_reuse(spec, declared, ledger, ReleasePaths(workspace.resolve(), spec.release))
    account: Account | None = balance.account if balance else None
    if isinstance(declared, DeclaredSchema):
        check_moments(spec, declared, rows_per_unit=account.rows_per_unit if account else 1)
    budget = planned_budget(spec, declared, account)
    domain, strata = asked_domain(declared), spec.strata
    if strata is not None:
        division = divide_strata(layout := lay_out_strata(strata, schema), [0.0] * len(layout.names), pool_below=None)
        domain = division.domain(domain, division.parts[0])
    plan = method.plan(domain, budget.method)
    known = known_records(spec, account, ReleasePaths(workspace.resolve(), spec.release))
    if records is not None:
        known = Records(float(records), "as --records says")
    outlook = foresee(spec, schema, domain, method=method, plan=plan, records=known)
    where = " in each stratum" if strata else ""
    return [
        (f"Release {spec.release}", [*_release_lines(spec, schema), *_reuse_lines(spec, reused), *_prior_lines(prior)]),
        ("How the budget is shared", _share_lines(plan, budget)),
        (f"What to expect{where}", method.preview(domain, plan)),
        (f"What the noise leaves{where}", outlook.counts),
        *([("Where noise wins, and what to do", outlook.warnings)] if outlook.warnings else []),
        ("What it takes", _what_it_takes(spec, schema, records=records or (account.largest_n if account else None))),
        (f"Account {spec.dataset}", account_lines),
    ]


def _load_spec(path: Path) -> ReleaseSpec:
    """The spec; what is wrong with its schema is said with what is wrong with it, so that both are mended in one go."""
    try:
        return ReleaseSpec.load(path)
    except SpecError as wrong:
        try:
            load_schema(path.parent / str(parse_document(read_document(path))["schema"]))
        except SchemaError as too:
            raise SpecError(f"{wrong}; {too}") from None
        except (Unreadable, KeyError, TypeError):
            raise wrong from None
        raise


def _release_lines(spec: ReleaseSpec, schema: Schema) -> list[tuple[str, str]]:
    total = mu2_of(spec.epsilon, spec.delta)
    price = f"epsilon {exact_text(spec.epsilon)}, delta {exact_text(spec.delta)} (mu {loss_text(mu_of(total))})"
    return [
        ("method", f"{spec.method}, preset {spec.preset}"),
        ("cost", price),
        ("columns", f"{len(schema.domain)}, {schema.domain.cells():.3g} possible records"),
        *([("strata", f"{schema.domain.size(spec.strata.by)} of {spec.strata.by}")] if spec.strata else []),
        *_formula_warning(spec, schema),
        *_width_warnings(schema),
    ]


def _reuse_lines(spec: ReleaseSpec, reused: FrozenReuse) -> list[tuple[str, str]]:
    """What the answers of earlier releases are worth: the epsilon that all of them together would have cost."""
    if not reused.answers:
        return []
    worth = loss_text(epsilon_of(mu2_of(spec.epsilon, spec.delta) + reused.mu2, spec.delta), 3)
    known = [f"{sum(a.tables for a in own)} tables of {name}" for name, own in reused.by_release().items()]
    return [("reuses", f"{', '.join(known)}: at no cost, as if epsilon {worth} if the rows are the same")]


def _prior_lines(prior: FrozenPrior | None) -> list[tuple[str, str]]:
    """Which public table the release builds on."""
    if prior is None:
        return []
    names = ", ".join(file.name for file in prior.files)
    said = (
        f"{names}: {prior.rows:,} public records of {len(prior.columns)} columns, as far as noisy answers bear it out"
    )
    return [("builds on", said)]


def _share_lines(plan: BudgetPlan, budget: ReleaseBudget) -> list[tuple[str, str]]:
    beside = {
        "bins": budget.bins,
        "sums inside bins": budget.moments,
        "quality": budget.quality,
        "rows of strata": budget.stratum_rows,
        "level above": budget.level_above,
        "pairs of people": budget.pairs,
    }
    bought = [(name, mu2) for name, mu2 in beside.items() if mu2]
    return [
        (name, f"{float(mu2 / budget.whole):6.1%}   mu {float(mu2) ** 0.5:.4f}")
        for name, mu2 in [*((name, plan.mu2(name)) for name, _ in plan.shares), *bought]
    ]


def _account_lines(spec: ReleaseSpec, balance: Balance) -> list[tuple[str, str]]:
    left = max(balance.remaining_mu2, Fraction(0))
    after = left - mu2_of(spec.epsilon, spec.delta)
    cap, delta = exact_text(balance.account.cap_epsilon), exact_text(spec.delta)
    rest = f"epsilon {left_text(epsilon_of(after, spec.delta), 3)}" if after >= 0 else "not enough: refused"
    return [
        ("cap", f"epsilon {cap} at delta {delta}, per {spec.unit}"),
        ("left now", f"epsilon {left_text(epsilon_of(left, spec.delta), 3)}"),
        ("left after", rest),
        *([("warning", NO_LARGEST_N)] if balance.account.largest_n is None else []),
    ]


def _what_it_takes(spec: ReleaseSpec, schema: Schema, *, records: int | None) -> list[tuple[str, str]]:
    """Time, memory and disk for a number of records, which is public; a line that asks for one without it."""
    if records is None:
        return [("not known", "say how many records are expected, as a public number: --records")]
    models = most_parts(spec.strata, schema) if spec.strata else 1
    shape = Shape(
        method=spec.method,
        records=records,
        rows=records if spec.rows == "noisy" else spec.rows,
        columns=len(schema.domain),
        models=models,
        evaluate=spec.evaluate,
        refits=spec.refits if may_refit(spec, schema) else 0,
        tables=1 + spec.replicates,
        csv=spec.csv,
        tree=expected_tree(
            model_domains(spec, schema)[0], records=records / models, mu2=float(mu2_of(spec.epsilon, spec.delta))
        ),
    )
    return describe(shape, estimate_release(shape))


def _width_warnings(schema: Schema) -> list[tuple[str, str]]:
    """A warning for each column with a bin so wide that its mean is uncertain."""
    found = []
    for column in number_columns(schema):
        doubt = None if column.private_bins else column.doubtful_bin
        if doubt is not None and doubt[1] > DOUBTFUL_MEAN:
            said = (
                f"column {column.name!r}: one record in a hundred in {doubt[0]} may move the mean by up to "
                f"{doubt[1]:.0%}; declare a tail, add edges or set moments: true"
            )
            found.append(("warning", said))
    return found


def _formula_warning(spec: ReleaseSpec, schema: Schema) -> list[tuple[str, str]]:
    """A warning if CSV files will have cells that a spreadsheet runs as formulas; they are values that are declared."""
    if not spec.csv or spec.escape_formulas:
        return []
    for column in schema.columns:
        if any(isinstance(value, str) and value.startswith(FORMULA_SIGNS) for value in column.listed or ()):
            said = f"column {column.name!r} has values that a spreadsheet runs as formulas; set escape_formulas: true"
            return [("warning", said)]
    return []
