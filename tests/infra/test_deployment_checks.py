"""Every check of the deployment files passes as they are, and fails, naming the file, when one is broken."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".checks" / "bin" / "python"
pytestmark = [
    pytest.mark.skipif(not PYTHON.exists(), reason="the tools are not installed; `make check` does it"),
    pytest.mark.slow,
]

STEPS = "infra/monitoring/grafana/dashboards/steps.json"

BREAKS = [
    ("yaml", "docker/compose.yaml", "name: census-release", "name:  census-release", "compose.yaml"),
    ("yaml", "infra/kubernetes/storage.yaml", "kind:", "kind", "storage.yaml"),
    ("dockerfiles", "docker/worker.Dockerfile", "FROM python:${PYTHON}\n", "FROM python:latest\n", "worker.Dockerfile"),
    ("dockerfiles", "docker/airflow.Dockerfile", "WORKDIR /build", "WORKDIR build", "airflow.Dockerfile"),
    ("shell", "docker/entrypoint.sh", 'exec "$@"', "exec $@", "entrypoint.sh"),
    ("compose", "docker/compose.yaml", "restart: unless-stopped", "restarts: always", "compose.yaml"),
    ("compose", "docker/compose.yaml", "  grafana: {}\n  logs: {}\n", "  grafana: {}\n", "volume logs"),
    ("compose", "docker/compose.yaml", "  jwt_secret: {file", "  other_secret: {file", "secret jwt_secret"),
    ("compose", "docker/compose.yaml", "./databases.sql:", "./missing.sql:", "missing.sql"),
    ("compose", "docker/compose.yaml", "docker/worker-cuda.Dockerfile", "docker/gone.Dockerfile", "dask-worker-cuda"),
    ("kubernetes", "infra/kubernetes/disruption.yaml", "maxUnavailable: 1", "maxUnavailabl: 1", "dask-workers"),
    ("kubernetes", "infra/kubernetes/metrics.yaml", "kind: Deployment", "kind: Deploiment", "Deploiment metrics"),
    ("kubernetes", "infra/kubernetes/dask.yaml", "  minimum: 2", "  minimum: two", "DaskAutoscaler census"),
    ("kubernetes", "infra/kubernetes/dask.yaml", "    replicas: 2", "    replica: 2", "DaskCluster census"),
    ("kubernetes", "infra/kubernetes/kustomization.yaml", "  - metrics.yaml\n", "", "metrics.yaml"),
    ("alerts", "infra/monitoring/alerts.yaml", "synth_ledger_sound == 0", "synth_ledger_sound ==", "LedgerChanged"),
    ("alerts", "infra/monitoring/alerts.yaml", "synth_up == 0", "synth_down == 0", "synth_down"),
    ("alerts", "infra/RUNBOOK.md", "## A release failed", "## A failed release", "a-release-failed"),
    ("dashboards", STEPS, "{", "", "steps.json"),
    ("dashboards", STEPS, "synth_steps_total", "synth_step_total", "synth_step_total"),
    ("dashboards", STEPS, '"uid": "steps"', '"uid": "releases"', "releases"),
    ("locks", "docker/worker.lock", "dask==2026.7.1", "dask==2026.8.0", "worker.lock: dask is 2026.8.0"),
    ("locks", "pyproject.toml", '"jinja2>=3.1",', '"jinja2>=3.1", "forgotten>=1",', "worker-cuda.lock: forgotten"),
    ("versions", "docker/.env.example", "VERSION=0.1.0", "VERSION=0.2.0", ".env.example"),
    ("versions", "infra/kubernetes/metrics.yaml", "census-release/airflow:0.1.0", "census-release/airflow:9.9", "9.9"),
]  # fmt: skip


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    copy = tmp_path_factory.mktemp("deployment")
    for name in ("docker", "infra"):
        ignored = shutil.ignore_patterns("__pycache__", "secrets", "data", ".env")
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    for name in ("pyproject.toml", "requirements.lock", "synth_core/operations/metrics.py"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    return copy


def problems(root, *only):
    chosen = [argument for name in only for argument in ("--only", name)]
    done = subprocess.run(
        [PYTHON, ROOT / "infra/checks/check.py", root, *chosen], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    assert bool(done.stdout) == bool(done.returncode)
    return done.stdout


def test_the_deployment_files_are_valid(original):
    assert problems(original) == ""


@pytest.mark.parametrize(("check", "path", "good", "bad", "named"), BREAKS, ids=lambda v: str(v)[:40])
def test_a_broken_file_is_found(original, check, path, good, bad, named):
    file = original / path
    text = file.read_text(encoding="utf-8")
    assert good in text
    file.write_text(text.replace(good, bad, 1), encoding="utf-8")
    try:
        assert named in problems(original, check)
    finally:
        file.write_text(text, encoding="utf-8")


def test_a_file_that_is_no_yaml_keeps_no_check_from_running(original):
    file = original / "docker/compose.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("name: census-release", "name: [census-release", 1), encoding="utf-8")
    try:
        found = problems(original, "compose", "yaml")
    finally:
        file.write_text(text, encoding="utf-8")
    assert "compose: a file is not valid YAML" in found
    assert "compose.yaml" in found
