"""The page of a release on which anybody may ask for tables: one self-contained file, without dates.

It holds tables of the published model with their errors (`page_tables`), a template, and the modules of
`templates/explorer`, which are written into it one after the other. It loads nothing, and its policy says so.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from synth_core.arrays import Floats
from synth_core.inference.many import Each, in_turn, uncertain_tables
from synth_core.inference.uncertain import COVERAGE, ROUNDING, Uncertain, UncertainTable, quantile
from synth_core.report.page import page, template_environment
from synth_core.report.page_tables import Layer, Numbers, Wanted, choose_tables, list_givens, pack
from synth_core.schema import Schema
from synth_core.schema.columns import AnyColumn

LEVELS = (50, 80, 90, 95, 99)
"""Percent of true values that an interval may be asked to cover."""
MODULES = ("page_data", "question", "answer", "chart", "table", "main")
"""The page's modules, each after those that it imports."""
FOLDER = Path(__file__).parent / "templates" / "explorer"


def join_modules(sources: Sequence[tuple[str, str]]) -> str:
    """Write JavaScript modules into one, each as a function that returns what it exports.

    Args:
        sources: Names and texts, each after those that it imports; imports and exports begin a line.

    Returns:
        One module without imports.
    """
    return "\n".join(_as_function(name, text) for name, text in sources)


_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:function|const) (\w+))", re.MULTILINE)


def _as_function(name: str, text: str) -> str:
    exported = ", ".join(_EXPORT.findall(text))
    body = _EXPORT.sub("", _IMPORT.sub(r"const \1 = module_\2;", text))
    return f"const module_{name} = (() => {{\n{body}\nreturn {{ {exported} }};\n}})();"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explored:
    """What the page states beside its tables.

    Attributes:
        release: Name of the release.
        dataset: Name of its data set.
        unit: Whom one record belongs to.
        epsilon, delta: The release's privacy loss, as texts.
    """

    release: str
    dataset: str
    unit: str
    epsilon: str
    delta: str


def explore_page(
    about: Explored, schema: Schema, uncertain: Uncertain, *, means: Mapping[str, Floats], each: Each = in_turn
) -> str:
    """The page; equal arguments give equal bytes.

    Args:
        about: What it states beside its tables.
        schema: The public schema.
        uncertain: The model with its replicates.
        means: For each column of numbers, the mean number of each code; NaN for codes that are no number.
        each: How the replicates are gone through.

    Returns:
        HTML, below 8 MB.
    """
    wanted = choose_tables(
        schema.domain, numbers=list(means), cliques=uncertain.model.cliques, measured=uncertain.measured
    )
    places = {column.name: place for place, column in enumerate(schema.columns)}
    tables = [
        pack(
            numbers,
            of=[places[name] for name in one.by],
            mean=None if one.mean is None else places[one.mean],
            places=places,
        )
        for one, numbers in zip(wanted, page_numbers(wanted, uncertain, means, each=each), strict=True)
    ]
    several = sorted({table["replicates"] for table in tables})
    data = {
        "release": about.release,
        "columns": [_column(column, means) for column in schema.columns],
        "levels": [str(level) for level in LEVELS],
        "widths": {one: {level: quantile(one, level / 100) for level in LEVELS} for one in several},
        "tables": tables,
    }
    style = template_environment("synth_core.report", {}).get_template("explore.css.j2").render()
    script = joined_script()
    return page(
        "explore.html.j2",
        title=f"{about.dataset}: tables of {about.release}",
        headline=_headline(schema, uncertain),
        about=about,
        policy=f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'",
        style=style,
        script=script,
        data=json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"),
        holds=describe_tables(wanted, schema),
        replicates=max(several),
        coverage=COVERAGE,
    )


@cache
def joined_script() -> str:
    """The page's modules as one."""
    return join_modules([(name, (FOLDER / f"{name}.js").read_text(encoding="utf-8")) for name in MODULES])


