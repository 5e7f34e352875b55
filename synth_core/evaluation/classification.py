"""How well a classifier trained on synthetic rows predicts held-out real ones, each column as the target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.sparse import csr_matrix

from synth_core.domain import Domain
from synth_core.evaluation.distances import Codes
from synth_core.evaluation.result import TargetError
from synth_core.evaluation.svm import predicted
from synth_core.privacy.wall import wall

TRAINING_ROWS = 20_000
TEST_ROWS = 10_000
MOST_CLASSES = 64
"""Columns with more codes are not targets unless asked for: one SVM is trained for each class."""
_SPLIT_SEED = 2


class Spread(Protocol):
    """Runs a function on each item, perhaps on other machines; `Cluster.map` is one."""

    def __call__(self, work: Callable[..., Any], items: Sequence[Any], **constants: Any) -> list[Any]:
        """The results, in the order of the items."""
        ...


def one_by_one(work: Callable[..., Any], items: Sequence[Any], **constants: Any) -> list[Any]:
    """Run a function on each item, here and now."""
    return [work(item, **constants) for item in items]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Split:
    """Two training tables of equal length and the real rows held out to test them; it does not show them."""

    synthetic: Codes
    real: Codes
    held_out: Codes


def split(real: Codes, synthetic: Codes) -> Split:
    """Hold out a third of the real rows at random, and cut both training tables to the same random size.

    Equal sizes, because a difference in error should speak of the rows' quality and not of their number.
    """
    rng = np.random.default_rng(_SPLIT_SEED)
    held_out, rest = np.split(real[rng.permutation(len(real))], [max(1, len(real) // 3)])
    rows = min(TRAINING_ROWS, len(rest), len(synthetic))
    return Split(
        synthetic=synthetic[rng.permutation(len(synthetic))[:rows]],
        real=rest[:rows],
        held_out=held_out[:TEST_ROWS],
    )


def usual_targets(domain: Domain) -> tuple[str, ...]:
    """The columns worth predicting: more than one code, and not too many classes to train in seconds."""
    return tuple(name for name in domain if 1 < domain.size(name) <= MOST_CLASSES)


def target_errors(
    parts: Split, domain: Domain, *, targets: Sequence[str], spread: Spread = one_by_one
) -> tuple[TargetError, ...]:
    """Train on synthetic and on real rows and test both on the held-out rows, each target a task of its own."""
    if len(domain) < 2:
        return ()  # no other column to predict from
    return tuple(spread(target_error, targets, parts=parts, domain=domain))


def target_error(target: str, *, parts: Split, domain: Domain) -> TargetError:
    """The errors for one target; runs on a worker."""
    at = domain.position(target)
    with wall():
        commonest = np.bincount(parts.real[:, at]).argmax()
        return TargetError(
            target=target,
            synthetic=misclassified(target, training=parts.synthetic, test=parts.held_out, domain=domain),
            real=misclassified(target, training=parts.real, test=parts.held_out, domain=domain),
            majority=float((parts.held_out[:, at] != commonest).mean()),
        )


def misclassified(target: str, *, training: Codes, test: Codes, domain: Domain) -> float:
    """Share of the test rows whose target a linear SVM, trained on all other columns, predicts wrongly."""
    at = domain.position(target)
    features, unseen = _one_hot(training, domain, without=at), _one_hot(test, domain, without=at)
    return float((predicted(features, training[:, at], unseen) != test[:, at]).mean())


def _one_hot(codes: Codes, domain: Domain, *, without: int) -> csr_matrix:
    """One indicator column for each code of every attribute but the target's; each row holds d-1 ones."""
    sizes = np.delete(np.asarray(domain.sizes, dtype=np.int32), without)
    kept = np.delete(codes, without, axis=1)
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
    columns = (kept.astype(np.int32) + first).ravel()
    row_starts = np.arange(0, kept.size + 1, kept.shape[1], dtype=np.int32)
    return csr_matrix((np.ones(kept.size), columns, row_starts), shape=(len(kept), int(sizes.sum())))
