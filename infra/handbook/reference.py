"""Writes the generated parts of the reference pages from the code: `python -m infra.handbook.reference`.

A page says where with a pair of comments, `<!-- generated: name -->` and `<!-- end -->`; the words around them are a
person's. `make docs` runs this first, and a test fails when a page is no longer what the code says.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer
from sqlalchemy import Table

from infra.handbook.keys import schema_keys, spec_example, spec_keys
from infra.handbook.meanings import FIELDS, STATES
from infra.handbook.python_names import python_names

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs" / "reference").glob("*.md"), ROOT / "docs" / "spec.md"])
PART = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


def steps() -> str:
    """The steps of a release in their order."""
    from synth_core.steps import PIPELINE

    rows = [
        [
            f"`{step.name}`",
            step.does,
            "may" if step.spends else "never",
            f"`{step.parts.name}`" if step.parts else "–",
        ]
        for step in PIPELINE
    ]
    return table(["step", "what it does", "spends privacy", "parts that may run at the same time"], rows)


def commands() -> str:
    """Every command of `synth` with its arguments and options."""
    from synth_core.cli import app

    return "\n\n".join(_command(name, command) for name, command in _leaves("synth", typer.main.get_command(app)))


def _leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    inside: dict[str, Any] = getattr(command, "commands", {})
    if not inside:
        yield name, command
    for word in sorted(inside):
        yield from _leaves(f"{name} {word}", inside[word])


def _command(name: str, command: Any) -> str:
    words = re.sub(r"[ \t]+", " ", command.help or "").strip()
    rows = []
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            shown = parameter.metavar or parameter.name.upper()
        else:
            shown = ", ".join(parameter.opts)
        default = "" if parameter.default in (None, False) or parameter.required else f"`{parameter.default}`"
        needed = "required" if parameter.required else default
        rows.append([f"`{shown}`", needed, parameter.help or ""])
    listed = table(["", "default", "meaning"], rows) if rows else "It takes nothing."
    return f"## `{name}`\n\n{words}\n\n{listed}"


def methods() -> str:
    """Every method with its source, presets and options."""
    from synth_core.synthesizers.methods import METHODS, method_options

    parts = []
    for method in METHODS.values():
        presets = table(["preset", "what it is"], [[f"`{name}`", words] for name, words in method.presets.items()])
        rows = [
            [f"`{name}`", *(f"`{values[p]}`" if p in values else "–" for p in method.presets), meaning]
            for name, values, meaning in method_options(method.name)
        ]
        head = ["option", *(f"`{name}`" for name in method.presets), "meaning"]
        constants = table(head, rows) if rows else "It has no options."
        parts.append(f"## {method.name}\n\n{method.summary}. Source: {method.source}.\n\n{presets}\n\n{constants}")
    return "\n\n".join(parts)


def endpoints() -> str:
    """Every address of the pages inside Airflow."""
    from synth_core.web.routes import router

    rows = []
    routes: list[Any] = router.routes
    for route in routes:
        asked = [*route.dependant.query_params]
        for inner in route.dependant.dependencies:
            asked += inner.query_params
        names = [f"`{p.name}`" + ("" if p.field_info.is_required() else " (optional)") for p in asked]
        names += [f"`{p.name}`" for p in route.dependant.body_params]
        summary = (route.endpoint.__doc__ or "").splitlines()[0]
        verb = ", ".join(sorted(route.methods))
        rows.append([f"`{verb}`", f"`/budget{route.path}`", ", ".join(names) or "–", summary])
    return table(["", "address", "asks for", "answers"], rows)


def metrics() -> str:
    """Every metric that the exporter writes, seen on a workspace in which everything has happened once."""
    from synth_core.events.office import Office
    from synth_core.web.metrics import exposition

    with tempfile.TemporaryDirectory() as folder:
        _eventful(Path(folder))
        text = exposition(Office(Path(folder)))
    helps = re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE)
    kinds = dict(re.findall(r"^# TYPE (\S+) (.*)$", text, re.MULTILINE))
    labels = {
        name: ", ".join(f"`{label}`" for label in re.findall(r'(\w+)="', written)) or "–"
        for name, written in re.findall(r"^(\w+)(?:\{(.*)\})? ", text, re.MULTILINE)
    }
    return table(
        ["metric", "kind", "labels", "meaning"],
        [[f"`{name}`", kinds[name], labels[name], words] for name, words in helps],
    )


def _eventful(workspace: Path) -> None:
    """A workspace with an account, an event of each kind that is counted, and a published release."""
    import json

    from synth_core.events.journal import Event, Kind, append
    from synth_core.ledger.sql import open_ledger
    from synth_core.privacy.accounts import Account

    account = Account(dataset="d", delta=1e-6, cap_epsilon=1.0)
    open_ledger(workspace, create=True).declare(account, actor="reference")
    for kind in (Kind.STEP, Kind.REFUSAL, Kind.FAILURE):
        append(workspace, Event(kind=kind, dataset="d", release="r", step="fit", seconds=1.0))
    manifest = {
        "release": "r",
        "dataset": "d",
        "artifacts": {},
        "digest": "",
        "guarantee": {"epsilon": 1.0},
        "provenance": {"published_at": "2026-01-01T00:00:00+00:00"},
    }
    (workspace / "public" / "r").mkdir(parents=True)
    (workspace / "public" / "r" / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    (workspace / "public" / "r" / "manifest.sig").touch()


def ledger_records() -> str:
    """The columns of the table of records."""
    from synth_core.ledger.tables import RECORDS

    return _columns(RECORDS)


def ledger_answers() -> str:
    """The columns of the table of answers."""
    from synth_core.ledger.tables import ANSWERS

    return _columns(ANSWERS)


def _columns(stored: Table) -> str:
    rows = []
    for column in stored.columns:
        meaning = FIELDS.get(f"{stored.name}.{column.name}") or FIELDS[column.name]
        rows.append([f"`{column.name}`", str(column.type).lower(), meaning])
    return table(["column", "type", "meaning"], rows)


def ledger_states() -> str:
    """What a record can say."""
    from synth_core.privacy.accounts import CHARGED, State

    rows = [[f"`{state}`", "yes" if state in CHARGED else "no", STATES[state]] for state in State]
    return table(["state", "counts against the account", "meaning"], rows)


PARTS: dict[str, Callable[[], str]] = {
    "spec-example": spec_example,
    "spec-keys": spec_keys,
    "schema-keys": schema_keys,
    "steps": steps,
    "commands": commands,
    "methods": methods,
    "endpoints": endpoints,
    "metrics": metrics,
    "ledger-records": ledger_records,
    "ledger-answers": ledger_answers,
    "ledger-states": ledger_states,
    "python-core": lambda: python_names("synth_core"),
    "python-models": lambda: python_names("synth_core.models"),
    "python-inference": lambda: python_names("synth_core.inference"),
    "python-evaluation": lambda: python_names("synth_core.evaluation"),
    "python-release": lambda: python_names("synth_core.release"),
}


def filled(text: str) -> str:
    """A page with its generated parts written anew."""
    return PART.sub(lambda part: f"{part[1]}\n{PARTS[part[2]]()}\n\n{part[3]}", text)


def main() -> int:
    """Write every page whose generated parts have changed."""
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        after = filled(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            sys.stdout.write(f"written: {page.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
