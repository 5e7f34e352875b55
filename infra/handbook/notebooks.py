"""Runs the notebooks of the handbook and stores their outputs: `python -m infra.handbook.notebooks`.

Cells run as in a kernel, with what an installation has: no Jupyter is needed. Noise has no seed, so the numbers differ
each time; the tests run the same cells and hold them to the outputs that are stored.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).resolve().parents[2] / "docs" / "notebooks"

PROGRAM = """
import ast, contextlib, io, json, sys
from pathlib import Path

names, outputs = {"__name__": "__main__"}, []
for source in json.loads(Path(sys.argv[1]).read_text()):
    tree, value = ast.parse(source), None
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    said = []
    if printed.getvalue():
        said.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue()})
    if value is not None:
        data = {"text/plain": repr(value)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_()
        said.append({"output_type": "execute_result", "data": data, "metadata": {}})
    outputs.append(said)
Path(sys.argv[2]).write_text(json.dumps(outputs))
"""
"""What a kernel does with cells: what they print, and what their last line is worth."""


def run_notebook(notebook: dict[str, Any], folder: Path) -> list[list[dict[str, Any]]]:
    """Returns the outputs of its code cells, run in one process and in this folder; RuntimeError if one fails."""
    sources = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    (folder / "cells.json").write_text(json.dumps(sources), encoding="utf-8")
    command = [sys.executable, "-c", PROGRAM, "cells.json", "outputs.json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the notebook failed: {done.stderr.strip().splitlines()[-1]}")
    found: list[list[dict[str, Any]]] = json.loads((folder / "outputs.json").read_text(encoding="utf-8"))
    return found


def store_outputs(path: Path) -> None:
    """Run a notebook and write it with what its cells gave."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        outputs = run_notebook(notebook, Path(folder))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, (cell, said) in enumerate(zip(code, outputs, strict=True), start=1):
        results = [{"execution_count": number} if one["output_type"] == "execute_result" else {} for one in said]
        cell |= {"execution_count": number, "outputs": [one | more for one, more in zip(said, results, strict=True)]}
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
        store_outputs(notebook)
        sys.stdout.write(f"written: {notebook.relative_to(NOTEBOOKS.parents[1])}\n")
