"""The list of methods a spec may name; importing it costs nothing, so DAG files and forms can use it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, cast

from synth_core.errors import SpecError
from synth_core.names import suggest

if TYPE_CHECKING:
    from synth_core.synthesizers.base import Synthesizer


@dataclass(frozen=True, slots=True)
class Method:
    """What a reader should know before choosing a method; the module of its name has the same `PRESETS`."""

    name: str
    presets: Mapping[str, str]
    summary: str
    source: str


FOR_RELEASES = ("privmrf", "absyn", "privbayes")
"""The methods meant for releases, the first one unless there is a reason; all others are comparators."""

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "privmrf",
            {
                "default": "one-way marginals first, exponential-mechanism choice with a size penalty",
                "paper": "the published Algorithms 1-6 and constants, with sound accounting",
            },
            "Markov random field over marginals chosen round by round; best quality for most tables",
            "Cai, Lei, Wei & Xiao, PVLDB 14(11), 2021",
        ),
        Method(
            "absyn",
            {
                "default": "scores against noisy one-way marginals, then a second batch of triples",
                "paper": "the published selection and budgets of pairs, with sound accounting",
            },
            "pairs selected by what the others leave unexplained, measured in one batch; fast, cliques in parallel",
            "Jia et al., IEEE TIFS 19, 2024",
        ),
        Method(
            "privbayes",
            {
                "default": "one-way marginals first, then tables estimated by a graphical model (PB-PGM)",
                "paper": "the published network, consistency and generation without replacement, sound accounting",
                "pgm": "the paper's network and tables, estimated by a graphical model",
            },
            "a Bayesian network from pair scores, one table for each family; fast, and copes with large domains",
            "Bao, Xiao, Zhao, Zhang & Ding, Journal of Privacy and Confidentiality, 2021",
        ),
        Method(
            "mwem",
            {
                "default": "a graphical model is refitted each round (MWEM+PGM)",
                "factored": "multiplicative weights on disjoint groups of columns; small tables only",
            },
            "again and again the worst marginal of a declared workload is found, measured and fitted",
            "Hardt, Ligett & McSherry, NIPS 2012; McKenna, Sheldon & Miklau, ICML 2019",
        ),
        Method(
            "hdmm",
            {
                "default": "a graphical model is fitted to the noisy answers (HDMM+PGM)",
                "lls": "every table by its own least squares, joined by conditional sampling; for comparison",
            },
            "a declared workload of marginals, prefixes and ranges, measured at once by its best strategy",
            "McKenna, Miklau, Hay & Machanavajjhala, PVLDB 11(10), 2018",
        ),
        Method(
            "dualquery",
            {
                "default": "a graphical model is fitted by the likelihood of the picks (DualQuery+PGM)",
                "rows": "the rows found on the way, as published; any workload, for comparison",
            },
            "asks which queries of a declared workload are answered badly, never for counts",
            "Gaboardi, Gallego Arias, Hsu, Roth & Wu, ICML 2014; McKenna, Sheldon & Miklau, ICML 2019",
        ),
        Method(
            "mst",
            {
                "default": "most for the pairs, larger ones more; rare codes measured together",
                "paper": "a third of the budget each for columns, choosing and pairs",
            },
            "a spanning tree of the most dependent pairs: fast, robust, blind to all other dependence",
            "McKenna, Miklau & Sheldon, Journal of Privacy and Confidentiality, 2021",
        ),
        Method(
            "privmn",
            {
                "default": "PrivMN (sound): tables made consistent and non-negative in turns",
                "paper": "PrivMN (sound): with the paper's rule for negative counts",
                "laplace": "PrivMN (sound): with Laplace noise on tables, which costs more",
                "pure": "PrivMN (sound): with Laplace noise on all answers, so that the loss has no delta",
            },
            "a dependence graph and noisy tables of its clusters; the printed algorithm is refused",
            "Zhang, Zhao, Wei & Chen, EAI Endorsed Transactions, 2019, repaired",
        ),
        Method(
            "aim",
            {
                "default": "fewer and dearer rounds, gentle annealing, tables pooled for the last fit",
                "paper": "the published constants, with exact accounting",
            },
            "a declared workload (all triples): the worst marginal beyond its noise, round by round, annealed",
            "McKenna, Mullins, Sheldon & Miklau, PVLDB 15(11), 2022",
        ),
        Method(
            "swift",
            {"default": "pairs and triples inside a clique tree, in one weighted batch"},
            "no rounds: a clique tree from noisy distances, one batch of marginals, one fit; the fastest",
            "in the manner of SWIFT, the one-shot mechanism of google/dpsynth",
        ),
        Method(
            "independent",
            {"default": "every column on its own"},
            "one-way marginals only: the floor every other method must beat",
            "baseline",
        ),
    )
}
"""All methods by name."""


def unknown_method(name: str) -> SpecError:
    """Returns the refusal of a name that no method has."""
    return SpecError(f"unknown method {name!r}; choose one of: {', '.join(METHODS)}{suggest(name, METHODS)}")


def synthesizer(
    method: str,
    preset: str = "default",
    options: Mapping[str, Any] | None = None,
    *,
    protect: Sequence[Sequence[str]] = (),
    protect_share: float = 0.1,
) -> Synthesizer:
    """Build a method by name; unknown names are refused with the known ones.

    Args:
        method: its name.
        preset: the named set of its constants.
        options: constants of the preset to replace.
        protect: tables that are measured whatever the method would choose, each by the names of its columns.
        protect_share: share of the method's budget for these tables together.

    Returns:
        The method; whether it can keep the protected tables is said when it plans for a domain.

    Raises:
        SpecError: there is no such method, preset or option.
    """
    if method not in METHODS:
        raise unknown_method(method)
    entry = METHODS[method]
    if preset not in entry.presets:
        raise SpecError(f"method {method!r} has no preset {preset!r}; choose one of: {', '.join(entry.presets)}")
    from synth_core.synthesizers.base import with_options

    module = importlib.import_module(f"synth_core.synthesizers.{method}")
    name = f"{method}/{preset}" if len(entry.presets) > 1 else method
    built: Synthesizer = with_options(module.PRESETS[preset], options or {}, method=name)
    if not protect:
        return built
    from synth_core.privacy.budget import exact_share
    from synth_core.synthesizers.protection import Protecting

    return Protecting(built, name, tuple(map(tuple, protect)), exact_share(protect_share))


def method_options(method: str) -> list[tuple[str, dict[str, Any], str]]:
    """The options that a spec may set for a method.

    Args:
        method: its name.

    Returns:
        For each option its name, its value in each preset that has it, and one sentence on what it changes.
    """
    from synth_core.synthesizers.base import option_meaning

    built = {preset: synthesizer(method, preset) for preset in METHODS[method].presets}
    meanings: dict[str, str] = {}
    values: dict[str, dict[str, Any]] = {}
    for preset, one in built.items():
        for field in fields(cast(Any, one)):
            meanings.setdefault(field.name, option_meaning(field))
            values.setdefault(field.name, {})[preset] = getattr(one, field.name)
    return [(name, values[name], meaning) for name, meaning in meanings.items()]
