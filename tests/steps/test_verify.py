"""Anybody can verify a release anywhere, and is told what was checked, what was not, and why."""

from __future__ import annotations

import json
import shutil
import sqlite3

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from support.small_release import write_release

from synth_core.errors import SpecError
from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.release.signing import public_pem, signature
from synth_core.release.verify import check_release
from synth_core.steps import STEPS, prepare, run_step

CHECKS = ("signature", "files", "certificate", "ledger")


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verified")
    address = prepare(write_release(folder, method="independent"), workspace=folder / "workspace")
    for step in STEPS:
        run_step(step, address)
    return folder / "workspace"


@pytest.fixture
def download(released, tmp_path):
    """The published folder alone, under a name of its own."""
    shutil.copytree(released / "public" / "r1", tmp_path / "anywhere")
    return tmp_path / "anywhere"


def outcomes(found):
    assert tuple(check.name for check in found.checks) == CHECKS
    return [check.outcome for check in found.checks]


def words(found, name):
    return next(check.words for check in found.checks if check.name == name)


@pytest.mark.slow
def test_a_release_in_its_workspace_is_checked_in_every_way(released):
    found = check_release(released / "public" / "r1")
    assert found.sound
    assert outcomes(found) == ["agrees"] * 4
    assert "by the key of this workspace" in words(found, "signature")
    assert words(found, "files").startswith("13 files")
    assert "its 1 spends have" in words(found, "certificate")
    records = len(SqlLedger(ledger_url(released, None)).records())
    assert f"chain of {records} records" in words(found, "ledger")


def test_a_downloaded_folder_is_verified_anywhere_and_says_that_no_ledger_was_checked(download):
    found = check_release(download)
    assert found.sound
    assert outcomes(found) == ["agrees", "agrees", "agrees", "not checked"]
    assert "proves nothing about who signed" in words(found, "signature")
    assert found.signer in words(found, "signature")
    assert words(found, "ledger") == "the folder lies in no workspace, and SYNTH_LEDGER_URL names no ledger"


def test_a_folder_called_public_is_nothing_special(download, tmp_path):
    shutil.copytree(download, tmp_path / "public" / "r1")
    assert outcomes(check_release(tmp_path / "public" / "r1"))[-1] == "not checked"


def test_a_changed_file_of_a_download_disagrees(download):
    (download / "quality.json").write_text("{}")
    found = check_release(download)
    assert outcomes(found) == ["agrees", "DISAGREES", "agrees", "not checked"]
    assert found.problems == ("quality.json: does not match its checksum",)


def test_a_shard_that_the_manifest_does_not_list_disagrees(download):
    """Readers take every file of the folder for rows of the table."""
    (download / "extract" / "part-00002.parquet").write_bytes(b"rows of somebody else")
    (download / "README.txt").write_text("how this was downloaded")
    found = check_release(download)
    assert found.problems == ("extract/part-00002.parquet: is not listed in the manifest",)
    (download / "extract" / "part-00002.parquet").unlink()
    assert words(check_release(download), "files").endswith("1 more in the folder are no part of the release")


@pytest.mark.parametrize("name", ["/etc/hostname", "../outside.json"])
def test_a_manifest_that_lists_files_outside_of_its_folder_disagrees(download, name):
    manifest = json.loads((download / "manifest.json").read_text())
    manifest["artifacts"][name] = "0" * 64
    (download / "manifest.json").write_text(json.dumps(manifest))
    assert f"manifest.json: lists {name!r}, which is no file of the folder" in check_release(download).problems


def test_the_publishers_key_from_elsewhere_proves_who_signed(released, download, tmp_path):
    key = tmp_path / "agency.pem"
    key.write_text((released / "public" / "r1" / "signing-key.pem").read_text().strip())
    found = check_release(download, key=key)
    assert found.sound
    assert words(found, "signature").startswith("manifest.json is signed by the key that was given")


def test_a_release_signed_by_somebody_else_is_found_with_the_publishers_key_alone(released, download, tmp_path):
    """A forger signs with a key of their own and puts it into the folder: only a key from elsewhere tells."""
    forger = Ed25519PrivateKey.generate()
    (download / "signing-key.pem").write_text(public_pem(forger))
    (download / "manifest.sig").write_text(signature((download / "manifest.json").read_bytes(), forger))
    assert check_release(download).sound
    key = tmp_path / "agency.pem"
    shutil.copy(released / "public" / "r1" / "signing-key.pem", key)
    assert check_release(download, key=key).problems == ("signing-key.pem: is not the key that was given",)
    key.write_text("no key")
    with pytest.raises(SpecError, match="cannot be read as an Ed25519 public key"):
        check_release(download, key=key)


def test_the_readers_own_signing_key_is_no_matter_of_a_download(download, tmp_path, monkeypatch):
    from synth_core.release.signing import private_key

    private_key(tmp_path / "own.key", create=True)
    monkeypatch.setenv("SYNTH_SIGNING_KEY", str(tmp_path / "own.key"))
    assert check_release(download).sound


@pytest.fixture
def named(released, tmp_path, monkeypatch):
    """The ledger at another place, which SYNTH_LEDGER_URL names; its workspace has none."""
    for path in released.glob("ledger.sqlite*"):
        shutil.copy(path, tmp_path / path.name)
    monkeypatch.setenv("SYNTH_LEDGER_URL", f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    return tmp_path / "ledger.sqlite"


@pytest.mark.usefixtures("named")
def test_a_ledger_that_is_named_is_checked(download):
    assert outcomes(check_release(download)) == ["agrees"] * 4


@pytest.mark.parametrize(
    "change",
    [
        "update ledger_records set purpose = 'another' where id = 3",
        "delete from ledger_records where id = (select max(id) from ledger_records)",
        "update ledger_answers set vector = zeroblob(8) where rowid = 1",
    ],
)
def test_a_tampered_ledger_that_is_named_is_found(download, named, change):
    """The chain is verified, not only what it says of this release."""
    with sqlite3.connect(named) as database:
        for (name,) in database.execute("select name from sqlite_master where type = 'trigger'").fetchall():
            database.execute(f'drop trigger "{name}"')
        database.execute(change)
    found = check_release(download)
    assert outcomes(found) == ["agrees", "agrees", "agrees", "DISAGREES"]
    assert all(problem.startswith("ledger:") for problem in found.problems)


def test_a_ledger_that_is_named_and_missing_disagrees(download, named):
    named.unlink()
    (problem,) = check_release(download).problems
    assert problem == f"ledger: {named} is missing; restore it, or check SYNTH_LEDGER_URL"


def test_a_workspace_without_its_ledger_disagrees(released, tmp_path):
    shutil.copytree(released, tmp_path / "workspace", ignore=shutil.ignore_patterns("ledger.sqlite*"))
    (problem,) = check_release(tmp_path / "workspace" / "public" / "r1").problems
    assert problem.startswith("ledger: ")
    assert "is missing" in problem


def test_a_ledger_of_other_data_says_nothing_of_a_download(download, named, tmp_path, monkeypatch):
    other = tmp_path / "other.sqlite"
    SqlLedger(f"sqlite:///{other}").accounts()
    monkeypatch.setenv("SYNTH_LEDGER_URL", f"sqlite:///{other}")
    found = check_release(download)
    assert found.sound
    assert words(found, "ledger") == "the ledger that SYNTH_LEDGER_URL names has no account of data set 'people'"


def test_a_broken_manifest_leaves_the_rest_unchecked(download):
    (download / "manifest.json").write_text("[1]")
    found = check_release(download)
    assert outcomes(found) == ["DISAGREES", "DISAGREES", "not checked", "not checked"]
