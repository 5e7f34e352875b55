"""Files are whole or absent."""

from __future__ import annotations

import hashlib

import pytest

from synth_core.files import atomic_write, sha256_file


def test_a_file_takes_its_name_when_the_block_ends(tmp_path):
    path = tmp_path / "model.npz"
    with atomic_write(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
        assert temporary.suffix == ".npz"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_keeps_the_old_content_and_leaves_nothing(tmp_path):
    path = tmp_path / "model.npz"
    path.write_text("old")

    def fail():
        with atomic_write(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_checksum_is_that_of_the_bytes(tmp_path):
    (tmp_path / "a").write_bytes(b"abc" * 100_000)
    assert sha256_file(tmp_path / "a") == hashlib.sha256(b"abc" * 100_000).hexdigest()
