"""Before the first step: check all that can be checked without reading data, and set the budget aside."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from synth_core.domain import Domain
from synth_core.errors import PublishError, SourceError, SpecError
from synth_core.events.journal import record_outcome
from synth_core.files import atomic_write
from synth_core.ledger.book import charged_records
from synth_core.ledger.sql import SqlLedger, open_ledger
from synth_core.linked import check_household_account
from synth_core.models.feasibility import check_rules
from synth_core.privacy.accounts import Account, Ledger, Runner
from synth_core.privacy.budget import mu2_of
from synth_core.privacy.reading import require_refusals_left
from synth_core.release.budget import ReleaseBudget, divide_budget
from synth_core.release.certificate import last_turn
from synth_core.release.paths import ReleasePaths
from synth_core.release.prior import FrozenPrior
from synth_core.release.public_rows import freeze_prior, prior_files, require_public
from synth_core.release.reuse import FrozenReuse, freeze, require_same_codes
from synth_core.release.spec import MAX_FILES, PAIRS_SHARE, REDRAWN, ROUTINE, ReleaseSpec
from synth_core.release.strata import divide_strata, lay_out_strata
from synth_core.schema import DeclaredSchema, Schema
from synth_core.schema.codec import summed_columns
from synth_core.schema.linked import TABLES, AnySchema, LinkedSchema, asked_domain, load_schema, planned_schema
from synth_core.steps.context import PUBLISHED, release_method, this_runner
from synth_core.storage.contribution import check_unit_declared
from synth_core.storage.household_partitions import reading_schemas
from synth_core.storage.locations import source_files
from synth_core.synthesizers.base import has_replicates, require_prior, require_reuse
from synth_core.synthesizers.companions import check_together
from synth_core.synthesizers.moments import require_answerable

NOT_LINKED = ("strata", "protect", "reuse", "prior", "replicates", "bins_share", "moments_share")
"""Keys of a spec that are refused where two linked tables are released."""


def prepare_release(spec: Mapping[str, Any] | Path, *, workspace: Path, runner: Runner | None = None) -> str:
    """Check the spec and hold its budget; returns the address of the prepared release."""
    wanted = ReleaseSpec.load(spec) if isinstance(spec, Path) else ReleaseSpec.parse(dict(spec))
    paths, who = ReleasePaths(workspace.resolve(), wanted.release), runner or this_runner()
    watch = record_outcome(paths.workspace, dataset=wanted.dataset, release=wanted.release, step="prepare", runner=who)
    with watch if paths.workspace.is_dir() else nullcontext():
        return _prepared(wanted, paths, who)


def _prepared(wanted: ReleaseSpec, paths: ReleasePaths, runner: Runner) -> str:
    schema = load_schema(Path(wanted.schema_))
    check_declared(wanted, schema)
    method = release_method(wanted, schema)
    files = {table: source_files(own) for table, own in wanted.sources.items()}
    paths.check_writable()
    ledger = open_ledger(paths.workspace, dataset=wanted.dataset)
    ledger.require_whole()
    account = ledger.balance(wanted.dataset).account
    check_account(wanted, account, schema)
    if isinstance(schema, DeclaredSchema):
        check_unit_declared(schema, account)
        check_moments(wanted, schema, rows_per_unit=account.rows_per_unit)
    check_replicates(wanted, planned_schema(schema))
    if wanted.strata:
        check_strata(wanted, planned_schema(schema), account)
    else:
        method.plan(asked_domain(schema), planned_budget(wanted, schema, account).method)
    _refuse_unsigned(wanted, paths, ledger)
    paths.adopt_unsigned()
    differing = _differing_settings(wanted, schema, paths)

    def begun_with(file: Path) -> bool:
        return not differing and file.is_file()  # what a begun release builds on stays as it was

    known = wanted.reuse and begun_with(paths.reuse)
    reused = FrozenReuse.load(paths.reuse) if known else check_reuse(wanted, schema, ledger, paths)
    prior = (
        FrozenPrior.load(paths.prior)
        if wanted.prior and begun_with(paths.prior)
        else check_prior(wanted, schema, paths)
    )
    if differing:
        _begin_again(wanted, paths, ledger, differing=differing, runner=runner)
    if not paths.snapshot.exists():
        require_refusals_left(ledger.balance(wanted.dataset))
        _check_headers(files, schema)
    if not paths.published:  # a published release has all its answers, and needs nothing set aside
        ledger.hold(wanted.dataset, wanted.release, mu2=mu2_of(wanted.epsilon, wanted.delta), runner=runner)
    try:
        _write_settings(wanted, schema, paths, reused, prior)
    except BaseException:
        reason = "it could not be prepared"
        ledger.close(wanted.dataset, wanted.release, reason=reason, runner=runner, only_unmeasured=True)
        raise
    return str(paths.spec)


def _check_headers(files: Mapping[str, Sequence[str]], schema: AnySchema) -> None:
    """Refuse files of an unknown kind, without a declared column, or of types that cannot be read, before anything is
    set aside. Headers and types are looked at, and no record.
    """
    from synth_core.storage.sources import pieces  # Arrow takes a second to import, and a preview reads no file

    reading = reading_schemas(schema, files) if isinstance(schema, LinkedSchema) else {"": schema.planned}
    for table, addresses in files.items():
        for address in addresses:
            pieces(address, reading[table])


def _write_settings(
    wanted: ReleaseSpec,
    schema: AnySchema,
    paths: ReleasePaths,
    reused: FrozenReuse,
    prior: FrozenPrior | None,
) -> None:
    """Make the zones and keep what is to be run in them."""
    paths.create()
    if not paths.spec.exists() and not paths.published:  # a begun release's schema may hold bins that it has bought
        with atomic_write(paths.schema) as temporary:
            schema.save(temporary)
        if wanted.reuse:
            reused.save(paths.reuse)
        if prior is not None:
            prior.save(paths.prior)
    with atomic_write(paths.spec) as temporary:
        wanted.save(temporary)


def planned_budget(spec: ReleaseSpec, schema: AnySchema, account: Account | None) -> ReleaseBudget:
    """How the budget is divided, before anything is bought; without an account, as if a unit had one row."""
    rows = account.rows_per_unit if account else 1
    has_pairs = isinstance(schema, LinkedSchema) and schema.has_pairs
    return divide_budget(spec, rows_per_unit=rows, has_pairs=has_pairs)


def check_declared(spec: ReleaseSpec, schema: AnySchema) -> None:
    """Refuse a schema that the spec does not fit, or whose rules hardly any record can keep."""
    if isinstance(schema, DeclaredSchema):
        if spec.linked:
            raise SpecError("source names two linked tables and the schema declares one; declare `tables`, or name one")
        if spec.pairs_share != PAIRS_SHARE:
            raise SpecError("pairs_share is about two linked tables, and the schema declares one; leave it out")
        check_rules(schema.on_grid)
        check_bins(spec, schema)
        return
    if not spec.linked:
        raise SpecError("the schema declares two linked tables; write source: {household: …, person: …}")
    for key in NOT_LINKED:
        if getattr(spec, key) != ReleaseSpec.model_fields[key].default:
            raise SpecError(f"{key} is not offered for two linked tables; leave it out")
    reading_schemas(schema, spec.sources)
    for table in TABLES:
        check_rules(schema.table(table))
    check_together(schema)


def check_account(spec: ReleaseSpec, account: Account, schema: AnySchema) -> None:
    """A data set has one delta and one unit for its whole life; that of linked tables is the household."""
    if isinstance(schema, LinkedSchema):
        check_household_account(account)
    if spec.delta != account.delta:
        raise SpecError(
            f"delta {spec.delta!r} is not the delta of dataset {spec.dataset!r}, {account.delta!r}; "
            "a data set keeps one delta for its whole life: change the spec"
        )
    if spec.unit != account.unit:
        raise SpecError(f"unit {spec.unit!r} is not the unit of dataset {spec.dataset!r}, {account.unit!r}")


def check_bins(spec: ReleaseSpec, schema: DeclaredSchema) -> None:
    """Refuse a share that buys nothing, and bins that have no share or come with bought edges."""
    if schema != schema.declaration:
        raise SpecError(
            "the schema has bins that another release has bought; write these edges as bins: [...] to use them again, "
            "or remove `bought` to buy anew"
        )
    private = schema.private_bin_columns
    if private and not spec.bins_share:
        raise SpecError(f"column {private[0]!r} has bins that are to be bought; say with bins_share what they may cost")
    if spec.bins_share and not private:
        raise SpecError("bins_share buys nothing: no column declares private_quantiles; leave it out")


def check_moments(spec: ReleaseSpec, schema: DeclaredSchema, *, rows_per_unit: int = 1) -> None:
    """Refuse a share that buys no sums, columns whose sums have no share, and a share that is too small for them."""
    columns = summed_columns(schema.planned)
    if columns and not spec.moments_share:
        raise SpecError(
            f"column {columns[0].name!r} declares moments: true; say with moments_share what its sums may cost"
        )
    if spec.moments_share and not columns:
        raise SpecError("moments_share buys nothing: no column of bins wider than one number declares moments: true")
    if columns:
        require_answerable(columns, divide_budget(spec, rows_per_unit=rows_per_unit).moments)


def check_reuse(spec: ReleaseSpec, schema: AnySchema, ledger: Ledger, paths: ReleasePaths) -> FrozenReuse:
    """The answers that the release builds on; refused where they are not about the same columns.

    Whether they are about the same rows is declared by naming the releases, and looked up nowhere.
    """
    if not spec.reuse or isinstance(schema, LinkedSchema):
        return FrozenReuse()
    if spec.strata:
        raise SpecError(
            "reuse: a release in strata asks about strata, of which nothing is known; leave one of them out"
        )
    if schema.private_bin_columns:
        raise SpecError(
            f"reuse: the bins of column {schema.private_bin_columns[0]!r} are to be bought, so its codes are not those "
            "of before; write the edges that the earlier release has bought as bins: [...]"
        )
    require_reuse(release_method(spec))
    frozen = freeze(ledger, spec, schema.planned.domain)
    homes = {name: ReleasePaths(paths.workspace, name).schema for name in spec.reuse}
    for name, home in homes.items():
        if not home.is_file():
            raise SpecError(f"reuse: the schema of release {name!r} is not in this workspace; leave the release out")
    require_same_codes(schema.planned, {name: DeclaredSchema.load(home) for name, home in homes.items()})
    return frozen


def check_prior(spec: ReleaseSpec, schema: AnySchema, paths: ReleasePaths) -> FrozenPrior | None:
    """The public table that the release builds on; refused where it is confidential by where it lies."""
    if spec.prior is None or isinstance(schema, LinkedSchema):
        return None
    beside = [name for name in ("strata", "protect", "reuse") if getattr(spec, name)]
    if beside:
        raise SpecError(f"prior: it is not offered together with {beside[0]}; leave one of them out")
    if schema.private_bin_columns:
        raise SpecError(
            f"prior: the bins of column {schema.private_bin_columns[0]!r} are to be bought, so its codes are not known "
            "yet; write edges as bins: [...]"
        )
    require_prior(release_method(spec))
    files = prior_files(spec.prior.source)
    others = [ReleaseSpec.load(path) for path in sorted(paths.confidential.parent.glob(f"*/{paths.spec.name}"))]
    sources = [file for one in (spec, *others) for own in one.sources.values() for file in _files_left(own)]
    require_public(files, sources=sources, zones=[paths.confidential.parent])
    return freeze_prior(spec.prior, files, schema.planned)


def _files_left(source: str | Sequence[str]) -> list[str]:
    """The files of a source that are still there."""
    try:
        return source_files(source)
    except SourceError:
        return [source] if isinstance(source, str) else list(source)


def check_replicates(spec: ReleaseSpec, schema: Schema) -> None:
    """Refuse replicate tables for which there will be no replicates of the model, and more files than can be listed,
    before anything is spent.
    """
    if spec.table_files > MAX_FILES:
        raise SpecError(
            f"shards, replicates: {spec.table_files:,} files in all tables together, at most {MAX_FILES:,}; "
            "lower shards or replicates"
        )
    if spec.replicates and not may_refit(spec, schema):
        raise SpecError(
            f"replicates: a model of method {spec.method!r} has none with these settings; choose another method, or "
            "leave it out"
        )
    if spec.replicates > spec.uncertainty:
        raise SpecError(
            f"replicates: {spec.replicates} tables need as many replicates of the model, and uncertainty makes "
            f"{spec.uncertainty}; raise uncertainty or lower replicates"
        )


def may_refit(spec: ReleaseSpec, schema: Schema) -> bool:
    """Returns whether the release's model will have replicates, as far as spec and schema say."""
    method = release_method(spec)
    return all(has_replicates(method, domain) for domain in model_domains(spec, schema))


