"""Cost and memory over rows, columns and workers, in short; `synth bench scale` has all the options.

The committed tables (scale.jsonl, scale.md, and from them docs/capacity.md) were made by the same command with larger
sizes.
"""

from __future__ import annotations

from pathlib import Path

from synth_core.bench.scale import PARTS, benchmark, markdown, wanted

REPOSITORY = Path(__file__).resolve().parents[2]


def main() -> None:
    out = REPOSITORY / "bench-out" / "scale"
    tasks = wanted(PARTS, rows=[100_000, 300_000], columns=[15], workers=[2])
    print(markdown(benchmark(tasks, out, tell=print)))


if __name__ == "__main__":
    main()
