"""The pages as a web application: every address asks who is there, and answers with strict headers.

The server that mounts it identifies visitors; it knows nothing else of that server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import HTMLResponse

from synth_core.errors import SynthError
from synth_core.events.office import Office
from synth_core.web.pages import render
from synth_core.web.routes import Visitor, router

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; frame-src 'self'; "
    "form-action 'self'; frame-ancestors 'self'; base-uri 'none'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
}
"""Headers of every answer without stricter ones of its own: no script, style or frame from elsewhere, nothing kept."""


def create_app(*, office: Callable[[], Office], visitor: Callable[..., Visitor], secret: Callable[[], str]) -> FastAPI:
    """The application; `visitor` is a dependency that refuses strangers everywhere, `secret` signs forms."""

    def known(request: Request, who: Visitor = Depends(visitor)) -> None:  # noqa: B008 — FastAPI's way
        request.state.visitor = who

    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, dependencies=[Depends(known)])
    app.state.office, app.state.secret = office, secret
    app.include_router(router)
    app.middleware("http")(_with_headers)
    app.exception_handler(SynthError)(_refused)
    return app


async def _with_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await call_next(request)
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def _refused(_: Request, refusal: Exception) -> Response:
    """A refusal is a page of its own; who may not look at pages was turned away before."""
    values = {"here": "", "title": "Not available", "refusal": str(refusal), "chain": None}
    return HTMLResponse(render("refusal.html", **values), status_code=404)
