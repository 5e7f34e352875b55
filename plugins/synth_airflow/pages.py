"""The "Privacy budget" of the workspace inside Airflow: a page in the navigation, tabs on DAGs and runs, task links.

What the pages show and do is `synth_core.web`; this file says who may see them, and where they hang. Every
Airflow process loads it, so what only the API server needs is imported when the first request comes.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin
from airflow.sdk import BaseOperatorLink

from synth_airflow import is_release
from synth_core.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from synth_core.events.office import Office

PREFIX = "budget"
ROUTE = "privacy-budget"


def create_app() -> FastAPI:
    """The pages, guarded by Airflow's own login: users who may read DAGs see them, users who may edit DAGs edit."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi import Depends, HTTPException

    from synth_core.web import application as web

    def visitor(user: Any = Depends(get_user)) -> web.Visitor:  # noqa: B008 — FastAPI's way
        def may(method: Any) -> bool:
            # Without an id: accounts belong to no single DAG, so access to one DAG is not enough.
            return get_auth_manager().is_authorized_dag(method=method, details=DagDetails(), user=user)

        if not may("GET"):
            raise HTTPException(403, "Forbidden")
        return web.Visitor(name=user.get_name(), may_edit=may("PUT"))

    secret = partial(conf.get_mandatory_value, "api", "secret_key")
    return web.create_app(office=_office, visitor=visitor, secret=secret)


@cache
def _office() -> Office:
    from synth_core.errors import SpecError
    from synth_core.events.office import Office

    workspace = Settings.from_environment().workspace
    if not workspace:
        raise SpecError("no workspace: set SYNTH_WORKSPACE for Airflow's API server")
    return Office(Path(workspace))


class LateApp:
    """An application that is built when the first request comes."""

    def __init__(self) -> None:
        self._built: FastAPI | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        if self._built is None:
            self._built = create_app()
        await self._built(scope, receive, send)


def in_airflow(page: str, **query: str) -> str:
    """Address of a page of this plugin inside Airflow's own frame, under the base URL that Airflow is served from."""
    base = conf.get("api", "base_url", fallback="").rstrip("/")
    path = urlsplit(base).path
    return f"{base}/plugin/{ROUTE}{path}/{PREFIX}/{page}?{urlencode(query)}"


class SpendRecordsLink(BaseOperatorLink):
    """From a task to what it spent."""

    name = "Privacy spend"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The ledger's records of this task in this run; no link on DAGs that release nothing."""
        if not is_release(operator):
            return ""
        return in_airflow("records", dag=ti_key.dag_id, run=ti_key.run_id, task=ti_key.task_id)


class DaskDashboardLink(BaseOperatorLink):
    """From a task to the cluster that does its work."""

    name = "Dask dashboard"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """What SYNTH_DASK_DASHBOARD says."""
        return (Settings.from_environment().dask_dashboard or "") if is_release(operator) else ""


class PrivacyBudgetPlugin(AirflowPlugin):
    """What Airflow registers."""

    name = "privacy_budget"
    fastapi_apps = [{"app": LateApp(), "url_prefix": f"/{PREFIX}", "name": "Privacy budget"}]  # noqa: RUF012
    # Relative to Airflow's base URL; each route must be its own, because Airflow finds a view by its route alone.
    external_views = [  # noqa: RUF012
        {
            "name": "Privacy budget",
            "href": f"{PREFIX}/",
            "destination": "nav",
            "category": "browse",
            "url_route": ROUTE,
        },
        {
            "name": "Privacy budget",
            "href": f"{PREFIX}/dag?dag={{DAG_ID}}",
            "destination": "dag",
            "url_route": "dag-privacy-budget",
        },
        {
            "name": "Privacy budget",
            "href": f"{PREFIX}/run?dag={{DAG_ID}}&run={{RUN_ID}}",
            "destination": "dag_run",
            "url_route": "run-privacy-budget",
        },
    ]
    global_operator_extra_links = [  # noqa: RUF012
        SpendRecordsLink(),
        *([DaskDashboardLink()] if Settings.from_environment().dask_dashboard else []),
    ]
