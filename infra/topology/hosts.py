"""Hosts that are network namespaces: each has one interface, one address and its own loopback, and no way out.

All hang on one bridge of the namespace that this program runs in, where the program itself has the first address. The
addresses are those that are reserved for documentation, so they mean nothing anywhere else.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from infra.local.services import Service, service, wait_until
from infra.local.site import SiteError

NETWORK = "198.51.100"
BRIDGE = "hub"
SEPARATE = ("unshare", "--net", "--pid", "--mount-proc", "--fork", "--kill-child")
"""A namespace of its own for network and processes: whatever was started in it ends with its first process."""


@dataclass(frozen=True, slots=True)
class Host:
    """A namespace, kept by a process that does nothing."""

    name: str
    address: str
    keeper: int

    def inside(self, command: Sequence[str]) -> list[str]:
        """A command as it is run on this host."""
        return ["nsenter", f"--net=/proc/{self.keeper}/ns/net", "--", *command]

    @property
    def cable(self) -> str:
        """The end of its cable that hangs on the bridge."""
        return f"cable{self.address.rpartition('.')[2]}"

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """A block in which nothing reaches this host and nothing leaves it; connections are not told."""
        _ip("link", "set", self.cable, "down")
        try:
            yield
        finally:
            _ip("link", "set", self.cable, "up")

    def runs(self, command: Sequence[str], *, env: Mapping[str, str], log: Path) -> AbstractContextManager[Service]:
        """A command that runs on this host for the time of a `with` block."""
        return service(self.name, self.inside(command), env=env, log=log)


def restart_apart(module: str) -> None:
    """Run this module again in namespaces of its own; it never returns.

    Where the kernel does not allow that, it says so: root is needed, and in a container the capability SYS_ADMIN.
    """
    allowed = subprocess.run([*SEPARATE, "true"], capture_output=True, text=True, check=False)
    if allowed.returncode:
        why = allowed.stderr.strip().splitlines()[-1:] or ["no reason was given"]
        raise SiteError(
            f"network namespaces are not permitted here ({why[0]}); run it as root, in a container with SYS_ADMIN"
        )
    os.execvp(SEPARATE[0], [*SEPARATE, sys.executable, "-m", module, "--apart"])  # noqa: S606


def bridge() -> str:
    """Make the bridge that all hosts hang on; returns this program's own address on it."""
    address = f"{NETWORK}.1"
    _ip("link", "set", "lo", "up")
    _ip("link", "add", BRIDGE, "type", "bridge")
    _ip("address", "add", f"{address}/24", "dev", BRIDGE)
    _ip("link", "set", BRIDGE, "up")
    return address


@contextmanager
def host(name: str, number: int, *, log: Path) -> Iterator[Host]:
    """A host on the bridge for the time of a `with` block."""
    outside = _namespace(os.getpid())
    with service(f"host {name}", ["unshare", "--net", "sleep", "infinity"], env=os.environ, log=log) as keeper:
        made = Host(name, f"{NETWORK}.{number}", keeper.process.pid)
        wait_until(lambda: _namespace(made.keeper) != outside, service=keeper)
        _ip("link", "add", "name", made.cable, "type", "veth", "peer", "name", "eth0", "netns", str(made.keeper))
        _ip("link", "set", made.cable, "master", BRIDGE, "up")
        for step in (("address", "add", f"{made.address}/24", "dev", "eth0"), ("link", "set", "eth0", "up")):
            _run(made.inside(["ip", *step]))
        _run(made.inside(["ip", "link", "set", "lo", "up"]))
        yield made


def _namespace(pid: int) -> str:
    return str(Path(f"/proc/{pid}/ns/net").readlink())


def _ip(*words: str) -> None:
    _run(["ip", *words])


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SiteError(f"{' '.join(command)}: {done.stderr.strip()}")