def page_numbers(
    wanted: Sequence[Wanted], uncertain: Uncertain, means: Mapping[str, Floats], *, each: Each = in_turn
) -> list[Numbers]:
    """The numbers of all tables, with the standard deviations that the page shows.

    Args:
        wanted: The tables.
        uncertain: The model with its replicates.
        means: The mean number of each code, by column of numbers.
        each: How the replicates are gone through.

    Returns:
        Counts, with those of shares among any records that are equal in some columns; or means.
    """
    behind = [one.by if one.mean is None else (*one.by, one.mean) for one in wanted]
    cliques = list(dict.fromkeys(map(uncertain.domain.clique, behind)))
    tables = dict(zip(cliques, uncertain_tables(uncertain, cliques, each=each), strict=True))
    numbers = []
    for one, names in zip(wanted, behind, strict=True):
        table = tables[uncertain.domain.clique(names)]
        numbers.append(_counts(table) if one.mean is None else _means(table, one.mean, means[one.mean]))
    return numbers


def _counts(table: UncertainTable) -> Numbers:
    """Counts, and how certain they and shares of them are."""
    layers = [Layer(None, np.sqrt(table.sigma**2 + ROUNDING))]
    for given in list_givens(table.attributes):
        axes = tuple(axis for axis, name in enumerate(table.attributes) if name not in given)
        totals = table.values.sum(axis=axes, keepdims=True)
        shares = _ratio(table.values, totals)
        draws = _ratio(table.draws, table.draws.sum(axis=tuple(axis + 1 for axis in axes), keepdims=True))
        layers.append(Layer(given, _deviations(shares, draws, _ratio(table.extra + ROUNDING, totals**2))))
    return Numbers(table.values, tuple(layers), table.measured, table.sampled, len(table.draws))


def _means(table: UncertainTable, name: str, codes: Floats) -> Numbers:
    """Means of a column's numbers, of the records that have one."""
    axis = table.attributes.index(name)
    values, draws, extra = (
        np.moveaxis(part, axis - len(table.attributes), -1) for part in (table.values, table.draws, table.extra)
    )
    known = np.isfinite(codes)
    weights, ones = np.where(known, codes, 0.0), known.astype(np.float64)
    records = values @ ones
    means = _ratio(values @ weights, records)
    stray = (extra * np.where(known, codes - means[..., None], 0.0) ** 2).sum(axis=-1)
    sigma = _deviations(means, _ratio(draws @ weights, draws @ ones), _ratio(stray, records**2))
    shown = np.where(records > 0, means, np.nan)
    return Numbers(shown, (Layer(None, sigma),), table.measured, table.sampled, len(table.draws))


def _deviations(values: Floats, draws: Floats, extra: Floats) -> Floats:
    """Root mean square distance of the replicates' numbers, and what they do not show."""
    spread = np.mean((draws - values) ** 2, axis=0) if len(draws) else np.zeros_like(values)
    return np.sqrt(spread + extra)


def _ratio(parts: Floats, wholes: Floats) -> Floats:
    """Parts of wholes; 0 of nothing."""
    return np.divide(parts, wholes, out=np.zeros(np.broadcast_shapes(parts.shape, wholes.shape)), where=wholes > 0)


def _column(column: AnyColumn, means: Mapping[str, Floats]) -> dict[str, Any]:
    return {"name": column.name, "captions": list(column.captions), "number": column.name in means}


def _digest(text: str) -> str:
    """What a content security policy calls a text that may run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _headline(schema: Schema, uncertain: Uncertain) -> str:
    total = f"{uncertain.model.total:,.0f}"
    columns = len(schema.columns)
    return f"Pick some of the {columns} columns; about {total} records are behind them. Each number has an interval."


def describe_tables(wanted: Sequence[Wanted], schema: Schema) -> str:
    """Which tables the page holds, and which it leaves out.

    Args:
        wanted: Its tables.
        schema: The public schema.

    Returns:
        A sentence or two.
    """
    columns, words, left = len(schema.columns), [], 0
    for size, name in ((1, "one column"), (2, "two columns"), (3, "three columns")):
        has, possible = sum(len(one.by) == size and one.mean is None for one in wanted), math.comb(columns, size)
        if possible:
            words.append(f"{has:,} of {possible:,} tables of {name}")
        left += possible - has
    means = sum(one.mean is not None for one in wanted)
    rest = " Larger ones are left out, because it is kept below 8 MB, and unmeasured ones before measured ones."
    return f"The page holds {', '.join(words)} and {means:,} tables of means.{rest if left else ''}"
