"""Distributions fitted to noisy answers: from measurements to a model, and from a model to answers and rows.

model = estimate(domain, measurements)
model.marginal(("age", "sex"))
answer_queries(model, {"age": prefixes(domain.size("age"))})
condition_on(model, {"sex": 1}).sample(1000, rng)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from synth_core.models.bayesian_network import BayesianNetwork
    from synth_core.models.junction_tree import JunctionTree
    from synth_core.models.linear import (
        LinearMeasurement,
        estimate_total,
        evidence,
        group_codes,
        identity,
        mean,
        moments,
        prefixes,
        ranges,
        total,
    )
    from synth_core.models.loopy import estimate_loopy
    from synth_core.models.losses import AbsoluteLoss, DualQueryLoss, Loss, SquaredLoss
    from synth_core.models.markov_random_field import MarkovRandomField, answer_queries, condition_on, rake
    from synth_core.models.maximum_entropy import FitProgress, estimate
    from synth_core.models.mirror_descent import estimate_by_loss
    from synth_core.models.mixture import Mixture, load_model

_HOMES = (
    *("linear", "junction_tree", "markov_random_field", "losses", "maximum_entropy", "mirror_descent"),
    *("loopy", "bayesian_network", "mixture"),
)
"""Modules of the names below."""

__all__ = [
    "AbsoluteLoss",
    "BayesianNetwork",
    "DualQueryLoss",
    "FitProgress",
    "JunctionTree",
    "LinearMeasurement",
    "Loss",
    "MarkovRandomField",
    "Mixture",
    "SquaredLoss",
    "answer_queries",
    "condition_on",
    "estimate",
    "estimate_by_loss",
    "estimate_loopy",
    "estimate_total",
    "evidence",
    "group_codes",
    "identity",
    "load_model",
    "mean",
    "moments",
    "prefixes",
    "rake",
    "ranges",
    "total",
]


def __getattr__(name: str) -> Any:
    """Import the engine when one of its names is first used, so that commands that fit nothing stay light."""
    if name in __all__:
        for home in _HOMES:
            module = importlib.import_module(f"{__name__}.{home}")
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
