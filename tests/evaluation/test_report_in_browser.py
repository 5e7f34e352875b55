"""Both reports opened in a browser: no errors, no requests, nothing wider than a phone."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tabulation import tabulate

from synth_core.evaluation import compare
from synth_core.example.population import (
    declare_example_account,
    example_spec,
    generate,
    population_schema,
    write_example,
)
from synth_core.report.internal import internal_report
from synth_core.report.page import Guarantee, SpendLine
from synth_core.schema.codec import encode
from synth_core.steps import STEPS, prepare, run_step

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def public(tmp_path_factory) -> Path:
    """A small release, published twice, so that there is something to compare with."""
    folder = tmp_path_factory.mktemp("release")
    write_example(folder, rows=1500)
    declare_example_account(folder / "workspace")
    spec = example_spec().dump() | {"method": "independent", "quality_share": 0.1, "shards": 1}
    spec |= {key: str(folder / spec[key]) for key in ("source", "schema")}
    for release in ("first", "second"):
        address = prepare(spec | {"release": release}, workspace=folder / "workspace")
        for step in STEPS:
            run_step(step, address)
    return folder / "workspace" / "public" / "second" / "report.html"


@pytest.fixture(scope="module")
def internal(tmp_path_factory) -> Path:
    schema = population_schema()
    frames = generate(1500, 1), generate(1500, 2)
    real, synthetic = (
        {name: tabulate(codes[:, None], schema.domain.project([name]), (name,)) for name, codes in encoded.items()}
        for encoded in (encode(frame, schema) for frame in frames)
    )
    html = internal_report(
        compare(*frames, schema, targets=["sex", "role"]),
        schema=schema,
        title="People in a town with quite a long name: synthetic extract",
        guarantee=Guarantee(
            unit="person", neighbours="add or remove one record", epsilon=1, delta=1e-6, mu=0.24, spent=1
        ),
        spends=[
            SpendLine(
                step="fit",
                purpose="marginals chosen in later rounds",
                mechanism="discrete_gaussian",
                queries=40,
                scale=31.25,
                mu2=0.05,
                state="measured",
            )
        ],
        real_one_way=real,
        synthetic_one_way=synthetic,
    )
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(html, encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["internal", "public"])
def test_the_report_opens_cleanly(window, request, name, width, scheme):
    report = request.getfixturevalue(name)
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    window.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    window.get(report.as_uri())

    assert window.get_log("browser") == []
    assert window.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert window.execute_script("return document.documentElement.scrollWidth") <= width
    pictures = window.execute_script(
        "return [...document.querySelectorAll('svg')].map(svg => svg.getBoundingClientRect().width)"
    )
    # What has moved since the release before, or a quantile curve of each of four columns of numbers.
    assert len(pictures) == 4 + 14 + (1 if name == "public" else 4)
    assert min(pictures) > 0.7 * min(width, 400)
    paper = window.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
