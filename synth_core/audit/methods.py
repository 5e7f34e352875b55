"""Audit the installed code: every verb of the curator, every method and its steps, and planted faults on demand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from fractions import Fraction
from functools import partial

from synth_core.audit.adversary import HOT_MU2, Experiment, run_audit
from synth_core.audit.cases import DOMAIN, HOSTILE_LINES, PLANTED_FAULTS, canary_codes, file_worlds, verb_experiments
from synth_core.audit.households import household_cases
from synth_core.audit.verdict import AuditCertificate
from synth_core.ledger.memory import MemoryLedger
from synth_core.models.maximum_entropy import estimate
from synth_core.privacy.accounts import Account, State
from synth_core.privacy.curator import CountSource, Curator, Spending
from synth_core.storage.counting import TableCounts
from synth_core.synthesizers.base import Structure, Synthesizer, Tools, run_phases
from synth_core.synthesizers.methods import METHODS, synthesizer

# The fit's estimation is post-processing and sees only answers, so the audit may cut it short.
TOOLS = Tools(estimate=partial(estimate, max_passes=1))
"""What a method fits with in an audit."""
ACCOUNT = Account(dataset="audit", delta=1e-6, cap_epsilon=50.0)
MARGIN = 1 - Fraction(1, 10**9)
"""Part of its grant that a step alone plans with: prices of choices are rounded, so shares are known to 1e-11 only."""


def audits(
    *,
    methods: Sequence[str],
    runs: int,
    faults: bool,
    files: bool,
    households: bool,
    progress: Callable[[str], None],
    known: Container[str] = (),
) -> Iterator[AuditCertificate]:
    """Attacks the verbs and each method's steps, and more if asked for.

    Args:
        methods: names of the methods, each audited in all its presets.
        runs: conversations for each certificate.
        faults: also plant known faults, each of which must be caught.
        files: also begin with neighbouring files, whose lines are ingested, for the first of the methods.
        households: also begin with linked tables, of which one has a household of eight people more.
        progress: called with the title of each audit before it begins.
        known: titles of audits that are left out, because their certificates are there.

    Yields:
        One certificate for each other audit. A file that is refused is never measured, so it has none.
    """
    without, canary = canary_codes()
    worlds = TableCounts(without, DOMAIN), TableCounts(canary, DOMAIN)
    verbs = verb_experiments()
    experiments = {f"curator: {name}": experiment for name, experiment in verbs.items()}
    for method in methods:
        for preset in METHODS[method].presets:
            built = synthesizer(method, preset)
            for step, experiment in _steps(built, worlds[0]).items():
                experiments[f"{method}/{preset}: {step}"] = experiment
    for title, experiment in experiments.items():
        if title in known:
            continue
        progress(title)
        yield run_audit(title, experiment, worlds=worlds, runs=runs)
    for name, line in HOSTILE_LINES.items() if files else ():
        title = f"{methods[0]}, from files: {name}"
        if title in known:
            continue
        with file_worlds(line) as neighbours:
            if neighbours is not None:
                progress(title)
                whole = _steps(synthesizer(methods[0]), neighbours[0])["all steps"]
                yield run_audit(title, whole, worlds=neighbours, runs=runs)
    if households:
        yield from _household_audits(runs=runs, faults=faults, progress=progress, known=known)
    for fault, curator in PLANTED_FAULTS.items() if faults else ():
        title = f"planted fault: {fault}"
        if title not in known:
            progress(title)
            yield run_audit(title, verbs["measure"], worlds=worlds, runs=runs, curator=curator)


def _household_audits(
    *, runs: int, faults: bool, progress: Callable[[str], None], known: Container[str]
) -> Iterator[AuditCertificate]:
    for case in household_cases(faults=faults):
        if case.title not in known:
            progress(case.title)
            yield run_audit(case.title, case.experiment, worlds=case.worlds, runs=runs, curator=case.curator)


def _steps(method: Synthesizer, table: CountSource) -> dict[str, Experiment]:
    """Each step that spends, alone with mu = 3 of its own, and all of them together with mu = 3."""
    structure, shares = _rehearse(method, table)

    def whole(curator: Curator) -> None:
        plan = method.plan(curator.domain, HOT_MU2)
        run_phases(method, plan, lambda _: curator, TOOLS)

    def hot(step: str) -> Fraction:
        return HOT_MU2 / shares[step] * MARGIN

    def score(curator: Curator) -> None:
        method.score(curator, method.plan(curator.domain, hot("score")))

    def fit(curator: Curator) -> None:
        method.fit(curator, method.plan(curator.domain, hot("fit")), structure, TOOLS)

    alone = {"score": score, "fit": fit}
    return {"all steps": whole, **{step: alone[step] for step in alone if shares.get(step)}}


def _rehearse(method: Synthesizer, table: CountSource) -> tuple[Structure, dict[str, Fraction]]:
    """One conversation at the audit's price: the structure it leads to, and which share each step is charged."""
    ledger = MemoryLedger()
    ledger.declare(ACCOUNT, actor="audit")
    plan = method.plan(table.domain, HOT_MU2)

    def curator(step: str) -> Curator:
        spending = Spending(dataset=ACCOUNT.dataset, snapshot="canary", release="rehearsal", step=step)
        return Curator(counts=table, ledger=ledger, spending=spending)

    structure = run_phases(method, plan, curator, TOOLS).structure
    charged: dict[str, Fraction] = defaultdict(Fraction)
    for record in ledger.records():
        if record.state is State.MEASURED:
            charged[record.step] += record.mu2
    return structure, {step: mu2 / HOT_MU2 for step, mu2 in charged.items()}
