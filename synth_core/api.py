"""The Python contract: one call from a confidential frame to a synthetic one, with its spend records."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

import numpy as np

from synth_core.arrays import one_thread
from synth_core.errors import SpecError, needing
from synth_core.ledger.memory import MemoryLedger
from synth_core.ledger.verbs import LedgerVerbs
from synth_core.linked import (
    UNIT,
    LinkedRelease,
    check_household_account,
    check_tables,
    converse,
    count_households,
    write_tables,
)
from synth_core.measurement import EarlierRelease
from synth_core.models.feasibility import check_rules
from synth_core.privacy.accounts import Account, Runner, State
from synth_core.privacy.budget import check_delta, mu2_of
from synth_core.privacy.curator import Curator, Spending
from synth_core.privacy.reading import count_refusals
from synth_core.progress import Advance, live_progress
from synth_core.release.budget import divide_budget
from synth_core.release.prior import FrozenPrior, say_prior
from synth_core.release.reuse import FrozenReuse, freeze, read_frozen, say_reuse
from synth_core.release.spec import ReleaseSpec
from synth_core.result import Release
from synth_core.schema import Schema
from synth_core.schema.codec import check_frame, check_schema, decode, encode_numbers, summed_columns
from synth_core.schema.linked import LinkedSchema
from synth_core.storage.contribution import bound_for, bounded_frame
from synth_core.storage.counting import TableCounts
from synth_core.storage.households import TupleCounts
from synth_core.synthesizers.base import Conversation, Progress, Tools, require_prior, require_reuse, run_phases
from synth_core.synthesizers.companions import check_together
from synth_core.synthesizers.households_first import households_first
from synth_core.synthesizers.methods import synthesizer
from synth_core.synthesizers.moments import Moments, ask_moments, count_errors, require_answerable, summed_domain
from synth_core.synthesizers.pooled_numbers import pool_numbers
from synth_core.synthesizers.replicates import LastFit, Redrawing

if TYPE_CHECKING:
    import pandas as pd

    from synth_core.release.public_rows import PublicRows

IN_MEMORY = "in-memory"
"""Name of account and release where no ledger is given."""

NOWHERE = "accounted for nowhere"
"""What the unit of an account says that is gone after the call."""

SHARES = {"score": 0.1, "select": 0.3, "fit": 0.35, "sample": 0.9}
"""How much of a call is done when a part begins, as its progress bar shows it: a guess."""

RUNNER = Runner(actor="api")
"""Who runs a release that is made by a call."""


class _Common(TypedDict, total=False):
    """Arguments of `synthesize` that one table and two linked ones have in common, beside the budget."""

    method: str
    preset: str
    rows: int | None
    cap: float | None
    options: dict[str, Any] | None
    seed: int
    progress: Progress | None
    ledger: str | Path | None
    dataset: str | None
    release: str | None
    largest_n: int | None
    delta_reason: str


@overload
def synthesize(
    frame: pd.DataFrame,
    schema: Schema,
    *,
    epsilon: float,
    delta: float,
    moments_share: float = ...,
    rows_per_unit: int | None = ...,
    protect: Sequence[Sequence[str]] = ...,
    protect_share: float = ...,
    reuse: Sequence[str] = ...,
    prior: pd.DataFrame | str | Path | None = ...,
    public_because: str = ...,
    **common: Unpack[_Common],
) -> Release: ...


@overload
def synthesize(
    frame: Mapping[str, pd.DataFrame],
    schema: LinkedSchema,
    *,
    epsilon: float,
    delta: float,
    pairs_share: float = ...,
    **common: Unpack[_Common],
) -> LinkedRelease: ...


@one_thread
def synthesize(
    frame: pd.DataFrame | Mapping[str, pd.DataFrame],
    schema: Schema | LinkedSchema,
    *,
    epsilon: float,
    delta: float,
    method: str = "privmrf",
    preset: str = "default",
    rows: int | None = None,
    moments_share: float = 0.0,
    cap: float | None = None,
    options: dict[str, Any] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    ledger: str | Path | None = None,
    dataset: str | None = None,
    release: str | None = None,
    rows_per_unit: int | None = None,
    largest_n: int | None = None,
    delta_reason: str = "",
    protect: Sequence[Sequence[str]] = (),
    protect_share: float = 0.1,
    reuse: Sequence[str] = (),
    prior: pd.DataFrame | str | Path | None = None,
    public_because: str = "",
    pairs_share: float | None = None,
) -> Release | LinkedRelease:
    """Synthesize a frame in memory, or two linked ones, at (epsilon, delta).

    With a `ledger`, the price is charged to the account of `dataset` there, like that of a release made by
    `synth run`. Without one the result says "unit: record, accounted for nowhere": nothing is kept, and several calls
    on the same rows cost more together than each of them says.

    If the schema names a `unit_column`, at most as many rows of one unit are used as the account allows, and the price
    is that of protecting all of them, as in a release; otherwise each record is a unit.

    Two linked tables, of households and of the people in them, are given as `{"household": …, "person": …}` with a
    `LinkedSchema`. Their unit is the household, whatever its size, and what comes back are two tables.

        >>> import pandas as pd
        >>> from synth_core import Schema, synthesize
        >>> people = pd.DataFrame({"sex": ["f", "m"] * 300, "age": range(600)})
        >>> people["age"] %= 90
        >>> schema = Schema.from_frame_template(people, values={"sex": ["f", "m"]}, bounds={"age": (0, 89)}, bins=9)
        >>> release = synthesize(people, schema, epsilon=1.0, delta=1e-6, rows=500)
        >>> release.table.shape
        (500, 2)
        >>> release.cost.epsilon, release.cost.unit
        (1.0, 'record, accounted for nowhere')

    Args:
        frame: the confidential rows, one record each, or two tables of them by name; columns that the schema does not
            name are not read.
        schema: the public declaration of the columns.
        epsilon: what the table may cost.
        delta: the other half of the guarantee; with a ledger, the account's.
        method: see `synth methods`.
        preset: see `synth methods`.
        rows: number of synthetic rows, of linked tables that of households; a public number. None takes the noisy
            number.
        moments_share: share of the budget that buys the sums inside bins of columns with `moments: true`.
        cap: epsilon that an account in memory allows in all; less than `epsilon` is refused before data is read.
        options: constants of the preset to replace.
        seed: seed of the row sampler, which is post-processing; the privacy noise has none.
        progress: called with one line for each thing worth reporting; left out, a bar is shown in a notebook and on a
            terminal.
        ledger: a ledger's file, the workspace it lies in, or its URL; the account must be declared there.
        dataset: name of the account that pays; needed with a ledger.
        release: name of the release in the ledger, one that was charged nothing yet; None makes one up.
        rows_per_unit: most rows of one unit that are used, 1 if left out; with a ledger, the account says it.
        largest_n: a public upper bound of the number of records, not computed from them; with it a delta above
            1 / (10 * largest_n) is refused. With a ledger, the account says it.
        delta_reason: why a larger delta than that is accepted.
        protect: columns, pairs or triples of them that are measured whatever the method would choose, because relations
            between rare values are lost otherwise, and so are means that hang on few records.
        protect_share: share of the budget that measures these tables, all of them together.
        reuse: earlier releases of the account, made from the same rows with the same schema; their noisy answers are
            used again, which costs nothing. Both are declared by naming them: nothing looks at the rows. A release
            whose answers disagree with the new ones is set aside.
        prior: a public table with some or all of the columns, such as an earlier extract: a frame, a CSV or Parquet
            file, or the folder of a published release. What it says is taken over as far as noisy answers bear it out.
            Its rows must not be confidential: the promise does not cover them.
        public_because: who says that it is public, and why; needed with `prior`.
        pairs_share: of linked tables, the share of the budget that measures who lives with whom, 0.1 if left out; with
            0, the people of a household are independent given the household.

    Returns:
        The synthetic table, or tables, what it cost, and the model; a notebook shows it as a summary.

    Raises:
        SpecError: if the arguments do not fit each other, the account or the method.
        SchemaError: if the schema cannot be used for a frame in memory.
        SourceError: if the frame does not fit the schema; names the column, never a value.
        LedgerError: if there is no such ledger or account, (BudgetRefused) no room for the price, or
            (RefusalsExhausted) as many refusals have depended on the account's records as may.
    """
    linked = isinstance(schema, LinkedSchema)
    spec = ReleaseSpec.parse(
        {
            "release": release or (IN_MEMORY if ledger is None else f"frame-{secrets.token_hex(6)}"),
            "dataset": dataset or IN_MEMORY,
            "source": {"person": "a frame in memory"} if linked else "a frame in memory",
            "schema": "in memory",
            "method": method,
            "preset": preset,
            "options": options or {},
            "epsilon": epsilon,
            "delta": delta,
            "moments_share": moments_share,
            "rows": "noisy" if rows is None else rows,
            "protect": protect,
            "protect_share": protect_share,
            "reuse": reuse,
            "prior": None if prior is None else {"source": _named(prior), "public_because": public_because},
            **({} if pairs_share is None else {"pairs_share": pairs_share}),
        },
        where="synthesize",
    )
    if isinstance(schema, LinkedSchema):
        _refuse_unlinked(
            moments_share=moments_share, rows_per_unit=rows_per_unit, protect=protect, reuse=reuse, prior=spec.prior
        )
        if not isinstance(frame, Mapping):
            raise SpecError('two linked tables are given as {"household": …, "person": …}, and no others')
        check_tables(frame)
        if ledger is None and largest_n is not None:
            check_delta(delta, largest_n, delta_reason)
        doors = {"cap": cap, "ledger": ledger, "largest_n": largest_n}
        return _synthesize_linked(frame, schema, spec, doors, rows=rows, seed=seed, progress=progress)
    if isinstance(frame, Mapping) or pairs_share is not None:
        raise SpecError("several tables and pairs_share= go with a LinkedSchema; declare one")
    check_schema(schema)
    schema = schema.resolve()  # refuses bins that are to be bought: a frame in memory has no share for them
    check_rules(schema)
    if ledger is None:
        if largest_n is not None:
            check_delta(delta, largest_n, delta_reason)
        unit = schema.unit_column or "record"
        book, account = _ledger_in_memory(spec, unit, cap=cap, rows_per_unit=rows_per_unit)
    else:
        _refuse_given(cap=cap, rows_per_unit=rows_per_unit, largest_n=largest_n)
        book, account = _existing_account(ledger, spec)
    frozen = _reused(book, spec, schema)
    known, public = _public_rows(prior, spec, frame, schema, ledger)
    if bool(summed := summed_columns(schema)) != bool(moments_share):
        raise SpecError("moments_share= buys the sums of columns with moments: true; give both, or neither")
    if summed:
        require_answerable(summed, divide_budget(spec, rows_per_unit=account.rows_per_unit).moments)
    with live_progress("Synthesizing", wanted=progress is None) as advance:
        earlier = read_frozen(book, spec.dataset, frozen, schema.domain)
        talk, moments, redrawing = _conversation(
            frame, schema, spec, book, account, earlier=earlier, public=public, advance=advance, progress=progress
        )
        model = talk.model
        advance("drawing rows", SHARES["sample"])
        rng = np.random.default_rng(seed)
        codes = model.sample(rows or max(1, round(model.total)), rng)
        numbers = pool_numbers(schema, model.marginal, moments)
        table = decode(numbers.exchange_rows(codes, schema.domain, rng), schema, rng, numbers.densities)
    records = book.records(dataset=spec.dataset, release=spec.release)
    reused = tuple(say_reuse(frozen, talk.scores.set_aside))
    again = replace(redrawing, seed=seed) if redrawing else None
    said = say_prior(known, used=talk.scores.reference is not None)
    return Release(table, records, model, account.unit, schema, (epsilon, delta), reused, moments, again, said)


def _synthesize_linked(
    frames: Mapping[str, pd.DataFrame],
    schema: LinkedSchema,
    spec: ReleaseSpec,
    doors: Mapping[str, Any],
    *,
    rows: int | None,
    seed: int,
    progress: Progress | None,
) -> LinkedRelease:
    """The same for two linked tables: the price is set aside, both are encoded, then the method asks."""
    for table in (schema.household, schema.person):
        check_rules(table)
    check_together(schema)
    if doors["ledger"] is None:
        book, account = _ledger_in_memory(spec, UNIT, cap=doors["cap"], rows_per_unit=None)
    else:
        _refuse_given(cap=doors["cap"], largest_n=doors["largest_n"])
        book, account = _existing_account(doors["ledger"], spec)
        check_household_account(account)
    price = mu2_of(spec.epsilon, spec.delta)
    budget = divide_budget(spec, has_pairs=schema.has_pairs)
    built = households_first(synthesizer(spec.method, spec.preset, spec.options), schema)
    plan = built.plan(schema.domain(1), budget.method)
    snapshot = f"frame {secrets.token_hex(16)}"
    with live_progress("Synthesizing", wanted=progress is None) as advance:
        with _held(book, spec, price):
            counts = count_refusals(
                lambda: count_households(frames, schema),
                ledger=book,
                dataset=spec.dataset,
                release=spec.release,
                step="ingest",
                runner=RUNNER,
            )

            def curator(step: str, counted: TupleCounts) -> Curator:
                advance(step, SHARES[step])
                spending = Spending(
                    dataset=spec.dataset, snapshot=snapshot, release=spec.release, step=step, runner=RUNNER
                )
                return Curator(counts=counted, ledger=book, spending=spending)

            said = progress or (lambda what: advance(what, SHARES["fit"]))
            model = converse(built, plan, budget.pairs, schema, counts, curator, progress=said)
        advance("drawing households", SHARES["sample"])
        tables = write_tables(model, rows or max(1, round(model.total)), np.random.default_rng(seed))
    records = book.records(dataset=spec.dataset, release=spec.release)
    return LinkedRelease(tables, records, model, account.unit, schema, (spec.epsilon, spec.delta))


def _refuse_unlinked(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value:
            raise SpecError(f"{name}= is not offered for linked tables; leave it out")


def _ledger_in_memory(
    spec: ReleaseSpec,
    unit: str,
    *,
    cap: float | None,
    rows_per_unit: int | None,
) -> tuple[LedgerVerbs, Account]:
    """An account that lasts as long as the call."""
    if spec.dataset != IN_MEMORY or spec.release != IN_MEMORY:
        raise SpecError("dataset= and release= are names in a ledger; say with ledger= where it is")
    account = Account(
        dataset=spec.dataset,
        unit=f"{unit}, {NOWHERE}",
        delta=spec.delta,
        cap_epsilon=spec.epsilon if cap is None else cap,
        rows_per_unit=1 if rows_per_unit is None else rows_per_unit,
    )
    book = MemoryLedger()
    book.declare(account, actor=RUNNER.actor)
    return book, account


def _refuse_given(**arguments: float | None) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise SpecError(f"{name}= is the account's to say where a ledger is given; leave it out")


def _existing_account(ledger: str | Path, spec: ReleaseSpec) -> tuple[LedgerVerbs, Account]:
    """The account that the spec names in a ledger that is kept; looking for it creates nothing."""
    if spec.dataset == IN_MEMORY:
        raise SpecError("ledger= needs dataset=, the name of the account that pays")
    with needing("ledger"):
        from synth_core.ledger.sql import open_ledger
    url = str(ledger)
    if "://" not in url:
        path = Path(ledger).resolve()
        url = f"sqlite:///{path / 'ledger.sqlite' if path.is_dir() else path}"
    book = open_ledger(None, url)
    account = book.balance(spec.dataset).account
    if spec.delta != account.delta:
        raise SpecError(
            f"delta {spec.delta!r} is not the delta of dataset {spec.dataset!r}, {account.delta!r}; "
            "a data set keeps one delta for its whole life: use that one"
        )
    known = book.records(dataset=spec.dataset, release=spec.release)
    if any(record.state is State.RESERVED for record in known):  # one that was refused has asked nothing
        raise SpecError(f"release {spec.release!r} is in the ledger already; use another name")
    return book, account


def _reused(book: LedgerVerbs, spec: ReleaseSpec, schema: Schema) -> FrozenReuse:
    """The answers of earlier releases that the call names, which only a ledger has that is kept."""
    if spec.reuse and spec.dataset == IN_MEMORY:
        raise SpecError("reuse= names releases in a ledger; say with ledger= where it is")
    return freeze(book, spec, schema.domain)


def _named(prior: pd.DataFrame | str | Path) -> str:
    return str(prior) if isinstance(prior, str | Path) else "a frame in memory"


def _public_rows(
    prior: pd.DataFrame | str | Path | None,
    spec: ReleaseSpec,
    frame: pd.DataFrame,
    schema: Schema,
    ledger: str | Path | None,
) -> tuple[FrozenPrior | None, PublicRows | None]:
    """What a public table says, and what is said of it; without any, nothing."""
    if prior is None or spec.prior is None:
        return None, None
    from synth_core.release.public_rows import freeze_frame, freeze_prior, prior_files, read_prior, require_public

    if spec.protect or spec.reuse:
        raise SpecError("prior= is not offered together with protect= and reuse=; leave one of them out")
    if prior is frame:
        raise SpecError("prior= is the confidential frame itself; give a public table")
    if not isinstance(prior, str | Path):
        check_frame(prior, source="the prior")
        return freeze_frame(prior, schema, public_because=spec.prior.public_because)
    files = prior_files(str(prior))
    zones = [] if ledger is None or "://" in str(ledger) else [_home_of(ledger) / "confidential"]
    require_public(files, sources=(), zones=zones)
    known = freeze_prior(spec.prior, files, schema)
    return known, read_prior(spec.prior, known, schema)


def _home_of(ledger: str | Path) -> Path:
    path = Path(ledger).resolve()
    return path if path.is_dir() else path.parent


def _conversation(
    frame: pd.DataFrame,
    schema: Schema,
    spec: ReleaseSpec,
    book: LedgerVerbs,
    account: Account,
    *,
    earlier: Sequence[EarlierRelease],
    public: PublicRows | None,
    advance: Advance,
    progress: Progress | None,
) -> tuple[Conversation, dict[str, Moments], Redrawing | None]:
    """Plan, set the price aside, encode the frame, and let the method ask its questions."""
    built = synthesizer(spec.method, spec.preset, spec.options, protect=spec.protect, protect_share=spec.protect_share)
    price = mu2_of(spec.epsilon, spec.delta)
    budget = divide_budget(spec, rows_per_unit=account.rows_per_unit)
    plan = built.plan(schema.domain, budget.method)
    if spec.reuse:
        require_reuse(built)
    if spec.prior:
        require_prior(built)
    check_frame(frame, source="the frame")
    bound = bound_for(schema, account, secrets.token_bytes(32))
    # Rows have no name here by which they could be known again: every call measures anew, and is charged.
    snapshot = f"frame {secrets.token_hex(16)}"
    with _held(book, spec, price):

        def read() -> tuple[TableCounts, TableCounts]:
            codes = encode_numbers(frame, schema, source="the frame")
            if bound is not None:
                codes = bounded_frame(frame, codes, bound, source="the frame")
            return TableCounts(codes, schema.domain), TableCounts(codes, summed_domain(schema))

        counts, summed = count_refusals(
            read, ledger=book, dataset=spec.dataset, release=spec.release, step="ingest", runner=RUNNER
        )

        def curator(step: str, counts: TableCounts = counts) -> Curator:
            advance(step, SHARES[step])
            spending = Spending(dataset=spec.dataset, snapshot=snapshot, release=spec.release, step=step, runner=RUNNER)
            return Curator(counts=counts, ledger=book, spending=spending)

        watched = LastFit()
        tools = watched.observing(Tools(progress=progress or (lambda said: advance(said, SHARES["fit"]))))
        learned = require_prior(built).learn_prior(public) if public else None
        talk = run_phases(built, plan, curator, tools, earlier=earlier, prior=learned)
        model, known = talk.model, talk.structure.scores.mergeable
        redrawing = Redrawing.where_known(model, watched.of(model), known, seed=0)
        if not budget.moments:
            return talk, {}, redrawing
        errors = count_errors(built, schema.domain, plan)
        asked = curator("fit", summed)
        moments = ask_moments(asked, schema, budget.moments, marginal=model.marginal, errors=errors)
        return talk, moments, redrawing


@contextmanager
def _held(book: LedgerVerbs, spec: ReleaseSpec, price: Fraction) -> Iterator[None]:
    """Set the price aside before data is read; what was not charged in the end, or at a failure, is free again."""
    book.hold(spec.dataset, spec.release, mu2=price, runner=RUNNER)
    reason = "not finished"
    try:
        yield
        reason = "finished"
    finally:
        book.close(spec.dataset, spec.release, reason=reason, runner=RUNNER)
