"""Environments of other libraries: made on first use in a cache folder, never mixed with our own packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from contest.jobs import Peer
from synth_core.errors import SpecError


def python_of(peer: Peer, cache: Path) -> Path:
    """The interpreter of the peer's environment, which is created and filled if it is not there."""
    folder = cache / peer.name
    ready = folder / ".ready"
    interpreter = folder / "bin" / "python"
    wanted = "\n".join(peer.requirements)
    if ready.is_file() and ready.read_text(encoding="utf-8") == wanted:
        return interpreter
    cache.mkdir(parents=True, exist_ok=True)
    left_out = cache / f"{peer.name}-left-out.txt"
    left_out.write_text("".join(f'{name} ; sys_platform == "never"\n' for name in peer.leave_out), "utf-8")
    _run("venv", "--quiet", "--clear", "--python", sys.executable, str(folder), peer=peer)
    _run(
        *("pip", "install", "--quiet", "--python", str(interpreter), "--override", str(left_out)),
        *peer.requirements,
        peer=peer,
    )
    ready.write_text(wanted, encoding="utf-8")
    return interpreter


def _run(*arguments: str, peer: Peer) -> None:
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else "uv"
    try:
        subprocess.run([uv, *arguments], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        raise SpecError(
            f"the environment of {peer.name} could not be made; uv and a package index are needed, "
            "or leave it out of --peers"
        ) from None
