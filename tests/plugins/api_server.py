"""Asks a real Airflow API server, in a process of its own, for every page of the plugin in every role.

Its environment names the Airflow home; what it saw goes to standard output as JSON.
"""

import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

from airflow.configuration import conf

QUERIES = {
    "/internal-report": "release=r1",
    "/account": "dataset=people",
    "/release": "name=r1",
    "/report": "release=r1",
    "/records": "dag_id=x",
}
BASE = conf.get_mandatory_value("api", "base_url")
PREFIX = f"{urlsplit(BASE).path}/budget"


def loaded_plugin():
    """The plugin as any Airflow process loads it, and which heavy modules came along."""
    from airflow import plugins_manager

    (plugin,) = [plugin for plugin in plugins_manager._get_plugins()[0] if plugin.name == "privacy_budget"]
    heavy = {"fastapi", "airflow.api_fastapi.core_api.security"} & set(sys.modules)
    ours = {name for name in sys.modules if name.startswith("synth_core.")} - {"synth_core.settings"}
    return plugin, sorted(heavy | ours)


def link_of(plugin, tags):
    key = SimpleNamespace(
        dag_id="census_release", run_id="manual__2026-01-01T00:00:00+00:00", task_id="fit", map_index=-1
    )
    operator = SimpleNamespace(dag=SimpleNamespace(tags=tags))
    return {link.name: link.get_link(operator, ti_key=key) for link in plugin.global_operator_extra_links}


def main():
    plugin, heavy = loaded_plugin()
    seen = {"heavy": heavy, "links": link_of(plugin, {"privacy"}), "other_links": link_of(plugin, {"etl"})}
    from airflow.api_fastapi.app import create_app
    from airflow.utils.db import initdb
    from fastapi.routing import APIRoute
    from fastapi.testclient import TestClient

    initdb()
    passwords = json.loads((Path(os.environ["AIRFLOW_HOME"]) / "passwords.json").read_text())
    with TestClient(create_app(), base_url="http://127.0.0.1:8080", follow_redirects=False) as client:
        inner = sys.modules["synth_airflow.pages"].create_app()
        routes = [(method, route.path) for route in inner.routes for method in route.methods]
        seen["routes"] = len(inner.routes) if all(isinstance(route, APIRoute) for route in inner.routes) else -1
        tokens = {"anonymous": None, "forged": "e30.e30.e30"}
        for user, password in passwords.items():
            answer = client.post(f"{urlsplit(BASE).path}/auth/token", json={"username": user, "password": password})
            tokens[user] = answer.json()["access_token"]

        def ask(role, method, path, **options):
            client.cookies.clear()
            if tokens[role]:
                client.cookies.set("_token", tokens[role])
            return client.request(method, f"{PREFIX}{path}", **options)

        seen["statuses"] = {
            role: {
                f"{method} {path}": ask(role, method, f"{path}?{QUERIES.get(path, '')}").status_code
                for method, path in routes
            }
            for role in tokens
        }
        page = ask("ops", "GET", "/account?dataset=people").text
        token = re.search(r'name="token" value="([^"]+)"', page)[1]
        form = {"dataset": "people", "epsilon": "2.5", "reason": "board 14", "token": token}
        seen["stranger_cap"] = ask("anonymous", "POST", "/cap", data=form).status_code
        seen["viewer_cap"] = ask("viewer", "POST", "/cap", data=form).status_code
        seen["admin_with_others_token"] = ask("admin", "POST", "/cap", data=form).status_code
        seen["before"] = ask("viewer", "GET", "/account?dataset=people").text
        seen["ops_cap"] = ask("ops", "POST", "/cap", data=form).status_code
        seen["history"] = ask("viewer", "GET", "/account?dataset=people").text
        client.cookies.clear()
        bearer = {"Authorization": f"Bearer {tokens['admin']}"}
        seen["metrics"] = client.get(f"{PREFIX}/metrics", headers=bearer).text
        api = f"{urlsplit(BASE).path}/api/v2/plugins"
        seen["plugins"] = client.get(api, headers=bearer).json()["plugins"]
        seen["import_errors"] = client.get(f"{api}/importErrors", headers=bearer).json()["import_errors"]
    print("SEEN " + json.dumps(seen))


if __name__ == "__main__":
    main()
