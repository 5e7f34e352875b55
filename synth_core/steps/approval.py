"""The disclosure gate: what a person is shown before a release is published, and what that person decided.

A decision is a record of the ledger that costs nothing. It names the draft it was about by a digest over the synthetic
table, the model, the public quality and every charge, so that nothing but what was seen can be published under it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from synth_core.errors import PublishError
from synth_core.evaluation.public import PublicQuality
from synth_core.operations.events import Event, Kind, append
from synth_core.operations.notify import tell
from synth_core.privacy.budget import epsilon_of
from synth_core.privacy.ledger import Record
from synth_core.release.manifest import cost_by_step
from synth_core.steps.context import StepRun
from synth_core.storage.files import sha256_file

STEP = "approve"
APPROVED, REJECTED = "approved", "rejected"


@dataclass(frozen=True, slots=True)
class Draft:
    """A release as it would be published: the digest that a decision is about, and its certificate in Markdown."""

    digest: str
    text: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Who decided what about which draft, and when."""

    approved: bool
    draft: str
    by: str
    at: datetime


def draft(run: StepRun) -> Draft:
    """What is about to be published; everything in it is public or was bought with noise."""
    paths = run.paths
    missing = [path.name for path in _files(run) if not path.is_file()]
    if missing:
        raise PublishError(
            f"release {run.spec.release!r}: {missing[0]} is missing; run the steps up to `evaluate` first"
        )
    digests = {path.name: sha256_file(path) for path in _files(run)}
    records = run.ledger.records(dataset=run.spec.dataset, release=run.spec.release)
    costs = {step: str(mu2) for step, mu2 in sorted(cost_by_step(records).items()) if mu2}
    content = json.dumps([digests, costs], sort_keys=True)
    quality = PublicQuality.from_json(paths.quality.read_text(encoding="utf-8"))
    return Draft(hashlib.sha256(content.encode()).hexdigest()[:16], _in_words(run, records, quality))


def ask(run: StepRun) -> Draft:
    """Tell people that a release waits for them."""
    waiting = draft(run)
    event = Event(
        kind=Kind.APPROVAL,
        dataset=run.spec.dataset,
        release=run.spec.release,
        step=STEP,
        text=f"release {run.spec.release!r} waits for approval; without one it is not published",
        runner=run.runner,
    )
    append(run.paths.workspace, event)
    tell(event)
    return waiting


def decide(run: StepRun, *, approved: bool, seen: str) -> None:
    """Record the decision of the runner's actor about the draft that was seen.

    A rejection ends the release's hold: what was measured stays charged, and nothing that is public is withdrawn.
    """
    if not run.runner.actor:
        raise PublishError("a decision about a release needs the name of the person who made it")
    if draft(run).digest != seen:
        raise PublishError(
            f"release {run.spec.release!r} is not the draft that was decided about; look at it and decide again"
        )
    word = APPROVED if approved else REJECTED
    run.note(STEP, f"{word} draft {seen} on {datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}")
    if not approved:
        reason = f"rejected by {run.runner.actor}"
        run.ledger.close(run.spec.dataset, run.spec.release, reason=reason, runner=run.runner)


def decision(run: StepRun) -> Decision | None:
    """The last decision about a release."""
    made = [
        record
        for record in run.ledger.records(dataset=run.spec.dataset, release=run.spec.release)
        if record.step == STEP and record.purpose.split()[0] in (APPROVED, REJECTED)
    ]
    if not made:
        return None
    word, _, digest, *_ = made[-1].purpose.split()
    return Decision(word == APPROVED, digest, made[-1].runner.actor, made[-1].at)


def require_approval(run: StepRun) -> Decision | None:
    """Refuse to publish what nobody has approved as it is; None where the spec asks for no approval."""
    if not run.spec.approval:
        return None
    name, made = run.spec.release, decision(run)
    remedy = "approve it in Airflow, or with `synth approve`"
    if made is None:
        raise PublishError(f"release {name!r} waits for approval; {remedy}")
    if not made.approved:
        raise PublishError(f"release {name!r} was rejected by {made.by}; to publish it, {remedy}")
    if made.draft != draft(run).digest:
        raise PublishError(f"release {name!r} has changed since {made.by} approved it; {remedy} again")
    return made


def _files(run: StepRun) -> list[Path]:
    paths = run.paths
    return [
        *(paths.schema, paths.scores, paths.structure, paths.model, paths.quality),
        *(paths.shard(number) for number in range(run.spec.shards)),
    ]


def _in_words(run: StepRun, records: list[Record], quality: PublicQuality) -> str:
    spec, account = run.spec, run.account
    costs = {step: mu2 for step, mu2 in cost_by_step(records).items() if mu2}
    total = sum(costs.values())
    balance = run.ledger.balance(spec.dataset)
    rows = [
        ("Release", spec.release),
        ("Data set", spec.dataset),
        (
            "Privacy loss",
            f"ε {epsilon_of(total, account.delta):.4f} at δ {account.delta:g}, asked {spec.epsilon:g}",
        ),
        ("Protects", f"one {account.unit}, up to {account.rows_per_unit} record(s); {account.neighbours}"),
        ("Spent by step", ", ".join(f"{step} {float(mu2 / total):.1%}" for step, mu2 in costs.items())),
        (
            "Account so far",
            f"ε {epsilon_of(balance.charged_mu2, account.delta):.3f} of {account.cap_epsilon:g}",
        ),
        ("Method", f"{spec.method}, preset {spec.preset}"),
        ("Synthetic records", f"{quality.rows:,} in {spec.shards} file(s)"),
        *((f"Mean error, {e.alpha}-way", f"{e.mean:.4f} ± {e.margin:.4f} (bought)") for e in quality.bought),
        (
            "Rules broken",
            ", ".join(f"{rule}: {count}" for rule, count in quality.violations.items()) or "none",
        ),
    ]
    cells = [(name, value.replace("|", r"\|")) for name, value in rows]
    return "\n".join(["| Privacy certificate | |", "|---|---|", *(f"| {a} | {b} |" for a, b in cells)])
