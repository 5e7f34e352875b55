"""Checks what no container engine is needed for: images, compose, Kubernetes, alerts, dashboards and lock files.

Run by `make check` with the interpreter of .checks, which has the tools; prints one line for each problem.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import promql_parser
import yaml

TOOLS = Path(sys.executable).parent
YAMLLINT = (
    "{extends: default, rules: {line-length: {max: 140}, document-start: disable, braces: disable, "
    "brackets: disable, truthy: {check-keys: false}}}"
)
EXTRAS = {
    "airflow": ("airflow", "fab", "postgres"),
    "worker": ("cli", "monitoring"),
    "worker-cuda": ("cli", "cuda", "monitoring"),
}
"""The parts of the package that each image has."""
UNLIKE_TESTS = {"airflow.lock": {"python-dateutil"}}
"""Packages that an image has in another version than the tests: Flask-AppBuilder asks for python-dateutil 2."""
KUBERNETES_VERSION = "1.34.0"
FOREIGN_METRICS = ("dask_",)
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Reads long schemas several times as fast where PyYAML was built with libyaml."""

Problems = Iterator[str]


def yaml_files(root: Path) -> list[Path]:
    """Every YAML file of the deployment."""
    return sorted([*root.glob("docker/*.yaml"), *root.glob("infra/**/*.yaml")])


def yaml_is_clean(root: Path) -> Problems:
    """All YAML is well formed and tidy."""
    yield from _tool("yamllint", "--strict", "-d", YAMLLINT, *yaml_files(root))


def dockerfiles_are_clean(root: Path) -> Problems:
    """No warning from hadolint."""
    yield from _tool("hadolint", "--failure-threshold", "info", *sorted(root.glob("docker/*.Dockerfile")))


def shell_is_clean(root: Path) -> Problems:
    """No warning from shellcheck."""
    yield from _tool("shellcheck", *sorted(root.glob("docker/*.sh")))


def compose_is_valid(root: Path) -> Problems:
    """The compose file fits its schema, names only what it declares, and Docker reads it, where Docker is."""
    path = root / "docker" / "compose.yaml"
    yield from _tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", path)
    compose = yaml.safe_load(path.read_text(encoding="utf-8"))
    for name, service in compose["services"].items():
        for kind in ("secrets", "networks"):
            for wanted in service.get(kind, []):
                if wanted not in compose[kind]:
                    yield f"{path.name}: service {name} wants {kind[:-1]} {wanted}, which is not declared"
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if re.fullmatch(r"[a-z]+", source) and source not in compose["volumes"]:
                yield f"{path.name}: service {name} wants volume {source}, which is not declared"
            if re.match(r"\.\.?/", source) and not (path.parent / source).exists():
                yield f"{path.name}: service {name} mounts {source}, which is not there"
        build = service.get("build")
        if build and not (path.parent / build["context"] / build["dockerfile"]).exists():
            yield f"{path.name}: service {name} is built from a file that is not there"
    if _answers("docker", "compose", "version"):
        for profiles in ((), ("gpu",), ("monitoring",), ("gpu", "monitoring")):
            chosen = [word for profile in profiles for word in ("--profile", profile)]
            settings = ("--env-file", str(path.parent / ".env.example"))
            yield from _run(["docker", "compose", "-f", str(path), *settings, *chosen, "config", "--quiet"])


