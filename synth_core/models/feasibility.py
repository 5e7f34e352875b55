"""Whether rules leave something to synthesize, decided from the schema alone, before anything is spent or read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth_core.domain import LARGEST_RULE, Domain, Impossible
from synth_core.errors import FeasibilityError
from synth_core.models.calibration import calibrate, inside_cliques
from synth_core.models.junction_tree import junction_tree
from synth_core.schema import Schema


def check_rules(schema: Schema) -> None:
    """Refuse rules that need too large a model, leave no record, or leave none with some declared value.

    A refusal names a smallest set of rules that are to blame: without any one of them there would be nothing to refuse.
    """
    domain = schema.domain
    if not domain.impossible:
        return
    _check_size(domain)
    if not _some_record(domain, domain.impossible):
        raise FeasibilityError(
            f"rules {_names(_blamed(domain, ()))} leave no possible record; remove or narrow one of them"
        )
    tree = junction_tree(domain, ())
    shares = inside_cliques(tree, calibrate(tree, []).beliefs, [(name,) for name in domain])
    for column in schema.columns:
        for code in np.flatnonzero(shares[column.name,] == 0).tolist():
            others = tuple(other for other in range(column.size) if other != code)
            blamed = _blamed(domain, (Impossible("", ((column.name, others),)),) if others else ())
            raise FeasibilityError(
                f"rules {_names(blamed)} leave no record in which {column.name!r} is {column.captions[code]}; "
                "narrow one of them, or take the value out of the column"
            )


def _check_size(domain: Domain) -> None:
    """All rules together, too, must leave a model that can be computed."""
    tree = junction_tree(domain, ())
    cells = domain.cells(tree.largest)
    if cells > LARGEST_RULE:
        inside = [rule for rule in domain.impossible if set(rule.attributes) <= set(tree.largest)]
        raise FeasibilityError(
            f"rules {_names(inside)} join {', '.join(tree.largest)} into a table of {cells:,} cells, over the limit "
            f"of {LARGEST_RULE:,}; give these columns coarser bins, or name fewer of them"
        )


def _some_record(domain: Domain, rules: Sequence[Impossible]) -> bool:
    ruled = Domain(domain.attributes, domain.sizes, tuple(rules))
    try:
        calibrate(junction_tree(ruled, ()), [])
    except FeasibilityError:
        return False
    return True


def _blamed(domain: Domain, evidence: tuple[Impossible, ...]) -> list[Impossible]:
    """A smallest set of rules that leave no record where the evidence holds: each in turn is left out if it can be."""
    blamed = list(domain.impossible)
    for name in dict.fromkeys(rule.rule for rule in domain.impossible):
        others = [rule for rule in blamed if rule.rule != name]
        if not _some_record(domain, (*others, *evidence)):
            blamed = others
    return blamed


def _names(rules: Sequence[Impossible]) -> str:
    return ", ".join(repr(name) for name in dict.fromkeys(rule.rule for rule in rules))
