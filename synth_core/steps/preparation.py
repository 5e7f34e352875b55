"""Before the first step: check everything that can be checked without reading data, and set the budget aside."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from synth_core.domain import Domain
from synth_core.errors import LedgerError, PublishError, SpecError
from synth_core.events.journal import watched
from synth_core.files import atomic_write
from synth_core.ledger.database import database_file, parse_url
from synth_core.ledger.sql import SqlLedger, ledger_url, open_ledger
from synth_core.models.feasibility import check_rules
from synth_core.privacy.accounts import Account, Runner
from synth_core.privacy.budget import mu2_of
from synth_core.privacy.reading import require_refusals_left
from synth_core.release.budget import divide_budget
from synth_core.release.division import divided, laid_out
from synth_core.release.paths import ReleasePaths
from synth_core.release.spec import ROUTINE, ReleaseSpec
from synth_core.schema import Schema
from synth_core.steps.context import PUBLISHED, last_turn, this_runner
from synth_core.storage.contribution import check_unit_declared
from synth_core.storage.locations import source_files
from synth_core.synthesizers.methods import synthesizer


def prepare_release(spec: Mapping[str, Any] | Path, *, workspace: Path, runner: Runner | None = None) -> str:
    """Check the spec and hold its budget; returns the address of the prepared release."""
    wanted = ReleaseSpec.load(spec) if isinstance(spec, Path) else ReleaseSpec.parse(dict(spec))
    paths, who = ReleasePaths(workspace.resolve(), wanted.release), runner or this_runner()
    watch = watched(
        paths.workspace, dataset=wanted.dataset, release=wanted.release, step="prepare", runner=who
    )
    with watch if paths.workspace.is_dir() else nullcontext():
        return _prepared(wanted, paths, who)


def _prepared(wanted: ReleaseSpec, paths: ReleasePaths, runner: Runner) -> str:
    schema = Schema.load(Path(wanted.schema_))
    check_rules(schema)
    method = synthesizer(wanted.method, wanted.preset, wanted.options)
    source_files(wanted.source)
    paths.check_writable()
    ledger = existing_ledger(paths.workspace, wanted.dataset)
    ledger.require_whole()
    account = ledger.balance(wanted.dataset).account
    check_account(wanted, account)
    check_unit_declared(schema, account)
    check_bins(wanted, schema)
    if wanted.strata:
        check_strata(wanted, schema.expected, account)
    else:
        method.plan(schema.expected.domain, divide_budget(wanted, rows_per_unit=account.rows_per_unit).method)
    _refuse_unsigned(wanted, paths, ledger)
    paths.adopt_unsigned()
    _refuse_another(wanted, schema, paths)
    if not paths.snapshot.exists():
        require_refusals_left(ledger.balance(wanted.dataset))
    if not paths.published:  # a published release has all its answers, and needs nothing set aside
        ledger.hold(wanted.dataset, wanted.release, mu2=mu2_of(wanted.epsilon, wanted.delta), runner=runner)
    try:
        _write_settings(wanted, schema, paths)
    except BaseException:
        reason = "it could not be prepared"
        ledger.close(wanted.dataset, wanted.release, reason=reason, runner=runner, only_unmeasured=True)
        raise
    return str(paths.spec)


def _write_settings(wanted: ReleaseSpec, schema: Schema, paths: ReleasePaths) -> None:
    """Make the zones and keep what is to be run in them."""
    paths.create()
    if (
        not paths.spec.exists() and not paths.published
    ):  # the schema of a release that goes on may have bins that it has bought
        with atomic_write(paths.schema) as temporary:
            schema.save(temporary)
    with atomic_write(paths.spec) as temporary:
        wanted.save(temporary)


def existing_ledger(workspace: Path, dataset: str) -> SqlLedger:
    """The workspace's ledger; looking for an account must not create one."""
    url = ledger_url(workspace, None)
    file = database_file(parse_url(url))
    if file is not None and not file.exists():
        raise LedgerError(
            f"there is no ledger in {workspace}; declare the account first: synth ledger account {dataset} "
            f"--epsilon CAP --delta DELTA --largest-n N --workspace {workspace}"
        )
    return open_ledger(workspace)


def check_account(spec: ReleaseSpec, account: Account) -> None:
    """A data set has one delta and one unit for its whole life."""
    if spec.delta != account.delta:
        raise SpecError(
            f"delta {spec.delta!r} is not the delta of dataset {spec.dataset!r}, {account.delta!r}; "
            "a data set keeps one delta for its whole life: change the spec"
        )
    if spec.unit != account.unit:
        raise SpecError(f"unit {spec.unit!r} is not the unit of dataset {spec.dataset!r}, {account.unit!r}")


def check_bins(spec: ReleaseSpec, schema: Schema) -> None:
    """Refuse a share that buys nothing, and bins that have no share or come with bought edges."""
    if schema != schema.on_grid:
        raise SpecError(
            "the schema has bins that another release has bought; write these edges as bins: [...] to use them again, "
            "or remove `bought` to buy anew"
        )
    if schema.buying and not spec.bins_share:
        raise SpecError(
            f"column {schema.buying[0]!r} has bins that are to be bought; say with bins_share what they may cost"
        )
    if spec.bins_share and not schema.buying:
        raise SpecError("bins_share buys nothing: no column declares private_quantiles; leave it out")


def check_strata(spec: ReleaseSpec, schema: Schema, account: Account) -> list[Domain]:
    """Refuse strata that do not fit schema, account or method; the domains that a part may have, most strata apart."""
    assert spec.strata is not None  # noqa: S101 - whoever calls this has looked
    if account.rows_per_unit > 1:
        raise SpecError(
            f"strata: one {account.unit} of dataset {account.dataset!r} may have records in several strata; "
            "only an account with one row per unit can be stratified"
        )
    layout = laid_out(spec.strata, schema)
    extremes = [divided(layout, [math.inf] * len(layout.names), pool_below=None)]
    if spec.strata.pool_below is not None:
        extremes.append(divided(layout, [0.0] * len(layout.names), pool_below=1))
    domains = dict.fromkeys(d.domain(schema.domain, part) for d in extremes for part in d.parts)
    method = synthesizer(spec.method, spec.preset, spec.options)
    for domain in domains:
        method.plan(domain, divide_budget(spec, rows_per_unit=account.rows_per_unit).method)
    return list(domains)


def _refuse_unsigned(spec: ReleaseSpec, paths: ReleasePaths, ledger: SqlLedger) -> None:
    """Refuse to publish once more what was published and has lost its manifest or signature."""
    turn = last_turn(ledger.records(dataset=spec.dataset, release=spec.release))
    if turn and turn.reason == PUBLISHED and paths.public.exists() and not paths.published:
        raise PublishError(
            f"release {spec.release!r} was published, and its manifest or signature is gone; restore {paths.public} "
            "from a copy"
        )


def _refuse_another(spec: ReleaseSpec, schema: Schema, paths: ReleasePaths) -> None:
    if not paths.spec.exists():
        if paths.published:
            raise SpecError(f"release {spec.release!r} was published before; use another release name")
        return
    before, schema_before = ReleaseSpec.load(paths.spec), Schema.load(paths.schema)
    passed_over = ("schema", *ROUTINE)
    differing = [
        key for key, value in spec.dump().items() if before.dump()[key] != value and key not in passed_over
    ]
    if schema_before.on_grid.digest() != schema.digest():
        differing.append("schema")
    if differing:
        raise SpecError(
            f"release {spec.release!r} was begun with other settings ({', '.join(differing)}); "
            "use another release name, or restore the settings to resume it"
        )
