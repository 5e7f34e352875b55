"""The laws and statistical tests with fresh noise and fresh cases, for a given time: `make explore MINUTES=60`.

`make test` tries the same cases each time, so that it fails for everybody or nobody. This program looks for what it
leaves out. Every round has a seed for noise and hypothesis; a failure is printed with the command that replays it.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import subprocess
import sys
import time

ROOMS = (
    "tests/models",
    "tests/synthesizers",
    "tests/privacy",
    "tests/schema",
    "tests/storage",
    "tests/evaluation",
    "tests/ledger",
    "tests/release",
)
"""Folders of tests that state laws or bounds on noise."""
WITHOUT_SERVERS = "not (airflow or browser or postgres or bench or system_entropy)"
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+(?: .*?\])?)", re.MULTILINE)
PASSED = re.compile(r"(\d+) passed")


def explore(seed: int, *, workers: int, rooms: list[str]) -> tuple[int, list[str]]:
    """One round; how many tests passed, and the names of those that failed."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(workers), "--dist", "loadfile", "-rfE"]
    command += ["-p", "no:cacheprovider", f"--hypothesis-seed={seed}", "-m", WITHOUT_SERVERS, *rooms]
    ended = subprocess.run(
        command, env=os.environ | {"EXPLORE_SEED": str(seed)}, capture_output=True, text=True, check=False
    )
    failed = FAILED.findall(ended.stdout)
    if failed or ended.returncode not in (0, 1):
        print(ended.stdout[-20_000:], ended.stderr[-2_000:], sep="\n")
    passed = PASSED.search(ended.stdout)
    return int(passed[1]) if passed else 0, failed or (["(the round itself)"] if ended.returncode else [])


def main() -> int:
    """Rounds until the time is up; 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60, help="begin no round after this many minutes")
    parser.add_argument("--seed", type=int, help="run one round with this seed")
    parser.add_argument("--workers", type=int, default=2, help="processes that share a round")
    parser.add_argument("rooms", nargs="*", default=list(ROOMS), help="folders or files of tests")
    given = parser.parse_args()
    began, rounds, cases, failures = time.monotonic(), 0, 0, 0
    while True:
        seed = given.seed or 1 + secrets.randbelow(2**31 - 1)
        passed, failed = explore(seed, workers=given.workers, rooms=given.rooms)
        rounds, cases, failures = rounds + 1, cases + passed, failures + len(failed)
        for name in failed:
            print(f"replay: EXPLORE_SEED={seed} .venv/bin/pytest --hypothesis-seed={seed} '{name}'")
        minutes = (time.monotonic() - began) / 60
        print(
            f"round {rounds}, seed {seed}: {passed} passed, {len(failed)} failed; {minutes:.0f} min",
            flush=True,
        )
        if given.seed or minutes >= given.minutes:
            print(f"{rounds} rounds, {cases} tests passed, {failures} failed")
            return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
