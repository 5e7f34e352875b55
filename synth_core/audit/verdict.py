"""What an audit's runs prove: a certified lower bound on the privacy lost, and whether the noise is what it claims.

Every bound is set so that a sound run fails with probability below about 1e-4, while the faults an audit is for
(too little noise, noise used twice, a query without noise, an unpaid query) lie far outside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, gammainccinv, ndtri

DOUBT = 1e-4
"""How often the certified bound may exceed the truth."""

_ALARM = 1e-6
_COLUMNS = 256


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """What one run gave away: log likelihood ratio of its outputs, standardised noise, charges and answers.

    `surprise` is by how much the chosen utilities exceeded their expectation, in all, and `spread` the variance that
    sum should have; both are 0 for a run without choices.
    """

    ratio: float
    noise: NDArray[np.float64]
    surprise: float
    spread: float
    mu2: Fraction
    charged: int
    stored: int
    strayed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCertificate:
    """The outcome of one audit; `failures` is empty when everything held."""

    title: str
    runs: int
    granted_mu: float
    claimed_mu: float
    mu_lower: float
    false_alarms: int
    misses: int
    noise_variance: float
    least_variance: float
    largest_variance: float
    largest_correlation: float
    choice_bias: float
    charged: int
    stored: int
    strayed: int
    failures: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing failed."""
        return not self.failures

    def to_json(self) -> dict[str, Any]:
        """The certificate as plain data."""
        return asdict(self) | {"failures": list(self.failures), "passed": self.passed}

    def rows(self) -> list[tuple[str, str]]:
        """The certificate as a table of what was checked and what was seen."""
        return [
            ("audited", self.title),
            ("runs", f"{self.runs:,}"),
            ("mu granted", f"{self.granted_mu:.4f}"),
            ("mu charged", f"{self.claimed_mu:.4f}"),
            ("mu certified to be lost", f"at least {self.mu_lower:.3f}"),
            ("guesses wrong without / with the canary", f"{self.false_alarms} / {self.misses}"),
            ("variance of standardised noise", f"{self.noise_variance:.4f}"),
            ("  smallest and largest of one output", f"{self.least_variance:.3f} … {self.largest_variance:.3f}"),
            ("largest correlation of two outputs", f"{self.largest_correlation:.3f}"),
            ("bias of choices, in standard deviations", f"{self.choice_bias:+.2f}"),
            ("charged / stored / other answers", f"{self.charged:,} / {self.stored:,} / {self.strayed:,}"),
            ("verdict", "passed" if self.passed else "FAILED: " + "; ".join(self.failures)),
        ]


def certify(
    title: str, *, without: Sequence[Evidence], canary: Sequence[Evidence], granted_mu2: Fraction
) -> AuditCertificate:
    """Judge the runs on data without the canary record against those on data with it."""
    runs = [*without, *canary]
    claimed_mu2 = max(run.mu2 for run in runs)
    false_alarms = sum(run.ratio > 0 for run in without)
    misses = sum(run.ratio <= 0 for run in canary)
    mu_lower = certified_mu((false_alarms, len(without)), (misses, len(canary)))
    noise = _aligned([run.noise for run in runs])
    variances = np.mean(noise**2, axis=0) if noise.size else np.ones(1)
    correlation = _largest_correlation(noise)
    spread = sum(run.spread for run in runs)
    bias = sum(run.surprise for run in runs) / math.sqrt(spread) if spread > 0 else 0.0
    charged, stored, strayed = (sum(getattr(run, field) for run in runs) for field in ("charged", "stored", "strayed"))
    failures = {
        "more was charged than granted": claimed_mu2 > granted_mu2,
        "runs can be told apart better than the charge allows": mu_lower**2 > claimed_mu2,
        "the noise does not have the variance that was charged": not _variances_fit(noise, variances),
        "noise of different outputs is correlated": correlation > _correlation_bound(noise),
        "choices do not have the probabilities that were charged": abs(bias) > ndtri(1 - _ALARM),
        "answers were given that are not the stored ones": strayed > 0,
        "stored answers and charges do not match one to one": stored != charged,
    }
    return AuditCertificate(
        title=title,
        runs=len(runs),
        granted_mu=math.sqrt(granted_mu2),
        claimed_mu=math.sqrt(claimed_mu2),
        mu_lower=mu_lower,
        false_alarms=false_alarms,
        misses=misses,
        noise_variance=float(variances.mean()),
        least_variance=float(variances.min()),
        largest_variance=float(variances.max()),
        largest_correlation=correlation,
        choice_bias=bias,
        charged=charged,
        stored=stored,
        strayed=strayed,
        failures=tuple(message for message, failed in failures.items() if failed),
    )


def certified_mu(false_alarms: tuple[int, int], misses: tuple[int, int]) -> float:
    """A mu that is really lost, up to DOUBT, by error counts (errors, runs) of one fixed guessing rule.

    mu-GDP forces Phi^-1(1 - false alarm rate) - Phi^-1(miss rate) <= mu on every rule. Both rates
    are replaced by their Clopper-Pearson upper bounds at DOUBT / 2, so the left side is too small rather than too
    large.
    """
    return max(0.0, -float(ndtri(_rate_above(*false_alarms)) + ndtri(_rate_above(*misses))))


def _rate_above(errors: int, runs: int) -> float:
    return 1.0 if errors == runs else float(betaincinv(errors + 1, runs - errors, 1 - DOUBT / 2))


def _aligned(noise: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """One row for each run, over output positions that all runs have (thinned out evenly when there are many).

    Runs may ask different questions, but at each position the standardised noise is standard and independent of
    all that was asked before, whatever was asked.
    """
    width = min(len(row) for row in noise)
    positions = np.unique(np.linspace(0, width - 1, min(width, _COLUMNS)).astype(np.int64))
    return np.array([row[positions] for row in noise]).reshape(len(noise), -1)


def _variances_fit(noise: NDArray[np.float64], variances: NDArray[np.float64]) -> bool:
    """Whether each output's sum of squares, and that of all, is a plausible chi-square."""
    if not noise.size:
        return True
    runs, outputs = noise.shape
    low, high = _chi_square_bounds(runs, _ALARM / outputs)
    all_low, all_high = _chi_square_bounds(noise.size, _ALARM)
    each = bool(((variances >= low) & (variances <= high)).all())
    return each and all_low <= float(variances.mean()) <= all_high


def _chi_square_bounds(freedom: int, alarm: float) -> tuple[float, float]:
    """Bounds of a mean of `freedom` squared standard normals, missed with probability `alarm` on each side."""
    half = freedom / 2
    return float(gammainccinv(half, 1 - alarm)) / half, float(gammainccinv(half, alarm)) / half


def _largest_correlation(noise: NDArray[np.float64]) -> float:
    moving = noise[:, noise.std(axis=0) > 1e-9] if noise.size else noise
    if moving.shape[1] < 2:
        return 0.0
    correlations = np.abs(np.corrcoef(moving, rowvar=False)) - np.eye(moving.shape[1])
    return float(correlations.max())


def _correlation_bound(noise: NDArray[np.float64]) -> float:
    runs, outputs = noise.shape
    pairs = max(1, outputs * (outputs - 1) // 2)
    return float(-ndtri(_ALARM / (2 * pairs))) / math.sqrt(runs)
