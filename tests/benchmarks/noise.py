"""Measure noise samples per second on one core, beside OpenDP in the same run, and write noise.md.

Run as `python tests/benchmarks/noise.py`.
"""

import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import opendp.prelude as dp

from synth_core.privacy.entropy import SystemEntropy
from synth_core.privacy.noise import GRID, discrete_gaussian, discrete_laplace, exponential_choice, noisy_counts

SIZE = 10_000_000
SIGMA = 27  # records; what a release at epsilon 0.8 adds to a marginal
ROUNDS = 5


def best_rate(work: Callable[[], object], size: int) -> float:
    """Samples per second in the best of some rounds, after one to warm up."""
    work()
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return size / min(seconds)


def opendp_rate(size: int = 20_000) -> float:
    """OpenDP's discrete Gaussian at the same scale."""
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    gaussian = dp.m.make_gaussian(*space, scale=float(SIGMA * GRID))
    zeros = [0] * size
    return best_rate(lambda: gaussian(zeros), size)


def measured() -> list[tuple[str, float]]:
    """Each row of the table: what, and how many a second."""
    entropy = SystemEntropy()
    counts = np.zeros(SIZE, dtype=np.int64)
    variance = Fraction(SIGMA) ** 2
    return [
        ("OpenDP discrete Gaussian", opendp_rate()),
        ("discrete Gaussian", best_rate(lambda: discrete_gaussian(variance * GRID**2, SIZE, entropy), SIZE)),
        ("noisy counts", best_rate(lambda: noisy_counts(counts, variance, entropy), SIZE)),
        (
            "discrete Laplace",
            best_rate(lambda: discrete_laplace(Fraction(SIGMA * GRID), SIZE, entropy), SIZE),
        ),
    ]


def others() -> list[tuple[str, float]]:
    """Rates that OpenDP has no counterpart for here."""
    entropy, utilities = SystemEntropy(), list(range(1000))
    return [
        ("random words", best_rate(lambda: [entropy.words(2**16) for _ in range(100)], 100 * 2**16)),
        (
            "choices among 1000",
            best_rate(lambda: exponential_choice(utilities, Fraction(1, 100), entropy), 1),
        ),
    ]


def main() -> None:
    """Write the table."""
    rows = measured()
    reference = rows[0][1]
    lines = [
        "# Exact noise: samples per second on one core",
        "",
        f"sigma = {SIGMA} records on the grid 1/{GRID}; best of {ROUNDS} rounds; words from AES-256-CTR.",
        "",
        "| what | per second | ratio to OpenDP |",
        "|---|---:|---:|",
        *(f"| {what} | {rate:,.0f} | {rate / reference:,.0f} |" for what, rate in rows),
        *(f"| {what} | {rate:,.0f} | |" for what, rate in others()),
        "",
    ]
    Path(__file__).with_suffix(".md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
