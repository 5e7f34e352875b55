"""Hostile input to everything that reads input: `make fuzz CASES=100000`, with a table of what it tried.

The number of a case says which reader it is for and how a sound input is changed. The reader may take it or refuse it
with a SynthError. Anything else is a failure: another error, a refusal that quotes a cell, a charge without a
release, a changed file that verifies, more than a minute, more than two gigabytes, a process that dies. Inputs that
failed are kept in tests/fuzz_corpus and tried first.

With `--releases` a case is a whole release of a random table under a random schema, with a random spec
(`support.random_releases`): `make fuzz-releases CASES=4000`.
"""

from __future__ import annotations

import argparse
import json
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from support import random_releases
from support.hostile_input import KINDS, MAX_SECONDS, Readers, judged, mutated

CORPUS = Path(__file__).parent / "fuzz_corpus"
BENCHMARKS = Path(__file__).parent / "benchmarks"
BATCH = 5_000
"""Cases of one process; a process that dies loses the rest of them, and they are tried by another."""
BATCH_OF_RELEASES = 100
"""The same of releases, each of which takes about a second."""
PROCESSES = 3
"""Processes at a time."""
MAX_KEPT = 10
"""Upper limit of the inputs of one reader in the corpus: many fail for one reason."""
MAX_BYTES = 2 << 30
"""Upper limit of the memory of a process, all its cases together."""


Case = tuple[int, str, str, str]
"""Number, kind, outcome, and what is wrong."""


def run_batch(cases: Iterator[Case]) -> int:
    """The cases of one process; prints how many of each kind ended how, and every failure."""
    outcomes: Counter[str] = Counter()
    for number, kind, outcome, wrong in cases:
        outcomes[f"{kind} {outcome}"] += 1
        if outcome == "failed":
            print(json.dumps({"case": number, "kind": kind, "wrong": wrong[:300]}), flush=True)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    print(json.dumps({"outcomes": outcomes, "memory": memory}), flush=True)
    return 0


def inputs(numbers: range, progress: Path) -> Iterator[Case]:
    """Hostile inputs; the one at work is in the folder `progress`."""
    with TemporaryDirectory() as folder:
        readers = Readers(Path(folder))
        sound = {kind: readers.sound(kind) for kind in KINDS}
        for number in numbers:
            kind = KINDS[number % len(KINDS)]
            content = mutated(sound[kind], np.random.default_rng([20, number]))
            (progress / "case").write_text(str(number))
            (progress / "input").write_bytes(content)
            outcome, wrong = judged(readers, kind, content)
            if outcome == "failed":
                _keep(kind, number, content)
            yield number, kind, outcome, wrong


