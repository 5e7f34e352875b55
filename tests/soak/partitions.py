"""One host of a production site is cut off from all others for half a minute, in the middle of a release.

The hosts are network namespaces that the program makes itself; it says so where the kernel does not allow them.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from infra.topology.hosts import SEPARATE
from infra.topology.partitions import CUTS

pytestmark = pytest.mark.timeout(3000)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What the program says of each cut, in their order."""
    allowed = subprocess.run([*SEPARATE, "true"], capture_output=True, check=False)
    if allowed.returncode:
        pytest.skip("network namespaces are not permitted here")
    errors = tmp_path_factory.mktemp("partitions") / "errors"
    with errors.open("w") as target:
        command = [sys.executable, "-m", "infra.topology.partitions"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=target, text=True, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, done.stdout[-1000:] + errors.read_text()[-1000:]
    return found


@pytest.mark.parametrize("number", range(len(CUTS)))
def test_a_release_goes_on_after_a_host_was_cut_off(outcomes, number, record_property):
    host, step = CUTS[number]
    record_property("case", f"{host} is cut off for 30 s during `{step}`")
    record_property("database", "PostgreSQL")
    seen = outcomes[number]
    record_property("given up", seen["given_up"])
    record_property("seconds", round(seen["seconds"]))
    assert (seen["host"], seen["step"], seen["problem"]) == (host, step, "")
