"""Renders the pages: escaped by default, strict about what a template may name, relative links only."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from synth_core.privacy.wording import exact_text, left_figure, loss_figure, scientific
from synth_core.release.certificate import account_sentence
from synth_core.web import charts

UNITS = ("bytes", "kB", "MB", "GB", "TB")


def render(template: str, **values: Any) -> str:
    """A page, style sheet or script."""
    return _ENVIRONMENT.get_template(f"{template}.j2").render(**values)


def size(count: int) -> str:
    """A file's size as people say it."""
    amount, unit = float(count), 0
    while amount >= 1000 and unit < len(UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{amount:.3g} {UNITS[unit]}" if unit else f"{count} bytes"


def sentence(words: str) -> str:
    """Words as a sentence, their own capitals kept."""
    return f"{words[:1].upper()}{words[1:]}."


def address(page: str, **query: str) -> str:
    """A relative address with a query."""
    return f"{page}?{urlencode(query, quote_via=quote)}" if query else page


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("synth_core.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "scientific": scientific,
        "exact": exact_text,
        "loss": loss_figure,
        "left": left_figure,
    }
    environment.filters |= {"size": size, "sentence": sentence}
    environment.globals |= {
        "account_sentence": account_sentence,
        "address": address,
        "balance_bar": charts.balance_bar,
        "release_bars": charts.release_bars,
        "course": charts.course,
    }
    return environment


_ENVIRONMENT = _environment()
