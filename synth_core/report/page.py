"""A page: one self-contained HTML file that opens without network and prints well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from synth_core.privacy.wording import loss_text, scientific
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
    return Tile(name="Privacy loss", value=f"ε = {loss_text(guarantee.epsilon)}", note=note)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("synth_core.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "scientific": scientific,
        "loss": loss_text,
        "percent": percent,
        "drawing": Markup,
    }
    return environment


_ENVIRONMENT = _environment()
