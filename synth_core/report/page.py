"""A page: one self-contained HTML file that opens without network and prints well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from synth_core.report.guarantee import Guarantee
from synth_core.report.tables import percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One number to read first, with what it is and what to hold it against."""

    name: str
    value: str
    note: str


def page(template: str, **content: Any) -> str:
    """Fill a template; equal content gives equal bytes."""
    return _ENVIRONMENT.get_template(template).render(**content)


def privacy_tile(guarantee: Guarantee) -> Tile:
    """The privacy loss, to be read first of all."""
    note = f"at δ = {scientific(guarantee.delta)}, per {guarantee.unit}"
    return Tile(name="Privacy loss", value=f"ε = {guarantee.epsilon:g}", note=note)


def scientific(value: float) -> str:
    """A small number as people write it: 1 × 10⁻⁵."""
    digits, exponent = f"{value:.2e}".split("e")
    power = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{float(digits):g} × 10{power}"


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("synth_core.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"scientific": scientific, "percent": percent, "drawing": Markup}
    return environment


_ENVIRONMENT = _environment()