def model_domains(spec: ReleaseSpec, schema: Schema) -> list[Domain]:
    """Returns the attributes of every model that may be made, however the rows of strata will turn out."""
    if spec.strata is None:
        return [schema.domain]
    layout = lay_out_strata(spec.strata, schema)
    extremes = [divide_strata(layout, [math.inf] * len(layout.names), pool_below=None)]
    if spec.strata.pool_below is not None:
        extremes.append(divide_strata(layout, [0.0] * len(layout.names), pool_below=1))
    return list(dict.fromkeys(d.domain(schema.domain, part) for d in extremes for part in d.parts))


def check_strata(spec: ReleaseSpec, schema: Schema, account: Account) -> None:
    """Refuse strata that do not fit schema, account or method, however the rows of strata will turn out."""
    if account.rows_per_unit > 1:
        raise SpecError(
            f"strata: one {account.unit} of dataset {account.dataset!r} may have records in several strata; "
            "only an account with one row per unit can be stratified"
        )
    method = release_method(spec)
    for domain in model_domains(spec, schema):
        method.plan(domain, divide_budget(spec, rows_per_unit=account.rows_per_unit).method)


def _refuse_unsigned(spec: ReleaseSpec, paths: ReleasePaths, ledger: SqlLedger) -> None:
    """Refuse to publish once more what was published and has lost its manifest or signature."""
    turn = last_turn(ledger.records(dataset=spec.dataset, release=spec.release))
    if turn and turn.reason == PUBLISHED and paths.public.exists() and not paths.published:
        raise PublishError(
            f"release {spec.release!r} was published, and its manifest or signature is gone; restore {paths.public} "
            "from a copy"
        )


