"""Ledger and runs as Prometheus metrics, in the text exposition format 0.0.4.

The format is written here: gauges and counters that are read from the ledger at each scrape take fourteen lines
(`Metric.lines`), while prometheus_client's registry is made for values that a process counts itself.

`metrics_server` serves them over HTTP to a Prometheus that has no login to Airflow; it is meant for a closed network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from synth_core.errors import LedgerError, SpecError
from synth_core.events.journal import Kind
from synth_core.events.office import NEWEST, Office, committed_share
from synth_core.events.tally import EventTally
from synth_core.privacy.accounts import Balance
from synth_core.privacy.budget import epsilon_of, round_up
from synth_core.privacy.wording import left_number
from synth_core.release.manifest import DIGITS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[dict[str, str], float]


@dataclass(frozen=True, slots=True)
class Metric:
    """One family of samples with the same name, distinguished by their labels; names of counters end in `_total`."""

    name: str
    help: str
    samples: Sequence[Sample]

    def lines(self) -> Iterator[str]:
        """The family as the format writes it; one without samples is left out."""
        if self.samples:
            yield f"# HELP {self.name} {self.help}"
            yield f"# TYPE {self.name} {'counter' if self.name.endswith('_total') else 'gauge'}"
        for labels, value in self.samples:
            written = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            yield f"{self.name}{{{written}}} {value!r}" if written else f"{self.name} {value!r}"


def exposition(office: Office) -> str:
    """All metrics of a workspace as text; while the ledger cannot be read, those of the runs and `synth_up 0`."""
    try:
        readable = [*_ledger(office), *_accounts(office.balances())]
    except LedgerError:
        readable = []
    families = [Metric("synth_up", "Whether the ledger can be read.", _one(bool(readable))), *readable]
    families += [*_runs(office.steps()), *_releases(office)]
    return "".join(f"{line}\n" for family in families for line in family.lines())


def _ledger(office: Office) -> list[Metric]:
    status = office.chain_status()
    states = sorted(office.entries().items())
    entries = [({"dataset": dataset, "state": state}, float(n)) for (dataset, state), n in states]
    sound, verified = _one(status.sound), _one(status.checked.timestamp())
    return [
        Metric("synth_ledger_sound", "Whether the chain was as written when last verified.", sound),
        Metric("synth_ledger_verified_timestamp_seconds", "When the chain was last verified.", verified),
        Metric("synth_ledger_records_total", "Records of the chain.", _one(status.records)),
        Metric("synth_ledger_entries", "Spends and other entries by the state they are in.", entries),
    ]


def _accounts(balances: Sequence[Balance]) -> list[Metric]:
    def epsilon(mu2: Fraction, balance: Balance) -> float:
        return epsilon_of(max(mu2, Fraction(0)), balance.account.delta)

    families: dict[tuple[str, str], Callable[[Balance], float]] = {
        ("synth_budget_cap_epsilon", "Cap of the account."): lambda b: b.account.cap_epsilon,
        ("synth_budget_spent_epsilon", "Epsilon that the spent mu^2 is worth."): lambda b: _up(
            epsilon(b.charged_mu2, b)
        ),
        ("synth_budget_held_epsilon", "Epsilon that the mu^2 set aside is worth."): lambda b: _up(
            epsilon(b.held_mu2, b)
        ),
        ("synth_budget_remaining_epsilon", "Largest release that still fits."): lambda b: _down(
            epsilon(b.remaining_mu2, b)
        ),
        ("synth_budget_spent_mu2", "Privacy loss spent, in mu^2, which adds up."): lambda b: float(b.charged_mu2),
        ("synth_budget_cap_mu2", "Cap of the account in mu^2."): lambda b: float(b.cap_mu2),
        ("synth_budget_committed_ratio", "Share of the cap, in mu^2, spent or set aside."): committed_share,
        ("synth_account_refusals", "Refusals that have depended on the account's records."): lambda b: float(
            b.refusals
        ),
        ("synth_account_refusal_limit", "Refusals that may depend on the account's records."): lambda b: float(
            b.account.refusal_limit
        ),
    }
    return [
        Metric(name, text, [({"dataset": b.account.dataset}, value(b)) for b in balances])
        for (name, text), value in families.items()
    ]


def _runs(tally: EventTally) -> list[Metric]:
    def counted(kind: Kind) -> list[Sample]:
        found = sorted(tally.counts[kind].items())
        return [({"dataset": dataset, "step": step}, float(n)) for (dataset, step), n in found]

    return [
        Metric("synth_refusals_total", "Steps that were refused.", counted(Kind.REFUSAL)),
        Metric("synth_failures_total", "Steps that failed.", counted(Kind.FAILURE)),
        Metric("synth_steps_total", "Steps that finished.", counted(Kind.STEP)),
        Metric(
            "synth_step_seconds_total",
            "Seconds that finished steps took.",
            [({"dataset": d, "step": s}, float(taken)) for (d, s), taken in sorted(tally.seconds.items())],
        ),
    ]


def _releases(office: Office) -> list[Metric]:
    rows, epsilons, times = [], [], []
    for manifest in office.published():
        labels = {"dataset": manifest["dataset"], "release": manifest["release"]}
        at = datetime.fromisoformat(manifest["provenance"]["published_at"])
        rows.append((labels, float(office.rows(manifest))))
        epsilons.append((labels, float(manifest["guarantee"]["epsilon"])))
        times.append((labels, at.timestamp()))
    return [
        Metric("synth_release_rows", f"Synthetic records of a release, for the {NEWEST} published last.", rows),
        Metric(
            "synth_release_epsilon",
            "Epsilon that such a release promises: the larger of asked and charged.",
            epsilons,
        ),
        Metric("synth_release_published_timestamp_seconds", "When such a release was published.", times),
    ]


def _one(value: float) -> list[Sample]:
    return [({}, float(value))]


def _up(epsilon: float) -> float:
    return round_up(epsilon, DIGITS)


def _down(epsilon: float) -> float:
    return left_number(epsilon, DIGITS)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def metrics_server(office: Office, address: str) -> ThreadingHTTPServer:
    """A server on `host:port` that answers GET /metrics and nothing else; the caller runs and closes it."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise SpecError(f"{address!r} is no address; write HOST:PORT, such as 127.0.0.1:9105")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/metrics":
                self.send_error(404)
                return
            body = exposition(office).encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 — named so by its base
            """Say nothing: a scrape every few seconds is no event."""

    try:
        return ThreadingHTTPServer((host, int(port)), Handler)
    except OSError:
        raise SpecError(f"metrics cannot be served on {address}; it is in use or not of this machine") from None
