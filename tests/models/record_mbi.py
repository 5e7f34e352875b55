"""Asks mbi, the library of Private-PGM's authors, for the marginals of a few models, and records them for the tests.

Run as `python tests/models/record_mbi.py PYTHON`, where PYTHON is an interpreter that has mbi (`pip install mbi`). The
record has the inputs too, so a test needs neither mbi nor the same stream of random numbers.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

RECORD = Path(__file__).with_name("mbi_marginals.json")
PEER = Path(__file__).resolve().parents[1] / "benchmarks" / "peers" / "engine_mbi.py"
SIZES = {"a": 2, "b": 3, "c": 4, "d": 5}
CLIQUES = {
    "tree": ["ab", "bc", "cd"],
    "cycle": ["ab", "bc", "cd", "ad"],
    "missing attribute": ["a", "bd"],
    "one clique": ["abcd"],
    "nested": ["abc", "ab", "c", "cd"],
    "all pairs": ["ab", "ac", "ad", "bc", "bd", "cd"],
    "independent": ["a", "b", "c", "d"],
    "permuted duplicates": ["ab", "dc", "ba", "db"],
}
VERSIONS = """
import json, sys
from importlib.metadata import version
found = {name: version(name) for name in ("mbi", "jax", "numpy")}
print(json.dumps({**found, "python": sys.version.split()[0]}))
"""


def make_potentials() -> dict[str, list[float]]:
    """Returns the log potentials of every case: one table after the other, each in the order of its clique."""
    found = {}
    for number, (name, cliques) in enumerate(CLIQUES.items()):
        rng = np.random.default_rng(number)
        cells = sum(int(np.prod([SIZES[attribute] for attribute in clique])) for clique in cliques)
        found[name] = (rng.normal(size=cells) * 2).tolist()
    return found


def ask_mbi(python: str, potentials: dict[str, list[float]]) -> dict[str, list[float]]:
    """Returns mbi's marginals of every case, laid out as the potentials are."""
    with tempfile.TemporaryDirectory() as folder:
        for name, cliques in CLIQUES.items():
            np.savez(
                Path(folder) / f"{name}.npz",
                attributes=np.array(list(SIZES)),
                sizes=np.array(list(SIZES.values())),
                cliques=np.array(["|".join(clique) for clique in cliques]),
                values=np.array(potentials[name]),
            )
        return dict(_run(python, str(PEER), "marginals", folder))


def _run(python: str, *arguments: str) -> Any:
    done = subprocess.run([python, *arguments], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Writes the record."""
    (python,) = sys.argv[1:]
    potentials = make_potentials()
    marginals = ask_mbi(python, potentials)
    cases = {
        name: {"cliques": cliques, "potentials": potentials[name], "marginals": marginals[name]}
        for name, cliques in CLIQUES.items()
    }
    record = {"versions": _run(python, "-c", VERSIONS), "sizes": SIZES, "cases": cases}
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
