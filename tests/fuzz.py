"""Hostile input to everything that reads input: `make fuzz CASES=100000`, with a table of what it tried.

The number of a case says which reader it is for and how a sound input is changed. The reader may take it or refuse it
with a SynthError. Anything else is a failure: another error, a refusal that quotes a cell, a charge without a
release, a changed file that verifies, more than a minute, more than two gigabytes, a process that dies. Inputs that
failed are kept in tests/fuzz_corpus and tried first.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from support.hostile_input import KINDS, MAX_SECONDS, Readers, judged, mutated

CORPUS = Path(__file__).parent / "fuzz_corpus"
TABLE = Path(__file__).parent / "benchmarks" / "fuzz.md"
BATCH = 5_000
"""Cases of one process; a process that dies loses the rest of them, and they are tried by another."""
PROCESSES = 3
"""Processes at a time."""
MAX_KEPT = 10
"""Upper limit of the inputs of one reader in the corpus: many fail for one reason."""
MAX_BYTES = 2 << 30
"""Upper limit of the memory of a process, all its cases together."""


def run_batch(first: int, last: int, progress: Path) -> int:
    """The cases of one process; prints how many of each kind ended how, and every failure."""
    with TemporaryDirectory() as folder:
        readers = Readers(Path(folder))
        sound = {kind: readers.sound(kind) for kind in KINDS}
        outcomes: Counter[str] = Counter()
        for number in range(first, last):
            kind = KINDS[number % len(KINDS)]
            content = mutated(sound[kind], np.random.default_rng([20, number]))
            (progress / "case").write_text(str(number))
            (progress / "input").write_bytes(content)
            outcome, wrong = judged(readers, kind, content)
            outcomes[f"{kind} {outcome}"] += 1
            if outcome == "failed":
                _keep(kind, number, content)
                print(json.dumps({"case": number, "kind": kind, "wrong": wrong[:300]}), flush=True)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        print(json.dumps({"outcomes": outcomes, "memory": memory}), flush=True)
    return 0


def _keep(kind: str, case: int, content: bytes) -> None:
    if len(list(CORPUS.glob(f"{kind}-*"))) < MAX_KEPT:
        CORPUS.joinpath(f"{kind}-{case}").write_bytes(content)


def replay() -> Iterator[tuple[str, str, str]]:
    """Every input of the corpus with how it ends now."""
    with TemporaryDirectory() as folder:
        readers = Readers(Path(folder))
        for path in sorted(CORPUS.iterdir()):
            yield path.name, *judged(readers, path.name.partition("-")[0], path.read_bytes())


def main() -> int:
    """All cases, some at a time in a process of their own; 1 if one failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=1e6, help="after which no further cases are begun")
    parser.add_argument("--batch", nargs=3, metavar=("FIRST", "LAST", "PROGRESS"), help="used by the program itself")
    parser.add_argument("--table", action="store_true", help=f"write {TABLE.name}")
    given = parser.parse_args()
    if given.batch:
        return run_batch(int(given.batch[0]), int(given.batch[1]), Path(given.batch[2]))
    began, failures = time.monotonic(), [(name, wrong) for name, how, wrong in replay() if how == "failed"]
    outcomes: Counter[str] = Counter()
    memory, end = 0, given.first + given.cases
    starts = range(given.first, end, BATCH)
    with ThreadPoolExecutor(PROCESSES) as pool:
        for found, wrong, used in pool.map(
            lambda at: _in_processes(at, min(end, at + BATCH), began=began, minutes=given.minutes), starts
        ):
            outcomes, memory = outcomes + found, max(memory, used)
            failures += wrong
            said = f"{sum(outcomes.values()):,} cases, {len(failures)} failed"
            print(f"{said}, {time.monotonic() - began:.0f} s", flush=True)
    if memory > MAX_BYTES:
        failures.append(("memory", f"{memory >> 20} MB"))
    for name, what in failures:
        print(f"failed: {name}: {what}")
    if given.table:
        TABLE.write_text(_table(outcomes, memory, time.monotonic() - began, len(list(CORPUS.iterdir()))))
    return 1 if failures else 0


def _in_processes(
    first: int, last: int, *, began: float, minutes: float
) -> tuple[Counter[str], list[tuple[str, str]], int]:
    """The same of some cases, those after one at which a process died included; of none, if it is too late."""
    outcomes: Counter[str] = Counter()
    failures: list[tuple[str, str]] = []
    memory, at = 0, first
    while at < last and time.monotonic() - began < 60 * minutes:
        found, wrong, used, at = _in_a_process(at, last)
        outcomes, failures, memory = outcomes + found, failures + wrong, max(memory, used)
    return outcomes, failures, memory


def _in_a_process(first: int, last: int) -> tuple[Counter[str], list[tuple[str, str]], int, int]:
    """Outcomes, failures, memory in bytes, and the case to go on with."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--batch", str(first), str(last), folder]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
        failed = [(f"case {line['case']} ({line['kind']})", line["wrong"]) for line in lines if "case" in line]
        if ended.returncode == 0:
            return Counter(lines[-1]["outcomes"]), failed, lines[-1]["memory"], last
        begun = Path(folder, "case")
        case = int(begun.read_text()) if begun.exists() else first
        kind, said = KINDS[case % len(KINDS)], (ended.stderr.strip().splitlines() or [""])[-1]
        if begun.exists():
            _keep(kind, case, Path(folder, "input").read_bytes())
        failed.append((f"case {case} ({kind})", f"its process ended: {ended.returncode} {said}"))
        return Counter({f"{kind} failed": 1}), failed, 0, case + 1


def _table(outcomes: Counter[str], memory: int, seconds: float, corpus: int) -> str:
    rows = []
    for kind in KINDS:
        taken, refused, failed = (outcomes[f"{kind} {how}"] for how in ("taken", "refused", "failed"))
        rows.append(f"| {kind} | {taken + refused + failed:,} | {taken:,} | {refused:,} | {failed:,} |")
    total, failed = sum(outcomes.values()), sum(n for how, n in outcomes.items() if how.endswith("failed"))
    head = f"""# Hostile input to every reader

Written by `make fuzz`. A case is a sound input with one to eight changes, which follow from its number. It may be taken
or refused in one line. It fails if the reader raises anything else, quotes a cell of the confidential rows, charges
the account, takes a changed file for a signed one, or needs more than {MAX_SECONDS} s; and all fail if a process
needs more than {MAX_BYTES >> 30} GB. A published file or an export is taken where its change is found, a request
where a page answers it. `…_inside` changes what is in an archive, and packs it anew.

| reader | cases | taken | refused | failed |
|---|---:|---:|---:|---:|
"""
    end = (
        f"{total:,} cases and {corpus} of the corpus, {failed} failed, in {seconds:,.0f} s of a shared processor; "
        f"no process had more than {memory >> 20:,} MB."
    )
    return head + "\n".join([*rows, "", end, ""])


if __name__ == "__main__":
    sys.exit(main())