def releases(numbers: range, progress: Path) -> Iterator[Case]:
    """Random releases, each with a limit of processor time."""
    for number in numbers:
        (progress / "case").write_text(str(number))
        signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
        with TemporaryDirectory() as folder:
            yield number, *random_releases.tried(number, Path(folder))
    signal.setitimer(signal.ITIMER_PROF, 0)


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
    parser.add_argument("--releases", action="store_true", help="random releases rather than hostile input")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="how many at a time")
    parser.add_argument("--table", action="store_true", help="write the table of benchmarks/")
    given = parser.parse_args()
    if given.batch:
        cases = releases if given.releases else inputs
        return run_batch(cases(range(int(given.batch[0]), int(given.batch[1])), Path(given.batch[2])))
    began, failures = time.monotonic(), []
    if not given.releases:
        failures += [(name, wrong) for name, how, wrong in replay() if how == "failed"]
    outcomes: Counter[str] = Counter()
    memory, end = 0, given.first + given.cases
    batch = BATCH_OF_RELEASES if given.releases else BATCH
    limits = {"began": began, "minutes": given.minutes, "releases": given.releases}
    with ThreadPoolExecutor(given.processes) as pool:
        for found, wrong, used in pool.map(
            lambda at: _in_processes(at, min(end, at + batch), **limits), range(given.first, end, batch)
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
        _write_table(outcomes, memory, time.monotonic() - began, releases=given.releases)
    return 1 if failures else 0


def _in_processes(
    first: int, last: int, *, began: float, minutes: float, releases: bool
) -> tuple[Counter[str], list[tuple[str, str]], int]:
    """The same of some cases, those after one at which a process died included; of none, if it is too late."""
    outcomes: Counter[str] = Counter()
    failures: list[tuple[str, str]] = []
    memory, at = 0, first
    while at < last and time.monotonic() - began < 60 * minutes:
        found, wrong, used, at = _in_a_process(at, last, releases=releases)
        outcomes, failures, memory = outcomes + found, failures + wrong, max(memory, used)
    return outcomes, failures, memory


def _in_a_process(first: int, last: int, *, releases: bool) -> tuple[Counter[str], list[tuple[str, str]], int, int]:
    """Outcomes, failures, memory in bytes, and the case to go on with."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, __file__, *["--releases"] * releases, "--batch", str(first), str(last), folder]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
        failed = [(f"case {line['case']} ({line['kind']})", line["wrong"]) for line in lines if "case" in line]
        if ended.returncode == 0:
            return Counter(lines[-1]["outcomes"]), failed, lines[-1]["memory"], last
        begun = Path(folder, "case")
        case = int(begun.read_text()) if begun.exists() else first
        kinds = random_releases.KINDS if releases else KINDS
        kind, said = kinds[case % len(kinds)], (ended.stderr.strip().splitlines() or [""])[-1]
        if begun.exists() and not releases:
            _keep(kind, case, Path(folder, "input").read_bytes())
        failed.append((f"case {case} ({kind})", f"its process ended: {ended.returncode} {said}"))
        return Counter({f"{kind} failed": 1}), failed, 0, case + 1


def _write_table(outcomes: Counter[str], memory: int, seconds: float, *, releases: bool) -> None:
    head, kinds = (RELEASES_HEAD, random_releases.KINDS) if releases else (INPUTS_HEAD, KINDS)
    rows = []
    for kind in dict.fromkeys(kinds):
        taken, refused, failed = (outcomes[f"{kind} {how}"] for how in ("taken", "refused", "failed"))
        rows.append(f"| {kind} | {taken + refused + failed:,} | {taken:,} | {refused:,} | {failed:,} |")
    total, failed = sum(outcomes.values()), sum(n for how, n in outcomes.items() if how.endswith("failed"))
    corpus = "" if releases else f" and {len(list(CORPUS.iterdir()))} of the corpus"
    end = (
        f"{total:,} cases{corpus}, {failed} failed, in {seconds:,.0f} s of a shared processor; "
        f"no process had more than {memory >> 20:,} MB."
    )
    name = "fuzz_releases.md" if releases else "fuzz.md"
    BENCHMARKS.joinpath(name).write_text(head + "\n".join([*rows, "", end, ""]))


INPUTS_HEAD = f"""# Hostile input to every reader

Written by `make fuzz`. A case is a sound input with one to eight changes, which follow from its number. It may be taken
or refused in one line. It fails if the reader raises anything else, quotes a cell of the confidential rows, charges
the account, takes a changed file for a signed one, or needs more than {MAX_SECONDS} s; and all fail if a process
needs more than {MAX_BYTES >> 30} GB. A published file or an export is taken where its change is found, a request
where a page answers it. `…_inside` changes what is in an archive, and packs it anew.

| reader | cases | taken | refused | failed |
|---|---:|---:|---:|---:|
"""

RELEASES_HEAD = f"""# Random releases

Written by `make fuzz-releases`. A case draws a schema, records and a request: kinds of columns, rules, units, methods,
presets and options, budgets, strata, protected tables, sums, replicates and everything else that a spec may say. It
may be refused in one line before anything is charged; what `synth plan` accepts, only for its records. Otherwise
it has to end in a release: it verifies, costs no more than was asked, its tables are as declared and keep the rules,
and it answers questions. It fails if not, if anything else is raised, a floating-point warning included, or if it needs
more than {MAX_SECONDS} s of processor time; and all fail if a process needs more than {MAX_BYTES >> 30} GB. `steps` are
releases as `synth run` makes them, `call` calls of `synthesize`, `linked` and `linked steps` the same
of two linked tables.

| release | cases | published | refused | failed |
|---|---:|---:|---:|---:|
"""


if __name__ == "__main__":
    sys.exit(main())
