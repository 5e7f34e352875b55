"""Fingerprints of source files, by which the ledger notices that two accounts are about to read the same one."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from synth_core.cluster import Cluster
from synth_core.errors import SourceError
from synth_core.privacy.wall import wall
from synth_core.storage.locations import open_file

PORTION_BYTES = 16 << 20
"""Bytes of a file that are read at once."""


def fingerprint_files(addresses: Sequence[str], *, key: bytes, cluster: Cluster) -> list[str]:
    """Keyed digests of the files' bytes, whatever their schema; without the key they say nothing about the data.

    Args:
        addresses: the files, each read once from begin to end, wherever the cluster has room.
        key: the workspace's secret; fingerprints are compared only where it is the same.
        cluster: where the files are read.

    Returns:
        One fingerprint for each file, in hexadecimal.

    Raises:
        SourceError: a file cannot be read.
    """
    return cluster.map(_fingerprint, list(addresses), key=key)


def _fingerprint(address: str, *, key: bytes) -> str:
    """Runs on a worker."""
    digest = hmac.new(key, b"source file:", digestmod="sha256")
    with wall():
        try:
            with open_file(address) as file:
                while portion := file.read(PORTION_BYTES):
                    digest.update(portion)
        except OSError:
            raise SourceError(
                "a file of the source cannot be read; check that all are there and readable"
            ) from None
    return f"file {digest.hexdigest()}"
