"""The disclosure gate: what a person is shown before a release is published, and what that person decided.

A decision is a record of the ledger that costs nothing. It names the draft it was about by a digest over every file
that the steps have written, the spec and every charge, so that nothing else can be published under it. What publication
adds (report, certificate, registry entry, manifest) is computed from these and the ledger, and never read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from synth_core.errors import PublishError
from synth_core.evaluation.public import PublicQuality
from synth_core.events.journal import Event, Kind, append
from synth_core.events.notices import notify
from synth_core.files import sha256_file
from synth_core.ledger.book import cost_by_step
from synth_core.privacy.accounts import Record
from synth_core.privacy.budget import epsilon_of
from synth_core.privacy.wording import exact_text, loss_text
from synth_core.release.certificate import promised_mu2
from synth_core.release.manifest import person_statement
from synth_core.release.spec import ROUTINE
from synth_core.steps.context import StepRun

STEP = "approve"
"""The step under which decisions stand in the ledger."""
APPROVED, REJECTED = "approved", "rejected"
DECISION = re.compile(rf"(?P<word>{APPROVED}|{REJECTED}) draft (?P<digest>[0-9a-f]+) on ")
"""What a decision's record in the ledger begins with."""
REMEDY = "approve it in Airflow, or with `synth approve`"
"""How a waiting release goes on."""
ADDRESSES = ("source", "schema")
"""Keys of a spec that say where files lie, which may be mounted elsewhere when the release goes on."""

DIGITS = 32
"""Hexadecimal digits of a draft's digest: 128 bits, so that no other draft with the same one can be found."""


class Draft(NamedTuple):
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
    """What is about to be published; everything in it is public or was bought with noise.

    Raises:
        PublishError: A step has not written all its files yet.
    """
    files = _files(run)
    for path in files:
        if not path.is_file():
            raise PublishError(
                f"release {run.spec.release!r}: {path.name} is missing; run the steps up to `evaluate` first"
            )
    sums = {path.relative_to(run.paths.home).as_posix(): sha256_file(path) for path in files}
    quality = PublicQuality.from_json(run.paths.quality.read_bytes())
    return Draft(_digest(run, sums), _in_words(run, run.records(), quality))


def ask(run: StepRun) -> Draft:
    """Notify people that a release waits for them."""
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
    notify(event)
    return waiting


def decide(run: StepRun, *, approved: bool, seen: str) -> None:
    """Record the decision of the runner's actor about the draft that was seen.

    A rejection ends the release's hold: what was measured stays charged, and nothing that is public is withdrawn.
    """
    if not run.runner.actor:
        raise PublishError("a decision about a release needs the name of the person who made it")
    if run.paths.published:
        raise PublishError(f"release {run.spec.release!r} is published; a decision about it comes too late")
    if draft(run).digest != seen:
        raise PublishError(
            f"release {run.spec.release!r} is not the draft that was decided about; look at it and decide again"
        )
    word = APPROVED if approved else REJECTED
    run.note(STEP, f"{word} draft {seen} on {datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}")  # as DECISION reads it
    if not approved:
        run.end(f"rejected by {run.runner.actor}")


def decision(run: StepRun) -> Decision | None:
    """The last decision about a release."""
    for record in reversed(run.records()):
        if record.step == STEP and (made := DECISION.match(record.purpose)):
            return Decision(made["word"] == APPROVED, made["digest"], record.runner.actor, record.at)
    return None


def require_approval(run: StepRun) -> Decision | None:
    """Refuse to publish what was not approved as it is; None where the spec asks for no approval."""
    if not run.spec.approval:
        return None
    name, made = run.spec.release, decision(run)
    if made is None:
        raise PublishError(f"release {name!r} waits for approval; {REMEDY}")
    if not made.approved:
        raise PublishError(f"release {name!r} was rejected by {made.by}; to publish it, {REMEDY}")
    if made.draft != draft(run).digest:
        raise _changed(run, made)
    return made


def require_unchanged(run: StepRun, made: Decision | None, checksums: Mapping[str, str]) -> None:
    """Refuse a manifest that lists other bytes than those that were approved.

    Args:
        run: The release.
        made: The approval; None where the spec asks for none.
        checksums: SHA-256 of each file that the manifest lists, by its name.
    """
    if made is not None:
        names = [path.relative_to(run.paths.home).as_posix() for path in _files(run)]
        if made.draft != _digest(run, {name: checksums[name] for name in names}):
            raise _changed(run, made)


def _changed(run: StepRun, made: Decision) -> PublishError:
    return PublishError(f"release {run.spec.release!r} has changed since {made.by} approved it; {REMEDY} again")


def _files(run: StepRun) -> list[Path]:
    """Every file of the release that a step before `publish` has written."""
    artifacts = run.paths.artifacts(run.spec)
    return [path for step, paths in artifacts.items() if step != "publish" for path in paths]


def _digest(run: StepRun, checksums: Mapping[str, str]) -> str:
    costs = {step: str(mu2) for step, mu2 in cost_by_step(run.records()).items() if mu2}
    asked = {key: value for key, value in run.spec.dump().items() if key not in (*ROUTINE, *ADDRESSES)}
    content = json.dumps([dict(checksums), costs, asked], sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()[:DIGITS]


def _in_words(run: StepRun, records: list[Record], quality: PublicQuality) -> str:
    spec, account = run.spec, run.account
    costs = {step: mu2 for step, mu2 in cost_by_step(records).items() if mu2}
    total = sum(costs.values(), Fraction(0))
    promised = promised_mu2(records)
    balance = run.ledger.balance(spec.dataset)
    loss = max(spec.epsilon, epsilon_of(promised, account.delta))
    person = person_statement({"epsilon": loss, "delta": account.delta})
    whole = "with all its people" if spec.linked else f"up to {account.rows_per_unit} record(s)"
    rows = [
        ("Release", spec.release),
        ("Data set", spec.dataset),
        (
            "Privacy loss",
            f"ε {loss_text(loss)} "
            f"at δ {exact_text(account.delta)}, spent {loss_text(epsilon_of(total, account.delta))}",
        ),
        ("Protects", f"one {account.unit}, {whole}; {account.neighbours}"),
        *([("One person", f"ε {loss_text(person['epsilon'])} at the same δ. {person['says']}")] if spec.linked else []),
        ("Spent by step", ", ".join(f"{step} {float(mu2 / total):.1%}" for step, mu2 in costs.items())),
        (
            "Account so far",
            f"spent ε {loss_text(epsilon_of(balance.charged_mu2, account.delta))}, "
            f"set aside ε {loss_text(epsilon_of(balance.held_mu2, account.delta))}, "
            f"cap {exact_text(account.cap_epsilon)}",
        ),
        ("Method", f"{spec.method}, preset {spec.preset}"),
        (f"Synthetic {'households' if spec.linked else 'records'}", f"{quality.rows:,} in {spec.shards} file(s)"),
        *([("Their people", f"{quality.people:,}")] if spec.linked else []),
        *(
            (f"Mean error, {e.alpha}-way", f"{e.mean:.2%} ± {100 * e.margin:.2f} points (bought)")
            for e in quality.bought
        ),
        ("Rules broken", ", ".join(f"{rule}: {count}" for rule, count in quality.violations.items()) or "none"),
    ]
    cells = [(name, value.replace("|", r"\|")) for name, value in rows]
    return "\n".join(["| Privacy certificate | |", "|---|---|", *(f"| {a} | {b} |" for a, b in cells)])
