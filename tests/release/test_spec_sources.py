"""A spec may name several sources; each is relative to the spec unless it is an address."""

import yaml

from synth_core.release.spec import ReleaseSpec

SPEC = {"release": "r1", "dataset": "d", "schema": "schema.yaml", "epsilon": 1.0, "delta": 1e-6}


def test_several_sources_are_beside_the_spec(tmp_path):
    path = tmp_path / "release.yaml"
    path.write_text(yaml.safe_dump(SPEC | {"source": ["data/*.csv", "s3://census/2026"]}))
    spec = ReleaseSpec.load(path)
    assert spec.source == (str(tmp_path / "data" / "*.csv"), "s3://census/2026")


def test_a_spec_with_several_sources_is_saved_and_loaded(tmp_path):
    spec = ReleaseSpec.parse(SPEC | {"source": ["/a.csv", "/b"], "schema": "/schema.yaml"})
    spec.save(tmp_path / "release.yaml")
    assert ReleaseSpec.load(tmp_path / "release.yaml").dump() == spec.dump()
