"""How a ledger looks on a terminal, as tables and panels, and as plain data for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.panel import Panel
from rich.table import Table

if TYPE_CHECKING:
    from synth_core.privacy.accounts import Balance, Record


def groups_table(dataset: str, records: Sequence[Record], *, last: int) -> Table:
    """The account's records, a line for each step and round, the last ones if asked."""
    from synth_core.ledger.groups import group_records, latest_records

    groups = group_records(latest_records(records))
    shown = groups[-last:] if last else groups
    hidden = (
        f"{len(groups) - len(shown)} earlier lines are not shown; --last 0 shows them. " if last < len(groups) else ""
    )
    caption = f"{hidden if last else ''}--all shows each question by itself; `synth ledger export` writes every record."
    table = _table(dataset, caption, ("date", "release", "step", "what", "state", "questions", "mu²"))
    for group in shown:
        table.add_row(
            f"{group.records[0].at:%Y-%m-%d}",
            group.release,
            group.step,
            group.purpose,
            ", ".join(group.states),
            f"{group.questions:,}" if group.questions else "",
            f"{float(group.mu2):.3g}" if group.mu2 else "",
        )
    return table


def records_table(dataset: str, records: Sequence[Record]) -> Table:
    """The account's records, a line for each spend."""
    from synth_core.ledger.groups import latest_records

    caption = "Each spend is on one line, with its latest state; `synth ledger export` writes every record."
    table = _table(dataset, caption, ("#", "release", "step", "what", "state", "mechanism", "mu²"))
    for record in latest_records(records):
        asked = record.mechanism
        table.add_row(
            str(record.id),
            record.release,
            record.step,
            record.purpose or record.reason,
            record.state.value,
            f"{asked.count} {asked.name.removeprefix('discrete_')}" if asked.count else "",
            f"{float(record.mu2):.3g}" if record.mu2 else "",
        )
    return table


def _table(dataset: str, caption: str, columns: Sequence[str]) -> Table:
    """An empty table that wraps names and purposes, never numbers, where a terminal is narrow."""
    table = Table(title=f"Ledger of {dataset}", caption=caption, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.title_justify = table.caption_justify = "left"
    for name in columns:
        wraps, number = name in ("release", "what"), name in ("#", "questions", "mu²")
        table.add_column(
            name,
            overflow="fold",
            no_wrap=not wraps,
            min_width=10 if wraps else None,
            justify="right" if number else "left",
        )
    return table


def balance_panel(balance: Balance, forecast: str | None) -> Panel:
    """What the account promises, has spent and has left."""
    from synth_core.privacy.wording import exact_text, left_text, loss_text

    words = account_json(balance, forecast)
    account = balance.account
    others = [name for name in balance.together if name != account.dataset]
    several = f", up to {account.rows_per_unit} records each" if account.rows_per_unit > 1 else ""
    lines = [
        f"protects   one {account.unit}{several} (neighbours: {account.neighbours})",
        f"delta      {exact_text(account.delta)}, for life",
        *(
            f"{name:<10} epsilon {shown(words[f'{name}_epsilon']):<8} mu² {float(mu2):.4g}"
            for name, mu2, shown in (
                ("cap", balance.cap_mu2, exact_text),
                ("spent", balance.charged_mu2, loss_text),
                ("held", balance.held_mu2, loss_text),
                ("left", balance.remaining_mu2, left_text),
            )
        ),
        f"refusals   {balance.refusals} of at most {account.refusal_limit} have depended on records",
        *([f"together with {', '.join(others)}: rows of the same people"] if others else []),
        "mu² adds up; epsilons do not: each is what that mu² is worth by itself",
    ]
    return Panel("\n".join([*lines, *([forecast] if forecast else [])]), title=account.dataset, title_align="left")


def account_json(balance: Balance, forecast: str | None) -> dict[str, Any]:
    """An account and its balance as plain data."""
    from synth_core.privacy.budget import epsilon_of, round_up
    from synth_core.privacy.wording import left_number

    delta, digits = balance.account.delta, 6
    return asdict(balance.account) | {
        "cap_mu2": str(balance.cap_mu2),
        "spent_mu2": str(balance.charged_mu2),
        "held_mu2": str(balance.held_mu2),
        "left_mu2": str(balance.remaining_mu2),
        "spent_epsilon": round_up(epsilon_of(balance.charged_mu2, delta), digits),
        "held_epsilon": round_up(epsilon_of(balance.held_mu2, delta), digits),
        "left_epsilon": left_number(epsilon_of(balance.remaining_mu2, delta), digits),
        "refusals": balance.refusals,
        "together": list(balance.together),
        "forecast": forecast,
    }


def record_json(record: Record) -> dict[str, Any]:
    """A record as plain data."""
    return asdict(record) | {
        "state": record.state.value,
        "mechanism": record.mechanism.to_json(),
        "mu2": str(record.mu2),
        "cap_mu2": str(record.cap_mu2),
        "remaining_mu2": str(record.remaining_mu2),
        "at": record.at.isoformat(),
    }