def kubernetes_is_valid(root: Path) -> Problems:
    """Every manifest fits the schema of its kind; kustomization.yaml lists all, and kubectl reads it, where it is."""
    folder = root / "infra" / "kubernetes"
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    there = {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml", "airflow-values.yaml"}
    for name in sorted(there ^ set(listed)):
        yield f"{name}: in the folder or in kustomization.yaml, but not in both"
    custom = _custom_schemas()
    for name in sorted(there):
        for document in yaml.safe_load_all((folder / name).read_text(encoding="utf-8")):
            label = f"{name}: {document.get('kind')} {document.get('metadata', {}).get('name')}"
            try:
                if fitting := custom.get(document.get("kind")):
                    if error := jsonschema.exceptions.best_match(fitting.iter_errors(document)):
                        raise error
                else:
                    kubernetes_validate.validate(document, KUBERNETES_VERSION, strict=True)
            except (jsonschema.ValidationError, kubernetes_validate.ValidationError) as error:
                yield f"{label}: {error.message.splitlines()[0]}"
            except kubernetes_validate.SchemaNotFoundError:
                yield f"{label}: there is no such kind in {document.get('apiVersion')}"
    if _answers("kubectl", "version", "--client"):
        yield from _run(["kubectl", "kustomize", str(folder)])


def alerts_are_valid(root: Path) -> Problems:
    """Rules parse, watch metrics that exist, and point at a section of the runbook."""
    folder = root / "infra" / "monitoring"
    if _answers("promtool", "--version"):
        yield from _run(["promtool", "check", "rules", str(folder / "alerts.yaml")])
        yield from _run(["promtool", "check", "config", "--syntax-only", str(folder / "prometheus.yaml")])
    known = exported_metrics(root)
    sections = _sections(root / "infra" / "RUNBOOK.md")
    for group in yaml.safe_load((folder / "alerts.yaml").read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            yield from (f"alerts.yaml: {rule['alert']}: {p}" for p in _query_problems(rule["expr"], known))
            anchor = rule["annotations"]["runbook"].partition("#")[2]
            if anchor not in sections:
                yield f"alerts.yaml: {rule['alert']}: the runbook has no section {anchor!r}"


def dashboards_are_valid(root: Path) -> Problems:
    """Dashboards are JSON, have unique ids, and ask for metrics that exist."""
    known, seen = exported_metrics(root), set()
    for path in sorted(root.glob("infra/monitoring/grafana/dashboards/*.json")):
        try:
            board = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            yield f"{path.name}: is not JSON"
            continue
        if board["uid"] in seen:
            yield f"{path.name}: its uid {board['uid']} is another dashboard's"
        seen.add(board["uid"])
        for panel in board["panels"]:
            for target in panel["targets"]:
                query = target["expr"].replace("$dataset", ".*")
                yield from (f"{path.name}: {panel['title']}: {p}" for p in _query_problems(query, known))


def locks_agree(root: Path) -> Problems:
    """Images hold what the package asks for, in the versions that the tests ran with."""
    tested = _pins(root / "requirements.lock")
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for image, extras in EXTRAS.items():
        asked = [*project["dependencies"], *_asked(project["optional-dependencies"], extras)]
        names = {found[0].lower() for line in asked if (found := re.match(r"[\w.-]+", line))}
        for name in sorted(names - set(_pins(root / "docker" / f"{image}.lock"))):
            yield f"docker/{image}.lock: {name}, which pyproject.toml asks for, is not there; run `make lock`"
    for path in sorted(root.glob("docker/*.lock")):
        for name, version in _pins(path).items():
            if name in tested and tested[name] != version and name not in UNLIKE_TESTS.get(path.name, ()):
                yield f"docker/{path.name}: {name} is {version}, tested with {tested[name]}; run `make lock`"


def _asked(declared: dict[str, list[str]], extras: Iterable[str]) -> Iterator[str]:
    """What the extras ask for, also through other extras of the package."""
    for line in (line for extra in extras for line in declared[extra]):
        if own := re.fullmatch(r"synth-core\[(.+)\]", line):
            yield from _asked(declared, own[1].split(","))
        else:
            yield line


def versions_agree(root: Path) -> Problems:
    """One version of our images everywhere: that of the package."""
    source = (root / "synth_core" / "__init__.py").read_text(encoding="utf-8")
    version = re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE)[0]
    for path in [*yaml_files(root), root / "docker" / ".env.example"]:
        text = path.read_text(encoding="utf-8")
        pattern = r"census-release/[a-z-]+(?::|, newTag: )\"?(\d[\w.]*)|(?:VERSION:-|VERSION=)(\d[\w.]*)"
        for found in {a or b for a, b in re.findall(pattern, text)} - {version}:
            yield f"{path.relative_to(root)}: names version {found}, the package is {version}"


CHECKS: dict[str, Callable[[Path], Problems]] = {
    "yaml": yaml_is_clean,
    "dockerfiles": dockerfiles_are_clean,
    "shell": shell_is_clean,
    "compose": compose_is_valid,
    "kubernetes": kubernetes_is_valid,
    "alerts": alerts_are_valid,
    "dashboards": dashboards_are_valid,
    "locks": locks_agree,
    "versions": versions_agree,
}


def exported_metrics(root: Path) -> set[str]:
    """The names of the metrics that the exporter writes."""
    source = (root / "synth_core" / "web" / "metrics.py").read_text(encoding="utf-8")
    return set(re.findall(r'"(synth_[a-z0-9_]+)"', source))


def _query_problems(query: str, known: set[str]) -> Problems:
    try:
        promql_parser.parse(query)
    except ValueError as error:
        yield f"{query!r} is no PromQL: {error}"
        return
    for name in re.findall(r"\b[a-z]+_[a-z0-9_]+\b(?=[{\[\s)]|$)", re.sub(r"\bby \([^)]*\)|\{[^}]*\}", " ", query)):
        if name not in known and not name.startswith(FOREIGN_METRICS):
            yield f"nothing exports {name}"


@cache  # reading and checking these schemas takes most of the time of the Kubernetes check
def _custom_schemas() -> dict[str, Any]:
    package = find_spec("dask_kubernetes")
    if package is None or package.origin is None:
        raise SystemExit("dask_kubernetes, which has the schemas of Dask's kinds, is not installed; run `make check`")
    folder = Path(package.origin).parent / "operator/deployment/helm/dask-kubernetes-operator/crds"
    found = {}
    for name in ("daskcluster", "daskworkergroup", "daskautoscaler"):
        text = (folder / f"{name}.yaml").read_text(encoding="utf-8")
        for document in filter(None, yaml.load_all(text, Loader=LOADER)):
            schema = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            schema["properties"] |= {key: {} for key in ("apiVersion", "kind", "metadata")}
            closed = _closed(schema)
            validator = jsonschema.validators.validator_for(closed)
            validator.check_schema(closed)
            found[document["spec"]["names"]["kind"]] = validator(closed)
    return found


def _closed(schema: Any) -> Any:
    """The schema as the API server applies it: a key that is not declared is a mistake, unless such are kept."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    open_ended = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict) and not open_ended:
        closed["additionalProperties"] = False
    return closed


def _sections(path: Path) -> set[str]:
    if not path.exists():
        return set()
    heads = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", head.lower()).replace(" ", "-") for head in heads}


def _pins(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9._-]+)==([^\s;\\]+)", path.read_text(encoding="utf-8"), re.MULTILINE))


def _answers(*command: str) -> bool:
    """Whether a tool that cannot be installed as a package happens to be here."""
    return bool(shutil.which(command[0])) and not subprocess.run(command, capture_output=True, check=False).returncode


def _tool(name: str, *arguments: str | Path) -> Problems:
    yield from _run([str(TOOLS / name), *map(str, arguments)])


def _run(command: list[str]) -> Problems:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines() or [f"exit code {done.returncode}"]
        yield from (f"{Path(command[0]).name}: {line}" for line in lines)


def _found(name: str, root: Path) -> list[str]:
    """The problems that one check finds; a file that is no YAML does not keep the other checks from running."""
    try:
        return list(CHECKS[name](root))
    except yaml.YAMLError as error:
        return [f"a file is not valid YAML, and yamllint says which: {str(error).splitlines()[0]}"]


def main(words: Sequence[str] | None = None) -> int:
    """Run the checks that were asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("--only", choices=CHECKS, action="append")
    arguments = parser.parse_args(words)
    problems = [f"{name}: {p}" for name in arguments.only or CHECKS for p in _found(name, arguments.root)]
    sys.stdout.writelines(f"{problem}\n" for problem in problems)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
