"""Sends what happened to people and to a lineage collector; a broken channel never fails a release.

SYNTH_NOTIFY names a YAML file with channels, e-mail or Slack-style webhooks; SYNTH_NOTIFY_WEBHOOK adds one webhook for
everything. SYNTH_LINEAGE names a file to which OpenLineage events are appended, or the URL of a collector: which
account paid for which extract, and how much privacy that cost. The confidential input is named and nothing else: no
facet with rows, bytes or columns' statistics of it is ever sent.
"""

from __future__ import annotations

import json
import logging
import os
import smtplib
import ssl
import urllib.request
from collections.abc import Sequence
from datetime import UTC, datetime
from email.message import EmailMessage
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from uuid import NAMESPACE_URL, uuid5

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from synth_core.documents import Unreadable, parse_document, read_document
from synth_core.errors import SpecError
from synth_core.events.journal import Event, Kind
from synth_core.privacy.accounts import Runner
from synth_core.settings import Settings

SIGNALS = tuple(kind for kind in Kind if kind is not Kind.STEP)
"""What people want to be called for; a finished step is not among it unless a channel asks for it."""

PRODUCER = f"urn:synth-core:{version('synth-core')}"
SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
FACET = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunFacet"
TIMEOUT_SECONDS = 5
"""Seconds that a receiver of notices or lineage may take to answer."""

_log = logging.getLogger(__name__)


def _from_environment(value: object) -> object:
    """`$NAME` stands for an environment variable, so that a password need not be written into a file."""
    if isinstance(value, str) and value.startswith("$"):
        if value[1:] not in os.environ:
            raise ValueError(f"environment variable {value[1:]} is not set")
        return os.environ[value[1:]]
    return value


Secret = Annotated[str, BeforeValidator(_from_environment)]


