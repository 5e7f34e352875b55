"""Pictures of a benchmark: error against epsilon, one panel for each data set, one line for each contestant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from contest.jobs import REAL
from contest.results import ALPHAS

_STYLE = {
    "svg.fonttype": "path",
    "svg.hashsalt": "utility",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}
_MARKERS = "osD^vPX*<>"
_COLOURS = ("#0f766e", "#b45309", "#5f6b7a", "#7c3aed", "#be123c", "#1d4ed8", "#4d7c0f", "#a16207", "#0e7490")


def draw(means: pd.DataFrame, out: Path) -> list[Path]:
    """Write the pictures that the table has numbers for, as SVG; returns their addresses."""
    written = []
    alphas = [alpha for alpha in ALPHAS if alpha > 2 and f"tvd{alpha}" in means]
    if alphas:
        titles = [f"mean TVD of {alpha}-way marginals" for alpha in alphas]
        metrics = [f"tvd{alpha}" for alpha in alphas]
        written.append(_grid(means, metrics, titles=titles, path=out / "utility-tvd.svg", logarithmic=True))
    if "svm_error" in means:
        titles = ["mean misclassification rate"]
        path = out / "utility-svm.svg"
        written.append(_grid(means, ["svm_error"], titles=titles, path=path, logarithmic=False))
    return written


def _grid(means: pd.DataFrame, metrics: Sequence[str], *, titles: Sequence[str], path: Path, logarithmic: bool) -> Path:
    datasets = sorted(means.dataset.unique())
    names = sorted(set(means.contestant) - {REAL})
    with rc_context(_STYLE):
        figure = Figure(figsize=(3.0 * len(datasets) + 0.4, 2.5 * len(metrics) + 0.6), layout="constrained")
        panels = figure.subplots(len(metrics), len(datasets), squeeze=False, sharex=True)
        for row, metric in enumerate(metrics):
            for column, dataset in enumerate(datasets):
                axes = panels[row][column]
                _lines(axes, means[means.dataset == dataset], metric, names)
                axes.set_yscale("log" if logarithmic else "linear")
                axes.set_xscale("log", base=2)
                axes.set_title(dataset if row == 0 else "")
                axes.grid(color="#d9dee5", linewidth=0.6)
                if row == len(metrics) - 1:
                    axes.set_xlabel("epsilon")
            panels[row][0].set_ylabel(titles[row])
        epsilons = sorted(set(means.epsilon) - {0.0})
        panels[0][0].set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        panels[0][0].minorticks_off()
        handles: dict[str, Any] = {}
        for axes in figure.axes:
            handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=min(5, len(handles)))
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    return path


def _lines(axes: Axes, part: pd.DataFrame, metric: str, names: Sequence[str]) -> None:
    for number, name in enumerate(names):
        line = part[(part.contestant == name) & part[metric].notna()].sort_values("epsilon")
        if line.empty:
            continue
        axes.plot(
            line.epsilon,
            line[metric],
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=4.5,
            color=_COLOURS[number % len(_COLOURS)],
            linewidth=1.3,
            label=name,
        )
    real = part[(part.contestant == REAL) & part[metric].notna()]
    if not real.empty:
        axes.axhline(
            float(real[metric].iloc[0]),
            color="#1f2933",
            linestyle=(0, (3, 2)),
            label="real rows (not private)",
        )
