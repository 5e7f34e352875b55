"""Names are matched whole, and no release can take the place of a key."""

import pytest
from support.small_release import run_all, write_release

from synth_core.errors import LedgerError, SpecError
from synth_core.events.office import Office
from synth_core.ledger.sql import open_ledger
from synth_core.names import RESERVED
from synth_core.privacy.accounts import Account
from synth_core.release.paths import ReleasePaths
from synth_core.release.spec import ReleaseSpec
from synth_core.release.verify import check_release
from synth_core.steps import prepare

GOOD = {"release": "r1", "dataset": "people", "source": "a.csv", "schema": "s.yaml", "epsilon": 1, "delta": 1e-6}


@pytest.mark.parametrize("key", ["release", "dataset", "unit", "source", "schema"])
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\0", "\x1b[2J"])
def test_a_name_that_looks_like_another_is_refused(key, ending):
    with pytest.raises(SpecError, match=f"{key}: "):
        ReleaseSpec.parse(GOOD | {key: f"{GOOD.get(key, 'person')}{ending}"})


@pytest.mark.parametrize(
    "change", [{"dataset": "people\n"}, {"dataset": ""}, {"unit": "person\n"}, {"unit": " person"}]
)
def test_an_account_that_looks_like_another_is_not_declared(tmp_path, change):
    ledger = open_ledger(tmp_path, create=True)
    named = {"dataset": "people", "unit": "person"} | change
    with pytest.raises(LedgerError, match=r"dataset|unit"):
        ledger.declare(Account(**named, delta=1e-6, cap_epsilon=1.0, largest_n=1000), actor="test")
    assert ledger.accounts() == []


def test_a_page_of_a_release_that_looks_like_another_is_refused(tmp_path):
    with pytest.raises(SpecError, match="not the name of a release"):
        Office(tmp_path).paths("r1\n")


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_no_release_takes_the_place_of_a_key(tmp_path, name):
    spec = write_release(tmp_path, release=name)
    with pytest.raises(SpecError, match="is the name of a key"):
        prepare(spec, workspace=tmp_path / "workspace")
    assert not (tmp_path / "workspace" / "confidential").exists()


def test_keys_lie_where_no_release_can(tmp_path):
    workspace = tmp_path / "workspace"
    run_all(write_release(tmp_path, method="independent"), workspace)
    keys = workspace / "confidential" / ".keys"
    assert {path.name: path.stat().st_mode & 0o777 for path in keys.iterdir()} == dict.fromkeys(RESERVED, 0o600)
    assert keys.stat().st_mode & 0o777 == 0o700
    with pytest.raises(SpecError, match="release: "):
        prepare(write_release(tmp_path, release=".keys"), workspace=workspace)


def test_keys_of_an_earlier_version_are_used_where_they_lie(tmp_path):
    workspace = tmp_path / "workspace"
    spec = write_release(tmp_path, method="independent")
    run_all(spec, workspace)
    zone = workspace / "confidential"
    before = {}
    for name in RESERVED:
        (zone / ".keys" / name).rename(zone / name)
        before[name] = (zone / name).read_bytes()
    (zone / ".keys").rmdir()
    assert check_release(workspace / "public" / "r1").checks[0].says.startswith("manifest.json is signed by the key of")
    run_all(spec | {"release": "r2", "epsilon": 0.5}, workspace)
    assert {name: (zone / name).read_bytes() for name in RESERVED} == before
    assert list((zone / ".keys").iterdir()) == []
    assert check_release(ReleasePaths(workspace, "r2").public).sound