def _differing_settings(spec: ReleaseSpec, schema: AnySchema, paths: ReleasePaths) -> list[str]:
    """Keys of the spec that differ from those with which a release of this name was begun."""
    if not paths.spec.exists():
        if paths.published:
            raise SpecError(f"release {spec.release!r} was published before; use another release name")
        return []
    before, schema_before = ReleaseSpec.load(paths.spec).dump(), load_schema(paths.schema)
    passed_over = ("schema", *ROUTINE, *(() if paths.published else REDRAWN))
    differing = [key for key, value in spec.dump().items() if before.get(key) != value and key not in passed_over]
    if schema_before.declaration.digest() != schema.digest():
        differing.append("schema")
    return differing


def _begin_again(
    spec: ReleaseSpec, paths: ReleasePaths, ledger: SqlLedger, *, differing: Sequence[str], runner: Runner
) -> None:
    """Free the name of a release that has asked nothing yet, with all its files; refuse if it has asked anything.

    Its hold ends first, so that a step of it that is still at work can spend no more.
    """
    before = ReleaseSpec.load(paths.spec).dataset  # which may be another than is asked for now
    asked = charged_records(ledger.records(dataset=before, release=spec.release))
    if paths.published or asked:
        steps = ", ".join(dict.fromkeys(record.step for record in asked)) or "all steps"
        raise SpecError(
            f"release {spec.release!r} was begun with other settings ({', '.join(differing)}) and has asked questions "
            f"in {steps}; use another release name, or restore the settings to resume it "
            f"(`synth cancel {spec.release}` frees what it has set aside)"
        )
    ledger.close(before, spec.release, reason="begun again with other settings", runner=runner, only_unmeasured=True)
    for folder in (paths.confidential, paths.draft):
        shutil.rmtree(folder, ignore_errors=True)
