"""What a benchmark compares: data sets, contestants, and the jobs that pair them with an epsilon and a run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Codes, Domain
from synth_core.errors import SourceError, SpecError
from synth_core.synthesizers.methods import METHODS

FOLDS = 5
OURS, REAL = "synth-core", "real"
MEASURES = ("marginals", "svm")
_FOLD_SEED = 5


@dataclass(frozen=True, slots=True)
class Peer:
    """A library to compare with: what is installed into its own environment, and the methods it is asked for.

    `leave_out` are dependencies the methods do not need, too large to install for nothing.
    """

    name: str
    requirements: tuple[str, ...]
    methods: tuple[str, ...]
    leave_out: tuple[str, ...] = ()


PEERS = {
    peer.name: peer
    for peer in (
        Peer("mbi", ("mbi==2.0.0",), ("mst",)),
        Peer("dpmm", ("dpmm==0.1.9",), ("mst", "aim", "privbayes")),
        Peer("smartnoise", ("smartnoise-synth==1.0.8",), ("mst", "aim"), leave_out=("torch", "opacus")),
    )
}


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to make a table: a library and its method, `preset` only for our own."""

    library: str
    method: str
    preset: str = "default"

    @property
    def name(self) -> str:
        """How tables and pictures call it."""
        if self.library == OURS:
            return self.method if self.preset == "default" else f"{self.method}:{self.preset}"
        return self.library if self.library == REAL else f"{self.library}/{self.method}"


REAL_ROWS = Contestant(REAL, REAL)
"""The training rows themselves: what a classifier reaches without privacy."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """Integer-coded rows and their declared domain."""

    name: str
    domain: Domain
    codes: Codes

    def training(self, fold: int | None) -> Codes:
        """The rows a contestant may see: all, or those outside the fold."""
        return self.codes if fold is None else self.codes[self._folds() != fold]

    def held_out(self, fold: int) -> Codes:
        """The rows of the fold, which no contestant sees."""
        rows: Codes = self.codes[self._folds() == fold]
        return rows

    def _folds(self) -> NDArray[np.int64]:
        folds: NDArray[np.int64] = np.random.default_rng(_FOLD_SEED).permutation(len(self.codes)) % FOLDS
        return folds


@dataclass(frozen=True, slots=True)
class Job:
    """One table to make and to judge; with a fold, it is made from the other folds and judged by an SVM."""

    dataset: str
    contestant: Contestant
    epsilon: float
    run: int
    fold: int | None = None


def contestants(methods: Sequence[str], peers: Sequence[str]) -> list[Contestant]:
    """Ours as `method` or `method:preset`, peers as `library` (all its methods) or `library/method`."""
    found = []
    for text in methods:
        method, _, preset = text.partition(":")
        if method not in METHODS or (preset or "default") not in METHODS[method].presets:
            raise SpecError(f"unknown method {text!r}; `synth methods` lists methods and presets")
        found.append(Contestant(OURS, method, preset or "default"))
    for text in peers:
        library, _, method = text.partition("/")
        if library not in PEERS or (method and method not in PEERS[library].methods):
            known = ", ".join(f"{peer.name}/{name}" for peer in PEERS.values() for name in peer.methods)
            raise SpecError(f"unknown peer {text!r}; choose among: {known}")
        found += [Contestant(library, name) for name in ([method] if method else PEERS[library].methods)]
    return list(dict.fromkeys(found))


def load(name: str, folder: Path) -> DataSet:
    """Read NAME.csv (integer codes, one header line) and NAME-domain.json (column: number of codes)."""
    try:
        sizes = json.loads((folder / f"{name}-domain.json").read_text(encoding="utf-8"))
        with (folder / f"{name}.csv").open(encoding="utf-8") as file:
            header = file.readline().strip().split(",")
            codes = np.loadtxt(file, delimiter=",", dtype=np.int32, ndmin=2)
    except (OSError, ValueError):
        raise SourceError(
            f"{folder}: data set {name!r} needs {name}.csv with integer codes and {name}-domain.json"
        ) from None
    domain = Domain.of(sizes)
    if header != list(domain.attributes) or codes.shape[1] != len(domain) or (codes >= domain.sizes).any():
        raise SourceError(f"{folder}: {name}.csv does not fit {name}-domain.json; correct one of them")
    return DataSet(name, domain, codes)


def jobs(
    datasets: Sequence[str],
    entered: Sequence[Contestant],
    *,
    epsilons: Sequence[float],
    runs: int,
    measures: Sequence[str],
) -> Iterator[Job]:
    """Every job of a benchmark, the first run of everything before the second of anything."""
    for run, dataset, epsilon in product(range(runs), datasets, epsilons):
        if "marginals" in measures:
            yield from (Job(dataset, contestant, epsilon, run) for contestant in entered)
        if "svm" in measures:
            for contestant, fold in product(entered, range(FOLDS)):
                yield Job(dataset, contestant, epsilon, run, fold)
    if "svm" in measures:
        yield from (Job(dataset, REAL_ROWS, 0.0, 0, fold) for dataset in datasets for fold in range(FOLDS))
