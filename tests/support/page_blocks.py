"""Runs the code blocks of a page as its reader would: in order, in one folder, and compares what they print.

- ```` ```python ```` and ```` ```bash ```` are run whole; in ```` ```console ````, `$ ` begins a command and the
  lines below it are its output, in which `…` stands for anything and a line of `…` alone for any lines. Output that
  begins with `synth: ` or `problem: ` is a refusal: the command must fail with these words.
- A block with `title="name"` is a file of that name, and is written instead of run.
- A block is left out if its first line says `# not run by the tests: ` and why; the reader sees it too.
- `<!-- after: page.md -->` lets a page begin where another one ended.

`programs` is the folder with `synth` and `python`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^( *)```(\w+)([^\n]*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
TITLE = re.compile(r'title="([^"]+)"')
LEFT_OUT = re.compile(r"\A(?:#|\$ #) not run by the tests: \S.+\n")
BEFORE = re.compile(r"<!-- after: (\S+\.md) -->")
RUN = ("python", "bash", "console")
REFUSAL = ("synth: ", "problem: ")
BASH = ("bash", "-euo", "pipefail", "-c")
SECONDS = 1500
PROGRAMS = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str
    text: str
    line: int

    @property
    def left_out(self) -> bool:
        """Whether its first line says why it is not run."""
        return bool(LEFT_OUT.match(self.text))

    @property
    def is_run(self) -> bool:
        """Whether a reader would run it."""
        return self.language in RUN and not self.title and not self.left_out


class BlockFailed(AssertionError):
    """A block did not do what its page says."""


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found = []
    for fence in FENCE.finditer(page):
        title = TITLE.search(fence[3])
        line = page.count("\n", 0, fence.start()) + 1
        found.append(Block(fence[2], title[1] if title else "", textwrap.dedent(fence[4]), line))
    return found


def page_before(page: str) -> str | None:
    """The page that this one goes on from."""
    found = BEFORE.search(page)
    return found[1] if found else None


def run_page(page: str, folder: Path, programs: Path = PROGRAMS) -> None:
    """Write the page's files and run its blocks in a folder; the first one that fails is named by its line."""
    for block in blocks(page):
        if block.title:
            (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.title).write_text(block.text, encoding="utf-8")
        elif block.is_run:
            run_block(block, folder, programs)


def run_block(block: Block, folder: Path, programs: Path = PROGRAMS) -> None:
    """Run one block."""
    if block.language == "python":
        _succeed([str(programs / "python"), "-c", block.text], block, folder, programs)
    elif block.language == "bash":
        _succeed([*BASH, block.text], block, folder, programs)
    else:
        for command, shown in conversation(block.text):
            if shown.startswith(REFUSAL):
                done = _run([*BASH, command], folder, programs)
                printed = done.stderr if done.returncode else "(it was not refused)"
            else:
                printed = _succeed([*BASH, command], block, folder, programs)
            if shown and not matches(shown, printed):
                raise BlockFailed(f"line {block.line}: {command}\nshown:\n{shown}\nprinted:\n{printed}")


def conversation(text: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output shown below it."""
    turns: list[tuple[str, str]] = []
    continued = False
    for line in text.splitlines():
        if line.startswith("$ "):
            turns.append((line[2:], ""))
        elif continued:
            turns[-1] = (f"{turns[-1][0]}\n{line}", "")
        elif line.strip():
            command, shown = turns[-1]
            turns[-1] = (command, f"{shown}{line.rstrip()}\n")
        continued = line.endswith("\\")
    return turns


def matches(shown: str, printed: str) -> bool:
    """Whether what was printed is what the page shows; empty lines and spaces at the end do not count."""
    lines = [line.rstrip() for line in printed.splitlines() if line.strip()]
    pattern = "".join(
        r"(?:.*\n)*?" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + r"\n"
        for line in shown.splitlines()
    )
    return bool(re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)))


def _succeed(command: list[str], block: Block, folder: Path, programs: Path) -> str:
    done = _run(command, folder, programs)
    if done.returncode:
        said = f"{command[-1]}\nexit code {done.returncode}\n{done.stderr[-2000:]}"
        raise BlockFailed(f"line {block.line}: {said}")
    return done.stdout


def _run(command: list[str], folder: Path, programs: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(programs), str(PROGRAMS), os.environ["PATH"]))
    modules = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    quiet = {"PATH": path, "COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb", "PYTHONPATH": modules}
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **quiet},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
