"""Commands about the ledger: show, verify, export, head, restore, account, cap, refusals, grants."""

from __future__ import annotations

import getpass
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console

from synth_core.cli.panels import account_json, balance_panel, groups_table, record_json, records_table

if TYPE_CHECKING:
    from synth_core.ledger.sql import SqlLedger

app = typer.Typer(
    name="ledger",
    no_args_is_help=True,
    help="The privacy budget: accounts, every spend, and proof that none is missing.",
)

Workspace = Annotated[Path, typer.Option("--workspace", "-w", help="Folder that holds ledger.sqlite.")]
Url = Annotated[
    str | None,
    typer.Option("--ledger", envvar="SYNTH_LEDGER_URL", help="Another ledger, such as postgresql+psycopg2://…"),
]
Dataset = Annotated[str, typer.Argument(help="The data set whose account it is.")]
Reason = Annotated[str, typer.Option(help="Who decided it and why; kept for ever.")]
HERE = Path("workspace")
"""Workspace that commands about the ledger look into by default."""
T = TypeVar("T")


@app.command()
def show(
    workspace: Workspace = HERE,
    ledger: Url = None,
    dataset: Annotated[str | None, typer.Option(help="Only this data set.")] = None,
    release: Annotated[str | None, typer.Option(help="Only this release.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every question on a line of its own, and all lines.")
    ] = False,
    last: Annotated[int, typer.Option(help="How many lines to show; 0 for all.", min=0)] = 40,
    as_json: Annotated[bool, typer.Option("--json", help="All of it, as JSON.")] = False,
) -> None:
    """Show what was spent, what is left, and how long it lasts: a line for each step and round with what it cost.

    Example: `synth ledger show -w my-release/workspace --release pilot-1`
    """
    from synth_core.ledger.book import runway
    from synth_core.ledger.rows import show_records

    for problem in _open(workspace, ledger).objections():
        typer.echo(f"problem: {problem}; nothing can be spent", err=True)
    book = _open(workspace, ledger, compare=False)
    names = [dataset] if dataset else [account.dataset for account in book.accounts()]
    history = show_records(book.records(dataset=dataset))
    accounts = []
    for name in names:
        balance = book.balance(name)
        accounts.append((balance, runway(history, balance)))
    records = [record for record in history if release in (None, record.release)]
    if as_json:
        document = {
            "accounts": [account_json(*account) for account in accounts],
            "records": [record_json(record) for record in records],
        }
        typer.echo(json.dumps(document, indent=2))
        return
    if not accounts:
        typer.echo("the ledger has no accounts; open one with: synth ledger account (see its --help)")
    console = Console()
    for balance, forecast in accounts:
        name = balance.account.dataset
        own = [record for record in records if record.dataset == name]
        console.print(records_table(name, own) if everything else groups_table(name, own, last=last))
        console.print(balance_panel(balance, forecast))


@app.command()
def verify(
    workspace: Workspace = HERE,
    ledger: Url = None,
    head: Annotated[Path | None, typer.Option(help="A head kept elsewhere (see `synth ledger head`).")] = None,
) -> None:
    """Check every record, answer and balance; exit code 1 and the problems in words if anything was touched.

    Example: `synth ledger verify -w my-release/workspace --head safe/head.json`
    """
    from synth_core.ledger.head import read_head

    book = _open(workspace, ledger)
    found = book.verify(read_head(head) if head else None)
    for problem in found:
        typer.echo(f"problem: {problem}", err=True)
    if found:
        raise typer.Exit(1)
    end = book.head()
    typer.echo(f"the ledger is sound: {end.records} records, head {end.hash}")


@app.command()
def export(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write, one JSON record to a line.")],
    workspace: Workspace = HERE,
    ledger: Url = None,
    internal: Annotated[
        bool,
        typer.Option(help="With the digests of snapshots, so that every hash can be recomputed; not to be passed on."),
    ] = False,
) -> None:
    """Write all records, with their hashes, as JSON lines; snapshots are numbered within their release.

    Example: `synth ledger export records.jsonl -w my-release/workspace`
    """
    _open(workspace, ledger).export(path, internal=internal)


@app.command()
def head(workspace: Workspace = HERE, ledger: Url = None) -> None:
    """Print the chain's end; kept where the ledger's administrators cannot write, it proves later that none is missing.

    Example: `synth ledger head -w my-release/workspace > safe/head.json`
    """
    from synth_core.ledger.head import head_text

    typer.echo(head_text(_open(workspace, ledger, compare=False).head()), nl=False)


@app.command()
def restore(
    backup: Annotated[
        str,
        typer.Argument(
            metavar="BACKUP", help="A copy of ledger.sqlite, or the URL of the database into which a dump was restored."
        ),
    ],
    reason: Annotated[str, typer.Option(help="Who decided what is taken for lost, and why; kept for ever.")],
    lost: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DATASET=EPSILON",
            help="The most that can have been spent since; an account that is not named is charged all it has left. "
            "May be given several times.",
        ),
    ] = None,
    workspace: Workspace = HERE,
    ledger: Url = None,
) -> None:
    """Put a backup in the place of the ledger; what was spent after it is lost, and charged all the same.

    Releases that were published since are moved to WORKSPACE/lost: their manifests know records that are gone.

    Example: `synth ledger restore monday.sqlite --lost census-2026=0.5 --reason "board decision 8"`
    """
    from synth_core.ledger.restore import LOST, restore_ledger

    stated = {}
    for text in lost or ():
        name, _, epsilon = text.rpartition("=")
        try:
            stated[name] = float(epsilon)
        except ValueError:
            raise typer.BadParameter("write DATASET=EPSILON", param_hint="--lost") from None
    found = restore_ledger(workspace, backup, lost=stated, reason=reason, actor=_actor(), url=ledger)
    for balance in found.balances:
        Console().print(balance_panel(balance, None))
    for release in found.moved:
        typer.echo(f"{release}: moved to {workspace / LOST}")
    typer.echo(f"the ledger is restored: {found.head.records} records, head {found.head.hash}")


