"""Every check of the deployment files passes as they are, and fails, naming the file, when one is broken."""

import json
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

CHECK = ROOT / "infra/checks/check.py"
MANY = """
import contextlib, io, json, sys
import check
for line in sys.stdin:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = check.main(json.loads(line))
    print(json.dumps([code, said.getvalue()]), flush=True)
"""
"""Runs the checks as often as a line asks for it: reading the schemas of Dask's kinds takes seconds."""

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
    for name in (
        "pyproject.toml",
        "requirements.lock",
        "synth_core/__init__.py",
        "synth_core/web/metrics.py",
    ):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def checker():
    command = [PYTHON, "-c", MANY]
    with subprocess.Popen(
        command, cwd=CHECK.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        yield running
        running.stdin.close()
        assert running.wait() == 0


def words(root, only):
    return [str(root), *(word for name in only for word in ("--only", name))]


def problems_alone(root, *only):
    """What a process of its own finds, as `make check` starts it."""
    command = [PYTHON, CHECK, *words(root, only)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert bool(done.stdout) == bool(done.returncode)
    return done.stdout


def problems(checker, root, *only):
    checker.stdin.write(json.dumps(words(root, only)) + "\n")
    checker.stdin.flush()
    code, said = json.loads(checker.stdout.readline())
    assert code in (0, 1)
    assert bool(said) == bool(code)
    return said


def test_the_deployment_files_are_valid(original):
    assert problems_alone(original) == ""


@pytest.mark.parametrize(("check", "path", "good", "bad", "named"), BREAKS, ids=lambda v: str(v)[:40])
def test_a_broken_file_is_found(original, checker, check, path, good, bad, named):
    file = original / path
    text = file.read_text(encoding="utf-8")
    assert good in text
    file.write_text(text.replace(good, bad, 1), encoding="utf-8")
    try:
        assert named in problems(checker, original, check)
    finally:
        file.write_text(text, encoding="utf-8")


def test_a_file_that_is_no_yaml_keeps_no_check_from_running(original):
    file = original / "docker/compose.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("name: census-release", "name: [census-release", 1), encoding="utf-8")
    try:
        found = problems_alone(original, "compose", "yaml")
    finally:
        file.write_text(text, encoding="utf-8")
    assert "compose: a file is not valid YAML" in found
    assert "compose.yaml" in found
