"""Random releases of small tables, and what must hold of each: it is published and verifies, or costs nothing.

A case draws a schema, rows and a request (`random_inputs`), and makes a release of them: by the steps, by a call of
`synthesize`, or of two linked tables. It may be refused in one line, but only before anything is charged; and what a
plan accepts may be refused for its rows alone.
"""

from __future__ import annotations

import math
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from support.random_inputs import Draw, Table, draw_method, draw_table
from synth_core.errors import SourceError, SynthError
from synth_core.ledger.sql import SqlLedger, open_ledger
from synth_core.privacy.accounts import Account

DELTA = 1e-6
SIZES = (0, 1, 2, 3, 7, 20, 60, 60, 200, 200, 200, 500, 500, 1000)
"""Numbers of records."""
BUDGETS = ((1e-6, 0.01), (0.05, 3.0), (0.05, 3.0), (0.05, 3.0), (3.0, 100.0))
"""Between which a release's epsilon is drawn."""


class Broken(Exception):
    """What must hold does not."""


def tried(number: int, folder: Path) -> tuple[str, str, str]:
    """Make the release of this number.

    Args:
        number: The case, from which everything follows but the noise.
        folder: An empty folder.

    Returns:
        What kind of release it was, how it ended (taken, refused or failed), and what is wrong.
    """
    kind = KINDS[number % len(KINDS)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            return kind, *_MAKERS[kind](Draw(20, number), folder)
        except SynthError as refusal:
            return kind, "failed", f"refused where it must not be: {refusal}"
        except Exception as error:
            place = [at for at in traceback.extract_tb(error.__traceback__) if "synth_core" in at.filename]
            where = f" ({Path(place[-1].filename).name}:{place[-1].lineno})" if place else ""
            return kind, "failed", f"{type(error).__name__}{where}: {error}"


def _epsilon(draw: Draw) -> float:
    return min(100.0, max(1e-6, draw.between(*draw.pick(BUDGETS))))


def _account(draw: Draw, folder: Path, *, epsilon: float, **facts: Any) -> SqlLedger:
    (folder / "workspace").mkdir(parents=True)
    ledger = open_ledger(folder / "workspace", create=True)
    cap = max(0.01, 3 * epsilon)
    ledger.declare(Account(dataset="people", delta=DELTA, cap_epsilon=cap, largest_n=100_000, **facts), actor="test")
    return ledger


def _one_line(refusal: SynthError) -> str:
    text = str(refusal)
    if "\n" in text or len(text) > 1500:
        raise Broken(f"a refusal that is not one short line: {text[:80]!r}")
    return text


def _require_untouched(ledger: SqlLedger, refusal: SynthError) -> None:
    """Nothing is charged and nothing is set aside after a refusal."""
    text, balance = _one_line(refusal), ledger.balance("people")
    if balance.charged_mu2:
        raise Broken(f"charged, and refused then: {text}")
    if balance.held_mu2:
        raise Broken(f"set aside, and refused then: {text}")


def _require_paid(ledger: SqlLedger, epsilon: float) -> None:
    from synth_core.privacy.budget import mu2_of

    balance = ledger.balance("people")
    if problems := ledger.verify():
        raise Broken(f"the ledger: {problems[0]}")
    if balance.held_mu2 or not 0 < balance.charged_mu2 <= mu2_of(epsilon, DELTA):
        raise Broken("more was charged than asked, or something is still set aside")


def _by_steps(draw: Draw, folder: Path) -> tuple[str, str]:
    """A release as `synth plan` and `synth run` make it."""
    table, spec = _drawn_release(draw, folder)
    ledger = _account(draw, folder, epsilon=spec["epsilon"], **_unit(draw, table))
    table = _with_units(draw, table)
    spec |= _files(draw, table, folder)
    return _released(draw, folder, spec, ledger, records=max(1, len(table.frame)), check=_check_published)


def _released(
    draw: Draw,
    folder: Path,
    spec: Mapping[str, Any],
    ledger: SqlLedger,
    *,
    records: int,
    check: Callable[[Draw, str, Mapping[str, Any]], None],
) -> tuple[str, str]:
    """Plan, make and check a release."""
    from synth_core.steps import cost, prepare

    workspace = folder / "workspace"
    try:
        cost(spec, workspace=workspace, records=records)
        planned = True
    except SynthError as refusal:
        _require_untouched(ledger, refusal)
        planned = False
    try:
        address = prepare(spec, workspace=workspace)
        _run_steps(address, approval=spec["approval"])
    except SourceError as refusal:
        _require_untouched(ledger, refusal)
        return "refused", ""
    except SynthError as refusal:
        _require_untouched(ledger, refusal)
        return ("failed", f"planned, and refused then: {refusal}") if planned else ("refused", "")
    if not planned:
        return "failed", "the plan was refused, and the release was made"
    _require_paid(ledger, spec["epsilon"])
    check(draw, address, spec)
    return "taken", ""


def _run_steps(address: str, *, approval: bool) -> None:
    from synth_core.privacy.accounts import Runner
    from synth_core.steps import STEPS, run_step
    from synth_core.steps.approval import decide, draft
    from synth_core.steps.context import open_run

    for step in STEPS:
        if step == "publish" and approval:
            with open_run(address, runner=Runner(actor="vera")) as run:
                decide(run, approved=True, seen=draft(run).digest)
        run_step(step, address)


def _drawn_release(draw: Draw, folder: Path) -> tuple[Table, dict[str, Any]]:
    table = draw_table(draw, rows=draw.pick(SIZES))
    columns = table.columns()
    names = [column["name"] for column in columns]
    listed = [column["name"] for column in table.columns("categorical")]
    spec: dict[str, Any] = {"release": "r1", "dataset": "people", "epsilon": _epsilon(draw), "delta": DELTA}
    spec |= draw_method(draw, columns)
    if listed and draw.chance(0.15):
        pools = {"pool_below": draw.pick([1, 20, 10**6])} if draw.chance(0.5) else {}
        spec["strata"] = {"by": draw.pick(listed)} | pools
    if draw.chance(0.2):
        spec["protect"] = [draw.some(names, 3) for _ in range(draw.pick([1, 1, 2]))]
        spec["protect_share"] = draw.pick([0.01, 0.1, 0.9])
    spec["uncertainty"] = draw.pick([0, 1, 2, 3])
    spec["replicates"] = draw.pick([0, 0, 0, 1, spec["uncertainty"]])
    spec["rows"] = draw.pick(["noisy", "noisy", 1, 37, 700])
    spec["shards"] = draw.pick([1, 1, 2, 5])
    for key in ("csv", "escape_formulas", "approval"):
        spec[key] = draw.chance(0.2)
    spec["publish_answers"] = draw.chance(0.8)
    spec["quality_share"] = draw.pick([0.0, 0.0, 0.05, 0.5])
    spec["evaluate"] = draw.pick(["none", "none", "quick", "full"])
    private = any(isinstance(column.get("bins"), dict) for column in columns)
    spec["bins_share"] = draw.pick([0.001, 0.1, 0.25]) if private else 0.0
    spec["moments_share"] = draw.pick([0.01, 0.1, 0.25]) if _has_sums(table.declared) else 0.0
    return table, spec


def _has_sums(declared: Mapping[str, Any]) -> bool:
    """Whether sums are bought of any column."""
    from synth_core.schema import DeclaredSchema
    from synth_core.schema.codec import summed_columns

    try:
        return bool(summed_columns(DeclaredSchema.model_validate(declared).planned))
    except SynthError:
        return False


def _unit(draw: Draw, table: Table) -> dict[str, Any]:
    if not draw.chance(0.15):
        return {}
    table.declared["unit_column"] = "who"
    return {"rows_per_unit": draw.pick([1, 2, 5])}


def _with_units(draw: Draw, table: Table) -> Table:
    if "unit_column" not in table.declared:
        return table
    many = len(table.frame)
    return Table(table.declared, table.frame.assign(who=draw.rng.integers(0, many + 1, many)))


def _files(draw: Draw, table: Table, folder: Path) -> dict[str, str]:
    (folder / "schema.yaml").write_text(yaml.safe_dump(table.declared, allow_unicode=True, sort_keys=False))
    source = folder / draw.pick(["rows.csv", "rows.csv.gz", "rows.parquet"])
    if source.suffix == ".parquet":
        _one_type_each(table.frame).to_parquet(source)
    else:
        table.frame.to_csv(source, index=False)
    return {"source": str(source), "schema": str(folder / "schema.yaml")}


def _one_type_each(frame: pd.DataFrame) -> pd.DataFrame:
    """Columns of several types as text, the others of the type that they have."""
    mixed = [name for name in frame if frame[name].dropna().map(type).nunique() > 1]
    text = {name: frame[name].map(str, na_action="ignore") for name in mixed}
    return frame.assign(**text).convert_dtypes()


def _check_published(draw: Draw, address: str, spec: Mapping[str, Any]) -> None:
    """The release verifies, its tables are as declared and keep the rules, and it answers questions."""
    from synth_core.inference.published import load_release
    from synth_core.release.paths import ReleasePaths
    from synth_core.release.verify import check_release

    paths = ReleasePaths.of_address(address)
    if problems := check_release(paths.public).problems:
        raise Broken(f"it does not verify: {problems[0]}")
    release = load_release(paths.public)
    tables = [paths.public / "extract", *sorted((paths.public / "replicates").glob("*"))]
    for folder in tables:
        frame = pd.concat([pd.read_parquet(path) for path in sorted(folder.glob("*.parquet"))])
        _check_table(frame, release.schema, rows=spec["rows"])
    _ask(draw, release)


def _check_table(frame: pd.DataFrame, schema: Any, *, rows: Any) -> None:
    if rows != "noisy" and len(frame) != rows:
        raise Broken(f"{len(frame)} rows instead of {rows}")
    if list(frame.columns) != [*(c.name for c in schema.columns), *(one.name for one in schema.attached)]:
        raise Broken("other columns than declared")
    for name, broken in schema.violations(frame).items():
        if broken.any():
            raise Broken(f"{broken.sum()} of {len(frame)} rows break {name}")


def _ask(draw: Draw, release: Any) -> None:
    """Questions that anybody might ask; they are answered in numbers, or refused."""
    names = [column.name for column in release.schema.columns]
    numbers = [column.name for column in release.schema.columns if column.numbers is not None]
    for _ in range(2):
        said: dict[str, Any] = {"by": draw.some(names, 2)}
        how = draw.pick(["count", "share", "mean"])
        if how == "share":
            said["share"] = True
        if how == "mean" and numbers:
            said["mean"] = draw.pick(numbers)
        try:
            text = release.ask(**said).to_csv()
        except SynthError as refusal:
            _one_line(refusal)
            continue
        if "nan" in text.lower().replace("-nan-", "") and how != "mean":
            raise Broken(f"a {how} that is no number: {said}")


def _by_call(draw: Draw, folder: Path) -> tuple[str, str]:
    """A release by `synthesize`, paid from a ledger."""
    from synth_core import Schema, synthesize

    table = draw_table(draw, rows=draw.pick(SIZES), bought=False)
    epsilon, columns = _epsilon(draw), table.columns()
    ledger = _account(draw, folder, epsilon=epsilon, **_unit(draw, table))
    table = _with_units(draw, table)
    said: dict[str, Any] = draw_method(draw, columns)
    if draw.chance(0.2):
        said["protect"] = [draw.some([column["name"] for column in columns], 3)]
    if _has_sums(table.declared):
        said["moments_share"] = draw.pick([0.01, 0.1, 0.25])
    rows = draw.pick([None, None, 1, 50])
    frame = draw.pick([table.frame, table.frame.convert_dtypes()])
    try:
        schema = Schema.model_validate(table.declared)
        release = synthesize(
            frame, schema, epsilon=epsilon, delta=DELTA, rows=rows, ledger=folder / "workspace", dataset="people",
            progress=_quiet, **said,
        )  # fmt: skip
    except SynthError as refusal:
        _require_untouched(ledger, refusal)
        return "refused", ""
    _require_paid(ledger, epsilon)
    _check_table(release.table, schema, rows=rows or len(release.table))
    if not math.isfinite(release.cost.epsilon) or release.cost.epsilon > epsilon * (1 + 1e-9):
        raise Broken(f"cost {release.cost.epsilon} of {epsilon}")
    for say in (release.summary, release._repr_html_, lambda: _ask(draw, release)):
        say()
    return "taken", ""


def _quiet(_: str) -> None:
    """Say nothing."""


def _households(draw: Draw) -> tuple[dict[str, Any], dict[str, pd.DataFrame], list[dict[str, Any]]]:
    """What is declared of two linked tables, the tables, and the names of some of their attributes."""
    homes = draw.pick([0, 1, 2, 20, 100, 300])
    largest = draw.pick([1, 2, 3, 4, 6])
    sizes = draw.rng.integers(draw.pick([0, 1, 1, 1]), draw.pick([2, largest + 1, largest + 3]), homes)
    household = draw_table(draw, rows=homes, bought=False, most=3)
    person = draw_table(draw, rows=int(sizes.sum()), bought=False, most=3)
    for column in [*household.columns(), *person.columns()]:
        column.pop("moments", None)
    declared = {"link": "hid", "largest": largest, "household": household.declared, "person": person.declared}
    if together := [rule for number in range(draw.pick([0, 0, 1, 2])) if (rule := _together(draw, person, number))]:
        declared["together"] = together
    names = np.arange(homes)
    frames = {
        "household": household.frame.assign(hid=names),
        "person": person.frame.assign(hid=np.repeat(names, sizes)),
    }
    columns = [{"name": f"person.{column['name']}"} for column in person.columns()]
    return declared, frames, columns


def _linked(draw: Draw, folder: Path) -> tuple[str, str]:
    """A release of two linked tables by `synthesize`, paid from a ledger."""
    from synth_core import synthesize
    from synth_core.schema.linked import LinkedSchema

    declared, frames, columns = _households(draw)
    epsilon = _epsilon(draw)
    ledger = _account(draw, folder, epsilon=epsilon, unit="household")
    said: dict[str, Any] = draw_method(draw, columns)
    said |= {"pairs_share": draw.pick([0.0, 0.01, 0.5])} if draw.chance(0.5) else {}
    rows = draw.pick([None, None, 1, 50])
    try:
        schema = LinkedSchema.model_validate({"tables": declared})
        release = synthesize(
            frames, schema, epsilon=epsilon, delta=DELTA, rows=rows, ledger=folder / "workspace", dataset="people",
            progress=_quiet, **said,
        )  # fmt: skip
    except SynthError as refusal:
        _require_untouched(ledger, refusal)
        return "refused", ""
    _require_paid(ledger, epsilon)
    for name, broken in schema.violations(release.tables).items():
        if broken.any():
            raise Broken(f"{broken.sum()} households break {name}")
    for name, own in (("household", schema.household), ("person", schema.person)):
        _check_table(release.tables[name].drop(columns="hid"), own, rows="noisy")
    for say in (release.summary, release._repr_html_):
        say()
    return "taken", ""


def _linked_by_steps(draw: Draw, folder: Path) -> tuple[str, str]:
    """A release of two linked tables as `synth plan` and `synth run` make it."""
    declared, frames, columns = _households(draw)
    spec: dict[str, Any] = {"release": "r1", "dataset": "people", "unit": "household", "delta": DELTA}
    spec |= {"epsilon": _epsilon(draw), "rows": draw.pick(["noisy", "noisy", 1, 50]), "shards": draw.pick([1, 1, 3])}
    spec |= draw_method(draw, columns) | {"evaluate": draw.pick(["none", "quick", "full"])}
    spec |= {"quality_share": draw.pick([0.0, 0.0, 0.1]), "publish_answers": draw.chance(0.8)}
    for key in ("csv", "escape_formulas", "approval"):
        spec[key] = draw.chance(0.2)
    spec |= {"pairs_share": draw.pick([0.0, 0.01, 0.5])} if draw.chance(0.5) else {}
    ledger = _account(draw, folder, epsilon=spec["epsilon"], unit="household")
    (folder / "schema.yaml").write_text(yaml.safe_dump({"tables": declared}, allow_unicode=True, sort_keys=False))
    for name, frame in frames.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    spec |= {"schema": str(folder / "schema.yaml")}
    spec |= {"source": {name: str(folder / f"{name}.csv") for name in frames}}
    return _released(draw, folder, spec, ledger, records=max(1, len(frames["person"])), check=_check_linked)


def _check_linked(_: Draw, address: str, spec: Mapping[str, Any]) -> None:
    """The release verifies, which counts the households that break a rule."""
    from synth_core.release.paths import ReleasePaths
    from synth_core.release.verify import check_release
    from synth_core.schema.linked import LinkedSchema

    paths = ReleasePaths.of_address(address)
    if problems := check_release(paths.public).problems:
        raise Broken(f"it does not verify: {problems[0]}")
    schema = LinkedSchema.load(paths.public / "schema.yaml")
    tables = {
        name: pd.concat([pd.read_parquet(path) for path in sorted((paths.extract / name).glob("*.parquet"))])
        for name in ("household", "person")
    }
    for name, broken in schema.violations(tables).items():
        if broken.any():
            raise Broken(f"{broken.sum()} households break {name}")
    _check_table(tables["household"].drop(columns="hid"), schema.household, rows=spec["rows"])
    _check_table(tables["person"].drop(columns="hid"), schema.person, rows="noisy")


def _together(draw: Draw, person: Table, number: int) -> dict[str, Any] | None:
    listed, numbers = person.columns("categorical"), person.numbers()
    if not listed:
        return None
    one = draw.pick(listed)
    people = {one["name"]: draw.pick(one["values"])}
    rule: dict[str, Any] = {"name": f"together {number}"}
    if numbers and draw.chance(0.3):
        upper = {one["name"]: draw.pick(one["values"])}
        return rule | {"column": draw.pick(numbers)["name"], "lower": people, "upper": upper, "by": draw.pick([0, 12])}
    return rule | {"people": people} | draw.pick([{"exactly": 1}, {"at_most": 1}, {"at_least": 1}, {"even": True}])


_MAKERS: dict[str, Callable[[Draw, Path], tuple[str, str]]] = {
    "steps": _by_steps,
    "call": _by_call,
    "linked": _linked,
    "linked steps": _linked_by_steps,
}
KINDS = ("steps", "steps", "call", "linked", "linked steps")
"""What a case makes, by its number."""