def _post(url: str, content: dict[str, Any], *, timeout: float) -> None:
    """Post JSON to an address that begins with http or https; whatever goes wrong is raised."""
    request = urllib.request.Request(  # noqa: S310 — http and https alone
        url, data=json.dumps(content).encode(), headers={"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=timeout):  # noqa: S310
        pass


class _Channel(BaseModel):
    """What all channels have: whom they serve and how long they may take."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    events: tuple[Kind, ...] = SIGNALS
    timeout: Annotated[float, Field(gt=0, le=60)] = 5.0


class Webhook(_Channel):
    """Posts {"text": …} as Slack, Mattermost and others take it."""

    kind: Literal["webhook"] = "webhook"
    url: Annotated[Secret, Field(pattern=r"^https?://[^/]", repr=False)]

    def send(self, subject: str, body: str) -> None:
        """Post the message; whatever goes wrong is raised."""
        _post(self.url, {"text": f"{subject}\n{body}"}, timeout=self.timeout)


class Email(_Channel):
    """Sends plain text through an SMTP server."""

    kind: Literal["email"]
    host: str
    port: int = 587
    tls: Literal["starttls", "tls", "none"] = "starttls"
    user: str = ""
    password: Secret = Field(default="", repr=False)
    sender: str
    to: Annotated[tuple[str, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _keeps_its_password(self) -> Self:
        if self.password and self.tls == "none":
            raise ValueError("a password is sent only over TLS; set tls to starttls or tls")
        return self

    def send(self, subject: str, body: str) -> None:
        """Deliver the message; whatever goes wrong is raised."""
        message = EmailMessage()
        message["Subject"], message["From"], message["To"] = subject, self.sender, ", ".join(self.to)
        message.set_content(body)
        with self._connected() as server:
            if self.user:
                server.login(self.user, self.password)
            server.send_message(message)

    def _connected(self) -> smtplib.SMTP:
        if self.tls == "tls":
            context = ssl.create_default_context()
            return smtplib.SMTP_SSL(self.host, self.port, timeout=self.timeout, context=context)
        server = smtplib.SMTP(self.host, self.port, timeout=self.timeout)
        if self.tls == "starttls":
            server.starttls(context=ssl.create_default_context())
        return server


class Channels(BaseModel):
    """The file that SYNTH_NOTIFY names."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    channels: tuple[Annotated[Webhook | Email, Field(discriminator="kind")], ...] = ()


def configured() -> tuple[Webhook | Email, ...]:
    """The channels that the environment names; a file that is wrong is refused with its first problem."""
    channels: tuple[Webhook | Email, ...] = ()
    settings = Settings.from_environment()
    if settings.notify:
        channels = _load(Path(settings.notify))
    if settings.notify_webhook:
        webhook = {"kind": "webhook", "url": settings.notify_webhook}
        channels += _validated({"channels": [webhook]}, "SYNTH_NOTIFY_WEBHOOK")
    return channels


def notify(event: Event, channels: Sequence[Webhook | Email] | None = None) -> list[str]:
    """Send the event wherever it is wanted; returns what went wrong, in words, and never raises.

    The words name the kind of channel and of error only: a webhook's address is itself a secret.
    """
    try:
        channels = configured() if channels is None else channels
    except SpecError as wrong:
        _log.warning("%s", wrong)
        return [str(wrong)]
    subject, body = message(event)
    troubles = []
    for number, channel in enumerate(channels, start=1):
        if event.kind not in channel.events:
            continue
        try:
            channel.send(subject, body)
        except Exception as error:
            troubles.append(f"notification by {channel.kind} (channel {number}) failed: {type(error).__name__}")
            _log.warning("%s", troubles[-1])
    return troubles


_HEADLINES = {
    Kind.STEP: "step finished",
    Kind.REFUSAL: "refused",
    Kind.FAILURE: "failed",
    Kind.APPROVAL: "approval needed",
    Kind.DEADLINE: "late",
    Kind.CAP: "privacy budget running out",
    Kind.LIMIT: "ALARM: refusals reveal something about confidential records",
    Kind.CHAIN: "ALARM: the privacy ledger is not as it was written",
}


def message(event: Event) -> tuple[str, str]:
    """A subject of one line and a short body; both hold names and amounts that are public."""
    facts = {
        "release": event.release,
        "step": event.step,
        "data set": event.dataset,
        "DAG run": " / ".join(filter(None, (event.runner.dag, event.runner.run))),
        "seconds": f"{event.seconds:.1f}" if event.seconds is not None else "",
        "time (UTC)": f"{event.at:%Y-%m-%d %H:%M:%S}",
    }
    about = event.release or event.dataset
    subject = _HEADLINES[event.kind] + (f": {about}" if about else "")
    subject += f", step {event.step}" if event.step else ""
    lines = [event.text] if event.text else []
    lines += [f"{name}: {value}" for name, value in facts.items() if value]
    return " ".join(subject.split()), "\n".join(lines) + "\n"


def _load(path: Path) -> tuple[Webhook | Email, ...]:
    try:
        values = parse_document(read_document(path))
    except Unreadable as wrong:
        raise SpecError(f"SYNTH_NOTIFY: {path}: {wrong}") from None
    return _validated(values, str(path))


def _validated(values: Any, where: str) -> tuple[Webhook | Email, ...]:
    try:
        return Channels.model_validate(values or {}).channels
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        key = ".".join(str(part) for part in problem["loc"])
        raise SpecError(f"{where}: {key}: {problem['msg'].removeprefix('Value error, ')}") from None


def send_lineage(manifest: Path, runner: Runner) -> None:
    """Send the event of a published release, where a receiver is set."""
    target = Settings.from_environment().lineage
    if not target:
        return
    try:
        event = lineage_event(json.loads(manifest.read_text(encoding="utf-8")), runner)
        if target.startswith(("http://", "https://")):
            _post(target, event, timeout=TIMEOUT_SECONDS)
            return
        with Path(target).open("ab") as file:
            file.write(json.dumps(event).encode() + b"\n")
    except (OSError, ValueError, KeyError) as error:
        _log.warning("lineage was not sent: %s", type(error).__name__)


def lineage_event(manifest: dict[str, Any], runner: Runner) -> dict[str, Any]:
    """The completion event of a release: its privacy loss on the run, its digest on the output."""
    release, dataset, guarantee = manifest["release"], manifest["dataset"], manifest["guarantee"]
    run = str(uuid5(NAMESPACE_URL, f"{runner.dag}/{runner.run}/{release}"))
    loss = {
        "unit": guarantee["unit"],
        "epsilon": guarantee["epsilon"],
        "delta": guarantee["delta"],
        "mu": guarantee["mu"],
        "epsilonSpent": guarantee["epsilon_spent"],
        "accountEpsilon": guarantee["account"]["epsilon"],
        "accountEpsilonSpent": guarantee["account"]["epsilon_spent"],
        "accountEpsilonCap": guarantee["account"]["epsilon_cap"],
        "accountRecord": manifest["provenance"]["ledger"]["records"],
    }
    return {
        "eventType": "COMPLETE",
        "eventTime": datetime.now(UTC).isoformat(),
        "producer": PRODUCER,
        "schemaURL": SCHEMA,
        "run": {"runId": run, "facets": {"synth_privacyLoss": _facet(loss)}},
        "job": {"namespace": "synth", "name": runner.dag or "synth"},
        "inputs": [{"namespace": "synth://confidential", "name": dataset}],
        "outputs": [
            {
                "namespace": "synth://public",
                "name": f"{dataset}/{release}",
                "facets": {"synth_release": _facet({"manifestDigest": manifest["digest"]})},
            }
        ],
    }


def _facet(values: dict[str, Any]) -> dict[str, Any]:
    return {"_producer": PRODUCER, "_schemaURL": FACET, **values}
