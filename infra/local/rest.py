"""The few calls of Airflow's REST API that the demo, the tests and a shell script need."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote

PAUSES = (1.0, 2.0, 5.0, 10.0)
FINISHED = frozenset({"success", "failed"})


class ApiError(Exception):
    """Airflow refused a request; the text is its own explanation."""


class ServerBusy(ApiError):
    """Airflow did not answer, or not sensibly; it may do so later."""


class AirflowApi:
    """Access to one Airflow as one user; the token is fetched when it is first needed."""

    def __init__(self, url: str, *, user: str, password: str) -> None:
        self.url = url
        self._login = {"username": user, "password": password}
        self._token = ""

    def healthy(self) -> bool:
        """Whether database, scheduler, DAG processor and triggerer all say they are well."""
        try:
            parts = self._send("GET", "/api/v2/monitor/health", authorised=False)
        except ApiError:
            return False
        return all(part["status"] == "healthy" for part in parts.values())

    def dag_is_known(self, dag: str) -> bool:
        """Whether the DAG has been parsed; an import error is raised as it is."""
        try:
            self.get(f"/dags/{dag}")
        except ApiError:
            for error in self.get("/importErrors")["import_errors"]:
                raise ApiError(f"{error['filename']}: {error['stack_trace']}") from None
            return False
        return True

    def unpause(self, dag: str) -> None:
        """Let the DAG's runs start."""
        self._send("PATCH", f"/api/v2/dags/{dag}", {"is_paused": False})

    def trigger(self, dag: str, params: dict[str, Any]) -> str:
        """Start a run with the form's values and return its id; values out of range are refused here."""
        run = self._send("POST", f"/api/v2/dags/{dag}/dagRuns", {"logical_date": None, "conf": params})
        return str(run["dag_run_id"])

    def update_asset(self, name: str) -> None:
        """Say that an asset has been updated, as a system outside Airflow does."""
        found = self.get(f"/assets?name_pattern={quote(name)}")["assets"]
        (asset,) = [one for one in found if one["name"] == name]
        self._send("POST", "/api/v2/assets/events", {"asset_id": asset["id"], "extra": {}})

    def run_state(self, dag: str, run: str) -> str:
        """State of a run."""
        return str(self.get(_run(dag, run))["state"])

    def task_instances(self, dag: str, run: str) -> list[dict[str, Any]]:
        """Every task instance of a run, mapped ones too."""
        return list(self.get(f"{_run(dag, run)}/taskInstances?limit=1000")["task_instances"])

    def clear(self, dag: str, run: str, *, tasks: list[str] | None = None) -> None:
        """Let tasks of a run, or all of them, run again."""
        wanted = {"dry_run": False, "dag_run_id": run, "only_failed": False, "reset_dag_runs": True}
        if tasks is not None:
            wanted |= {"task_ids": tasks, "include_downstream": True}
        self._send("POST", f"/api/v2/dags/{dag}/clearTaskInstances", wanted)

    def end_run(self, dag: str, run: str, *, state: str) -> None:
        """Mark a run as failed or successful, as a person does in the browser."""
        self._send("PATCH", f"/api/v2{_run(dag, run)}", {"state": state})

    def decide(self, dag: str, run: str, *, task: str, option: str) -> None:
        """Answer a task that waits for a person."""
        path = f"/api/v2{_run(dag, run)}/taskInstances/{task}/-1/hitlDetails"
        self._send("PATCH", path, {"chosen_options": [option], "params_input": {}})

    def xcom(self, dag: str, run: str, *, task: str) -> Any:
        """What a task returned."""
        return self.get(f"{_run(dag, run)}/taskInstances/{task}/xcomEntries/return_value")["value"]

    def log(self, instance: dict[str, Any]) -> list[str]:
        """The log lines of a task instance's last try, exceptions as their last line."""
        run, attempt = _run(instance["dag_id"], instance["dag_run_id"]), max(1, instance["try_number"])
        path = f"{run}/taskInstances/{instance['task_id']}/logs/{attempt}?map_index={instance['map_index']}"
        lines = [_line(entry) for entry in self.get(path)["content"]]
        return [line for line in lines if not line.startswith("::")]  # marks that fold the log in the browser

    def get(self, path: str) -> Any:
        """Read something below /api/v2; a busy server is asked again."""
        for pause in PAUSES:
            try:
                return self._send("GET", f"/api/v2{path}")
            except ServerBusy:
                time.sleep(pause)
        return self._send("GET", f"/api/v2{path}")

    def _send(self, method: str, path: str, body: Any = None, *, authorised: bool = True) -> Any:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if authorised:
            if not self._token:
                login = self._send("POST", "/auth/token", self._login, authorised=False)
                self._token = str(login["access_token"])
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
                return json.loads(response.read() or b"null")
        except urllib.error.HTTPError as error:
            kind = ServerBusy if error.code >= 500 else ApiError
            raise kind(f"{error.code}: {error.read().decode(errors='replace')}") from None
        except OSError as error:
            raise ServerBusy(f"Airflow does not answer at {self.url}: {error}") from None


def _run(dag: str, run: str) -> str:
    return f"/dags/{dag}/dagRuns/{quote(run, safe='')}"


def _line(entry: Any) -> str:
    if not isinstance(entry, dict):
        return str(entry)
    causes = [f"{cause['exc_type']}: {cause['exc_value']}" for cause in entry.get("error_detail") or []]
    return " | ".join([str(entry.get("event", "")), *causes])
