"""How the ledger's commands show spends and balances: tables for people, plain data for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.panel import Panel
from rich.table import Table

if TYPE_CHECKING:
    from synth_core.privacy.accounts import Balance, Record


def spends_table(dataset: str, records: Sequence[Record], *, last: int) -> Table:
    """The account's records, a line for each spend, the last ones if asked."""
    lines = _latest(records)
    shown = lines[-last:] if last else lines
    caption = "Each spend is on one line, with its latest state; `synth ledger export` writes every record."
    if len(shown) < len(lines):
        caption = f"{len(lines) - len(shown)} earlier lines are not shown; --last 0 shows all. {caption}"
    table = Table(
        title=f"Ledger of {dataset}", caption=caption, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )
    table.title_justify = table.caption_justify = "left"
    for name in ("#", "time (UTC)", "release", "step", "purpose", "state", "mechanism", "mu²"):
        table.add_column(name, overflow="fold", no_wrap=name not in ("release", "step", "purpose"))
    for record in shown:
        asked = record.mechanism
        table.add_row(
            str(record.id),
            f"{record.at:%Y-%m-%d %H:%M}",
            record.release,
            record.step,
            record.purpose or record.reason,
            record.state.value,
            f"{asked.count} {asked.name.removeprefix('discrete_')}" if asked.count else "",
            f"{float(record.mu2):.3g}" if record.mu2 else "",
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
    return Panel(
        "\n".join([*lines, *([forecast] if forecast else [])]), title=account.dataset, title_align="left"
    )


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


def _latest(records: Sequence[Record]) -> list[Record]:
    """One record for each spend, the one that says where it stands; all records that are no spends."""
    spends = {(record.key, record.attempt): record.id for record in records if record.key}
    return [record for record in records if not record.key or spends[record.key, record.attempt] == record.id]
