"""What a release will cost and whether it can run, told before anything is spent or read."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from synth_core.errors import SynthError
from synth_core.models.feasibility import check_rules
from synth_core.privacy.budget import epsilon_of, mu2_of, mu_of
from synth_core.privacy.wording import exact_text, left_text, loss_text
from synth_core.release.budget import divide_budget
from synth_core.release.division import divided, laid_out
from synth_core.release.spec import ReleaseSpec
from synth_core.schema import Schema
from synth_core.steps.preparation import check_account, check_bins, existing_ledger
from synth_core.synthesizers.methods import synthesizer

NO_LARGEST_N = (
    "no public bound of the number of records is declared: make sure that delta is at most 1/(10 x records)"
)
"""What is said of an account that was opened before the bound was asked for; an account cannot be declared again."""

Section = tuple[str, list[tuple[str, str]]]


def preview_release(wanted: Mapping[str, Any] | Path, *, workspace: Path) -> list[Section]:
    """Sections of named facts: the release, its budget split, what the method expects, the account."""
    spec = ReleaseSpec.load(wanted) if isinstance(wanted, Path) else ReleaseSpec.parse(dict(wanted))
    schema = Schema.load(Path(spec.schema_))
    check_rules(schema)
    check_bins(spec, schema)
    schema = schema.expected
    method = synthesizer(spec.method, spec.preset, spec.options)
    domain = schema.domain
    total = mu2_of(spec.epsilon, spec.delta)
    budget = divide_budget(spec)
    account_lines: list[tuple[str, str]]
    try:
        balance = existing_ledger(workspace, spec.dataset).balance(spec.dataset)
    except SynthError as refusal:
        account_lines = [("not ready", str(refusal))]
    else:
        check_account(spec, balance.account)
        budget = divide_budget(spec, rows_per_unit=balance.account.rows_per_unit)
        left = max(balance.remaining_mu2, Fraction(0))
        after = left - total
        account_lines = [
            (
                "cap",
                f"epsilon {exact_text(balance.account.cap_epsilon)} at delta {exact_text(spec.delta)}, per {spec.unit}",
            ),
            ("left now", f"epsilon {left_text(epsilon_of(left, spec.delta), 3)}"),
            (
                "left after",
                f"epsilon {left_text(epsilon_of(after, spec.delta), 3)}"
                if after >= 0
                else "not enough: refused",
            ),
        ]
        if balance.account.largest_n is None:
            account_lines.append(("warning", NO_LARGEST_N))
    beside = {
        "bins": budget.bins,
        "quality": budget.quality,
        "rows of strata": budget.stratum_rows,
        "level above": budget.level_above,
    }
    bought = [(name, mu2) for name, mu2 in beside.items() if mu2]
    strata = spec.strata
    if strata is not None:
        division = divided(layout := laid_out(strata, schema), [0.0] * len(layout.names), pool_below=None)
        domain = division.domain(domain, division.parts[0])
    plan = method.plan(domain, budget.method)
    shares = [
        (name, f"{float(mu2 / budget.whole):6.1%}   mu {float(mu2) ** 0.5:.4f}")
        for name, mu2 in [*((name, plan.mu2(name)) for name, _ in plan.shares), *bought]
    ]
    return [
        (
            f"Release {spec.release}",
            [
                ("method", f"{spec.method}, preset {spec.preset}"),
                (
                    "cost",
                    f"epsilon {exact_text(spec.epsilon)}, delta {exact_text(spec.delta)} "
                    f"(mu {loss_text(mu_of(total))})",
                ),
                ("columns", f"{len(schema.domain)}, {schema.domain.cells():.3g} possible records"),
                *([("strata", f"{schema.domain.size(strata.by)} of {strata.by}")] if strata else []),
            ],
        ),
        ("How the budget is shared", shares),
        ("What to expect in each stratum" if strata else "What to expect", method.preview(domain, plan)),
        (f"Account {spec.dataset}", account_lines),
    ]
