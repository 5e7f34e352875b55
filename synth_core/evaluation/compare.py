"""Compare a real and a synthetic table: the one call behind the evaluate step and the analysts' API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from synth_core.codec import encode
from synth_core.domain import Domain
from synth_core.errors import SourceError
from synth_core.evaluation.classification import Spread, one_by_one, split, target_errors, usual_targets
from synth_core.evaluation.marginals import marginal_errors
from synth_core.evaluation.result import Evaluation
from synth_core.metrics import Codes, alpha_way, pair_tvd, worst_cells
from synth_core.schema import Schema

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what was just finished, how many parts are done, and of how many."""

ALPHAS = (2, 3)
_FEWEST_REAL_ROWS = 3


def compare(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    schema: Schema,
    *,
    targets: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Every true error of a synthetic table against the real one, both in the schema's own values.

    A value outside the schema is refused with the table and the column it is in. The result is confidential.
    """
    real_codes = _encoded(real, schema, source="real table")
    synthetic_codes = _encoded(synthetic, schema, source="synthetic table")
    return compare_codes(
        real_codes,
        synthetic_codes,
        schema.domain,
        targets=targets,
        violations=rule_violations(synthetic_codes, schema),
        progress=progress,
    )


def compare_codes(
    real: Codes,
    synthetic: Codes,
    domain: Domain,
    *,
    targets: Sequence[str] | None = None,
    violations: Mapping[str, int] | None = None,
    spread: Spread = one_by_one,
    progress: Progress | None = None,
) -> Evaluation:
    """Every true error of a synthetic table of codes; `violations` comes from `rule_violations`."""
    _check(real, domain, table="real", fewest=_FEWEST_REAL_ROWS)
    _check(synthetic, domain, table="synthetic", fewest=1)
    chosen = usual_targets(domain) if targets is None else domain.clique(targets)
    advance = _counter(progress, total=len(ALPHAS) + 2)

    pairs = pair_tvd(real, synthetic, domain)
    worst = worst_cells(real, synthetic, domain=domain, cliques=alpha_way(domain, min(2, len(domain))))
    advance("pairs of columns")
    marginals = []
    for alpha in ALPHAS:
        errors = marginal_errors(real, synthetic, domain=domain, alpha=alpha)
        marginals += [errors] if errors else []
        advance(f"{alpha}-way marginals")
    svm = target_errors(split(real, synthetic), domain, targets=chosen, spread=spread)
    advance("predictions")
    return Evaluation(
        real_rows=len(real),
        synthetic_rows=len(synthetic),
        one_way=dict(zip(domain, np.diagonal(pairs).tolist(), strict=True)),
        marginals=tuple(marginals),
        pairs=tuple(tuple(row) for row in pairs.tolist()),
        worst_cells=worst,
        targets=svm,
        violations=dict(violations or {}),
    )


def rule_violations(codes: Codes, schema: Schema) -> dict[str, int]:
    """For each rule of the schema, how many rows of codes break it."""
    broken = {}
    for rule in schema.rules:
        rows = np.ones(len(codes), dtype=np.bool_)
        for name, forbidden in schema.forbidden_codes(rule).items():
            rows &= forbidden[codes[:, schema.domain.position(name)]]
        broken[rule.name] = int(rows.sum())
    return broken


def _encoded(frame: pd.DataFrame, schema: Schema, *, source: str) -> Codes:
    columns: Mapping[str, Any] = encode(frame, schema, source=source)
    return np.column_stack([columns[name] for name in schema.domain])


def _check(codes: Codes, domain: Domain, *, table: str, fewest: int) -> None:
    if codes.ndim != 2 or codes.shape[1] != len(domain):
        raise SourceError(
            f"the {table} table needs one column for each of the schema's columns, in their order"
        )
    if len(codes) < fewest:
        raise SourceError(f"the {table} table has too few rows to compare; give at least {fewest}")
    for name, size, column in zip(domain.attributes, domain.sizes, codes.T, strict=True):
        if column.min() < 0 or column.max() >= size:
            raise SourceError(
                f"the {table} table, column {name!r}: a code is outside the domain; encode it by this schema"
            )


def _counter(progress: Progress | None, *, total: int) -> Callable[[str], None]:
    done = 0

    def advance(finished: str) -> None:
        nonlocal done
        done += 1
        if progress:
            progress(finished, done, total)

    return advance
