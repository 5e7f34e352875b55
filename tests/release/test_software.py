"""A release names the software that made it, and the lock that software came from, where there is one."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from synth_core.release import manifest as module
from synth_core.release.manifest import lock_file, software

REPOSITORY = Path(__file__).resolve().parents[2]


def test_a_checkout_names_its_own_lock(monkeypatch, tmp_path):
    monkeypatch.setattr(module.sys, "prefix", str(tmp_path))
    expected = hashlib.sha256((REPOSITORY / "requirements.lock").read_bytes()).hexdigest()
    assert software()["lock_digest"] == expected


def test_the_environments_lock_comes_first(monkeypatch, tmp_path):
    monkeypatch.setattr(module.sys, "prefix", str(tmp_path))
    (tmp_path / module.LOCK).write_text("numpy==1\n")
    assert lock_file() == tmp_path / module.LOCK
    first = software()["lock_digest"]
    (tmp_path / module.LOCK).write_text("numpy==2\n")
    assert software()["lock_digest"] != first


def test_without_a_lock_nothing_is_claimed(monkeypatch, tmp_path):
    monkeypatch.setattr(module.sys, "prefix", str(tmp_path))
    monkeypatch.setattr(module, "__file__", str(tmp_path / "site" / "synth_core" / "release" / "software.py"))
    assert lock_file() is None
    assert software()["lock_digest"] is None


@pytest.mark.parametrize("image", ["airflow", "worker", "worker-cuda"])
def test_every_image_keeps_the_lock_it_was_built_from(image):
    text = (REPOSITORY / "docker" / f"{image}.Dockerfile").read_text(encoding="utf-8")
    assert f"cp {image}.lock /opt/synth/{module.LOCK}" in text
