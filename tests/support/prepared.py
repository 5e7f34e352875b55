"""Python processes that begin with everything imported: most of a command's seconds are its imports.

A server imports what commands need and then forks for each request. A client stands in for `synth`, or for `python -c`:
it hands its arguments, folder, environment and open files to the fork, waits, and ends with the fork's exit code. So a
test that runs many commands runs the same code in as many processes, and imports it once.
"""

from __future__ import annotations

import gc
import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SYNTH = "from synth_core.__main__ import main; main()"
"""The program of the console script `synth`."""


@contextmanager
def commands(folder: Path) -> Iterator[Path]:
    """Write `synth` and `python` into a folder for the front of a PATH; they work until the context ends."""
    address = folder / "socket"
    client = f"exec {shlex.join([sys.executable, '-IS', str(Path(__file__).resolve()), str(address)])}"
    other = f'[ "$1" = -c ] || exec {shlex.quote(sys.executable)} "$@"'
    for name, command in {
        "synth": f"{client} {shlex.quote(SYNTH)}",
        "python": f"{other}\nshift\n{client}",
    }.items():
        (folder / name).write_text(f'#!/bin/sh\n{command} "$@"\n')
        (folder / name).chmod(0o755)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(address))
    listening.listen()
    server = [sys.executable, __file__, str(listening.fileno())]
    with subprocess.Popen(server, stdin=subprocess.PIPE, pass_fds=[listening.fileno()]) as running:
        listening.close()
        yield folder
        running.communicate()  # the end of its input ends it


def ask(address: str, program: str, arguments: list[str]) -> int:
    """Have a program run in a fork of the server, on this process's own files; returns its exit code."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        request = {
            "program": program,
            "arguments": arguments,
            "folder": str(Path.cwd()),
            "umask": os.umask(0),
            "env": dict(os.environ),
        }
        socket.send_fds(server, [b"."], [0, 1, 2])
        server.sendall(json.dumps(request).encode())
        server.shutdown(socket.SHUT_WR)
        return int(server.recv(16) or b"1")


def serve(listening: socket.socket) -> str:
    """Fork for each request until the input ends; returns the program in the fork that is to run it."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait for the programs
    while listening in select.select([listening, 0], [], [])[0]:
        client, _ = listening.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listening.close()
            return _run_for(client)
        client.close()
    raise SystemExit


def _run_for(client: socket.socket) -> str:
    _, files, _, _ = socket.recv_fds(client, 1, 3)
    request = json.loads(b"".join(iter(lambda: client.recv(1 << 16), b"")))
    child = os.fork()
    if child:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        client.sendall(str(code).encode())
        os._exit(0)
    client.close()
    for own, given in enumerate(files):
        os.dup2(given, own)
        os.close(given)
    os.chdir(request["folder"])
    os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["env"])
    added = [place for place in request["env"].get("PYTHONPATH", "").split(os.pathsep) if place]
    sys.path[:1] = ["", *added]  # noqa: TID251 - as an interpreter that starts would
    sys.argv = ["-c", *request["arguments"]]
    return str(request["program"])


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(ask(sys.argv[1], sys.argv[2], sys.argv[3:]))
    import pandas  # noqa: F401

    from synth_core.steps import import_steps

    import_steps()
    gc.freeze()  # forks neither search nor copy what was imported
    exec(compile(serve(socket.socket(fileno=int(sys.argv[1]))), "<program>", "exec"), {"__name__": "__main__"})
