"""The numeric tests as other processors would run them: `make processors` prints a table of settings.

OpenBLAS, numpy and the compiler behind numba each choose their instructions by the processor, so results differ in
their last digits from machine to machine. Here each is made to choose otherwise; a test that passes by the rounding of
one machine alone fails in one of the rows.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy._core._multiarray_umath as umath

NUMERIC = (
    "tests/models",
    "tests/synthesizers",
    "tests/evaluation",
    "tests/privacy",
    "tests/release",
    "tests/steps",
)
"""Folders whose tests compare numbers or digests of releases."""
WITHOUT_SERVERS = "not (airflow or browser or postgres or bench)"
COUNTS = re.compile(r"(\d+) (passed|failed|error|skipped)")


def features() -> set[str]:
    """What this processor can do, in Linux's words."""
    found = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return set(found[1].split()) if found else set()


def dispatched() -> list[str]:
    """The instructions beyond its baseline that numpy uses here: X86_V3 is AVX2 and FMA, all others are AVX512."""
    return [name for name in umath.__cpu_dispatch__ if umath.__cpu_features__[name]]


def settings(scratch: Path) -> list[tuple[str, dict[str, str]]]:
    """Names and environments. What this processor cannot do is left out, because it would be ignored."""
    has = features()
    rows: list[tuple[str, dict[str, str]]] = [("as is", {})]
    cores = ["Prescott", *(["Haswell"] if "avx2" in has else []), *(["SkylakeX"] if "avx512f" in has else [])]
    rows += [(f"OPENBLAS_CORETYPE={core}", {"OPENBLAS_CORETYPE": core}) for core in cores]
    for name, off in (
        ("AVX512", lambda feature: feature != "X86_V3"),
        ("AVX2 and FMA", lambda feature: True),
    ):
        if given := [feature for feature in dispatched() if off(feature)]:
            rows.append((f"numpy without {name}", {"NPY_DISABLE_CPU_FEATURES": " ".join(given)}))
    generic = {"NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": str(scratch / "numba")}
    rows.append(("NUMBA_CPU_NAME=generic", generic))
    rows.append(("two threads", {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2", "TEST_THREADS": "2"}))
    return rows


def main() -> int:
    """Print the table; 1 if any row has a failure."""
    print("| setting | passed | failed | seconds |\n|---|---|---|---|", flush=True)
    failures = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, environment in settings(Path(scratch)):
            command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-rfE"]
            command += ["-p", "no:cacheprovider", "-m", WITHOUT_SERVERS, *(sys.argv[1:] or NUMERIC)]
            began = time.monotonic()
            ended = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
            seconds = time.monotonic() - began
            found = {word: int(number) for number, word in COUNTS.findall(ended.stdout[-500:])}
            bad = found.get("failed", 0) + found.get("error", 0)
            print(f"| {name} | {found.get('passed', 0)} | {bad} | {seconds:.0f} |", flush=True)
            if ended.returncode:
                failures.append(f"{name}:\n{ended.stdout[-20_000:]}{ended.stderr[-2_000:]}")
    print(*failures, sep="\n\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
