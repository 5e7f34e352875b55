"""What a release will cost and whether it can run, told before anything is spent or read."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from synth_core.errors import SynthError
from synth_core.privacy.budget import epsilon_of, mu2_of
from synth_core.release.spec import ReleaseSpec
from synth_core.schema import Schema
from synth_core.steps.context import method_budget
from synth_core.steps.preparation import check_account, existing_ledger
from synth_core.synthesizers.methods import synthesizer

Section = tuple[str, list[tuple[str, str]]]


def preview_release(wanted: Mapping[str, Any] | Path, *, workspace: Path) -> list[Section]:
    """Sections of named facts: the release, its budget split, what the method expects, the account."""
    spec = ReleaseSpec.load(wanted) if isinstance(wanted, Path) else ReleaseSpec.parse(dict(wanted))
    schema = Schema.load(Path(spec.schema_))
    method = synthesizer(spec.method, spec.preset, spec.options)
    domain = schema.domain
    total = mu2_of(spec.epsilon, spec.delta)
    account_lines: list[tuple[str, str]]
    try:
        balance = existing_ledger(workspace, spec.dataset).balance(spec.dataset)
    except SynthError as refusal:
        account_lines = [("not ready", str(refusal))]
        plan = method.plan(domain, total - total * Fraction(str(spec.quality_share)))
    else:
        check_account(spec, balance.account)
        plan = method.plan(domain, method_budget(spec, balance.account))
        left = max(balance.remaining_mu2, balance.remaining_mu2 * 0)
        after = left - total
        account_lines = [
            ("cap", f"epsilon {balance.account.cap_epsilon:g} at delta {spec.delta:g}, per {spec.unit}"),
            ("left now", f"epsilon {epsilon_of(left, spec.delta):.3f}"),
            (
                "left after",
                f"epsilon {epsilon_of(after, spec.delta):.3f}" if after >= 0 else "not enough: refused",
            ),
        ]
    method_share = 1 - Fraction(str(spec.quality_share))
    shares = [
        (name, f"{float(share * method_share):6.1%}   mu {float(plan.mu2(name)) ** 0.5:.4f}")
        for name, share in plan.shares
    ]
    if spec.quality_share:
        mu2 = plan.total_mu2 / method_share - plan.total_mu2
        shares.append(("quality", f"{spec.quality_share:6.1%}   mu {float(mu2) ** 0.5:.4f}"))
    return [
        (
            f"Release {spec.release}",
            [
                ("method", f"{spec.method}, preset {spec.preset}"),
                ("cost", f"epsilon {spec.epsilon:g}, delta {spec.delta:g} (mu {float(total) ** 0.5:.4f})"),
                ("columns", f"{len(domain)}, {domain.cells():.3g} possible records"),
            ],
        ),
        ("How the budget is shared", shares),
        ("What to expect", method.preview(domain, plan)),
        (f"Account {spec.dataset}", account_lines),
    ]
