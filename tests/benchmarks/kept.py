"""What a benchmark has seen, one JSON object a line beside it, so that no run is made twice."""

import json
from pathlib import Path
from typing import Any


def read_results(path: Path) -> list[dict[str, Any]]:
    """Every result so far, the oldest first."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def keep_result(path: Path, result: dict[str, Any]) -> None:
    """Add a result."""
    with path.open("a") as file:
        file.write(json.dumps(result) + "\n")