@app.command()
def account(
    dataset: Dataset,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="The cap: the ledger refuses more, until it is raised, with a reason. Needed for a new account."
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="For life; at most 1 / (10 x the largest number of records). Needed for a new account."),
    ] = None,
    largest_n: Annotated[
        int | None,
        typer.Option(help="A public upper bound of the number of records; a new account is refused without it."),
    ] = None,
    unit: Annotated[str, typer.Option(help="Whom the promise protects: person, household, record.")] = "person",
    rows_per_unit: Annotated[int, typer.Option(help="Most records that one unit may have.")] = 1,
    delta_reason: Annotated[str, typer.Option(help="Why a larger delta is accepted; kept for ever.")] = "",
    refusal_limit: Annotated[
        int, typer.Option(help="Most refusals that may depend on the records, in all its life.")
    ] = 20,
    shares_rows_with: Annotated[
        list[str] | None,
        typer.Option(
            help="Another account with rows of the same people: what one spends counts against both, for ever. "
            "May be given several times; an existing account needs nothing else."
        ),
    ] = None,
    workspace: Workspace = HERE,
    ledger: Url = None,
) -> None:
    """Open a data set's account; doing it again the same way changes nothing.

    Example: `synth ledger account census-2026 --unit person --epsilon 2 --delta 1e-9 --largest-n 90000000`
    """
    from synth_core.privacy.accounts import Account
    from synth_core.privacy.budget import check_delta

    others = tuple(shares_rows_with or ())
    if others and epsilon is None and delta is None:
        book = _open(workspace, ledger)
        declared = replace(book.balance(dataset).account, shares_rows_with=others)
    else:
        declared = Account(
            dataset=dataset,
            unit=unit,
            delta=_needed(delta, "--delta"),
            cap_epsilon=_needed(epsilon, "--epsilon"),
            rows_per_unit=rows_per_unit,
            largest_n=largest_n,
            refusal_limit=refusal_limit,
            shares_rows_with=others,
        )
        book = _open(workspace, ledger, create=True)
        if largest_n is None and dataset not in {known.dataset for known in book.accounts()}:
            check_delta(declared.delta, None, delta_reason)  # accounts of older versions have none
    book.declare(declared, actor=_actor(), delta_reason=delta_reason)
    Console().print(balance_panel(book.balance(dataset), None))


@app.command()
def cap(
    dataset: Dataset,
    epsilon: Annotated[float, typer.Option(help="The new cap.")],
    reason: Reason,
    workspace: Workspace = HERE,
    ledger: Url = None,
) -> None:
    """Change how much a data set may spend in its whole life.

    Example: `synth ledger cap census-2026 --epsilon 3 --reason "board decision 2026-14"`
    """
    book = _open(workspace, ledger)
    book.set_cap(dataset, epsilon=epsilon, actor=_actor(), reason=reason)
    Console().print(balance_panel(book.balance(dataset), None))


@app.command()
def refusals(
    dataset: Dataset,
    limit: Annotated[int, typer.Option(help="The new limit, refusals given so far included.")],
    reason: Reason,
    workspace: Workspace = HERE,
    ledger: Url = None,
) -> None:
    """Change how many refusals may depend on a data set's records; each reveals something of them without noise.

    Example: `synth ledger refusals census-2026 --limit 40 --reason "new form, decision 2026-15"`
    """
    book = _open(workspace, ledger)
    book.set_refusal_limit(dataset, limit=limit, actor=_actor(), reason=reason)
    Console().print(balance_panel(book.balance(dataset), None))


@app.command()
def grants(role: Annotated[str, typer.Argument(help="An existing PostgreSQL role.")]) -> None:
    """Print the SQL that lets a PostgreSQL role append to the ledger and do nothing else to it.

    Example: `synth ledger grants synth_writer | psql "$OWNER_URL"`
    """
    from synth_core.ledger.tables import append_only_grants

    for statement in append_only_grants(role):
        typer.echo(statement)


def _needed(value: T | None, option: str) -> T:
    """The option's value; without it, the refusal that the command line gives for a required option."""
    if value is None:
        raise typer.BadParameter("a new account needs it", param_hint=option)
    return value


def _open(workspace: Path, url: str | None, *, create: bool = False, compare: bool = True) -> SqlLedger:
    """The ledger; only `account` may make a new file, so that a mistyped folder is noticed.

    Without `compare` it is read as it is, also if it was rolled back.
    """
    from synth_core.ledger.sql import open_ledger

    return open_ledger(workspace, url, create=create, compare=compare)


def _actor() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"uid {os.getuid()}"
