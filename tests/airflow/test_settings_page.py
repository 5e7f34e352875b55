"""The settings of docs/operations/upgrade.md are those that the code, Airflow and the deployment files know."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from infra.local.site import REPOSITORY, Dask, Site
from synth_core.settings import NAMES, VARIABLES, variable

PAGE = REPOSITORY / "docs" / "operations" / "upgrade.md"
SOURCES = ("synth_core", "dags", "plugins", "infra/local")
DEPLOYMENT = ("docker/compose.yaml", "docker/airflow.Dockerfile")
READ_BY_THE_IMAGES_ALONE = re.compile(r"_(FILE|CMD)$")
OF_PROVIDERS = {"AIRFLOW__OPENLINEAGE__DISABLE_SOURCE_CODE", "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED"}
"""Sections that Airflow's own list of options does not have."""


def rows() -> dict[str, list[str]]:
    """The cells of each line of the settings' tables, by variable."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## Settings\n")[2].partition("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return {name.strip("` "): cells for name, *cells in lines}


def found(pattern: str, paths: list[Path]) -> set[str]:
    names = {name for path in paths for name in re.findall(pattern, path.read_text(encoding="utf-8"))}
    return {READ_BY_THE_IMAGES_ALONE.sub("", name) for name in names}


def test_every_setting_of_ours_is_on_the_page_and_no_other():
    sources = [path for folder in SOURCES for path in (REPOSITORY / folder).rglob("*.py")]
    named = found(r"\bSYNTH_[A-Z]+(?:_[A-Z]+)*", sources)
    shown = {name for name in rows() if name.startswith("SYNTH_")}
    assert named <= shown == VARIABLES
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources if path.name != "settings.py")
    unread = [name for name in NAMES if not re.search(rf"[.]{name}\b|\b{variable(name)}\b", text)]
    assert unread == [], "nothing reads these"
    assert all(len(cells) == 3 and all(cells) for name, cells in rows().items() if name in shown)


@pytest.mark.parametrize("database", [None, "postgresql+psycopg2://airflow"])
def test_every_setting_of_airflow_that_we_set_is_on_the_page(tmp_path, database):
    site = Site(tmp_path / "home", tmp_path / "workspace", database, database)
    ours = site.environment(port=8080, dask=Dask("tcp://127.0.0.1:8786", "http://127.0.0.1:8787/status"))
    set_here = {name for name in ours if name.startswith(("AIRFLOW_", "SYNTH_"))}
    set_there = found(r"\b(?:AIRFLOW__|SYNTH_)[A-Z_]*[A-Z]", [REPOSITORY / name for name in DEPLOYMENT])
    assert len(set_there) > 15
    assert set_here | set_there <= set(rows())


@pytest.mark.airflow
def test_the_defaults_shown_are_airflows_own(airflow_home: Any):
    from airflow.configuration import conf

    known = conf.configuration_description
    for name, (default, *_) in rows().items():
        if not name.startswith("AIRFLOW__") or name in OF_PROVIDERS:
            continue
        section, key = name.removeprefix("AIRFLOW__").lower().split("__")
        option = known[section]["options"][key]
        own = option["default"]
        secret = own is not None and re.fullmatch(r"\{[A-Z_]+_KEY\}", own)
        assert default.strip("`") == ("–" if own is None or secret else own), name
