"""The addresses of the privacy budget: pages for everybody who was let in, changes and true errors for editors.

All addresses lie side by side and name things in their query, so that relative links work under any prefix and a
name may contain anything.

A form carries a signed token, the proof that a request to change something comes from a page made for this person. A
cookie goes along with any request, also with one that another site makes the browser send; a token does not. It is
bound to the person and to what may be changed, and it expires.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, HTTPException, Query, Request, Response
from fastapi.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, StreamingResponse

from synth_core.errors import LedgerError, SpecError
from synth_core.events.journal import Kind
from synth_core.events.office import ChainStatus, Office
from synth_core.release.paths import SIGNED
from synth_core.release.verify import Verification, check_release
from synth_core.web import metrics
from synth_core.web.pages import address, render
from synth_core.web.records import RecordFilter, csv_portions, record_page
from synth_core.web.views import AccountView, ReleaseLine, account_view, account_views, release_lines, release_view

REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'; sandbox"
"""A report is one self-contained file with its styles inside; it runs no script and belongs to no origin."""

EXPLORER_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'; "
    "sandbox allow-scripts allow-downloads"
)
"""The page of tables runs its own script, which its own policy names by digest: in no origin, and without a network."""

RECORDS_ON_A_PAGE = 200
"""Ledger records listed on one page."""
RELEASES_ON_A_PAGE = 50
"""Releases listed on one page."""
MAX_REASON_LETTERS = 500
"""Upper limit of the letters of a reason given in a form."""
NAMES = {"dataset": "Data set", "dag": "DAG", "run": "DAG run"}


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who is looking, and whether they may change things."""

    name: str
    may_edit: bool


router = APIRouter()

PageNumber = Annotated[int, Query(ge=1, le=10**6)]
"""Which page of a list an address asks for."""


@router.get("/")
def accounts(request: Request) -> HTMLResponse:
    """All accounts, the state of the ledger, and the latest alarms."""
    office, views, trouble = _office(request), [], None
    try:
        views = account_views(office)
    except LedgerError as refusal:
        trouble = str(refusal)
    signals = [event for event in office.events() if event.kind is not Kind.STEP]
    return _page(request, "accounts.html", here="accounts", accounts=views, trouble=trouble, signals=signals[:-11:-1])


@router.get("/account")
def account(request: Request, dataset: str, done: str = "") -> HTMLResponse:
    """One account with its releases, its course and its cap."""
    return _account_page(request, account_view(_office(request), dataset), done=bool(done))


@router.post("/cap")
def set_cap(
    request: Request,
    dataset: Annotated[str, Form()] = "",
    epsilon: Annotated[str, Form()] = "",
    reason: Annotated[str, Form()] = "",
    token: Annotated[str, Form()] = "",
) -> Response:
    """Change an account's cap: for editors, from this application's own form, with a reason."""
    editor, office = _editor(request), _office(request)
    same_site = request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
    genuine = token_is_valid(token, secret=_secret(request), person=editor.name, purpose=f"cap {dataset}")
    if not (same_site and genuine):
        raise HTTPException(403, "This form has expired or is not yours; open the page again.")
    try:
        if len(reason) > MAX_REASON_LETTERS:
            raise LedgerError(f"a reason has at most {MAX_REASON_LETTERS} characters")
        office.ledger.set_cap(dataset, epsilon=_number(epsilon), actor=editor.name, reason=reason)
    except LedgerError as refusal:
        view, asked = account_view(office, dataset), {"epsilon": epsilon, "reason": reason}
        return _account_page(request, view, refusal=str(refusal), asked=asked, status=422)
    return RedirectResponse(address("account", dataset=dataset, done="cap"), status_code=303)


@router.get("/releases")
def releases(request: Request, page: PageNumber = 1) -> HTMLResponse:
    """All releases."""
    lines = release_lines(_office(request))
    return _release_page(request, lines, page, here="releases", title="Releases", empty="There is no release yet.")


@router.get("/release")
def release(request: Request, name: str, check: str = "") -> HTMLResponse:
    """One release: guarantee, reports, artifacts, lineage."""
    office = _office(request)
    view = release_view(office, name)
    found = _verification(office.paths(name).public) if check and view.manifest else None
    return _page(request, "release.html", here="releases", view=view, found=found, signed=SIGNED)


@router.get("/dag")
def of_dag(request: Request, dag: str, page: PageNumber = 1) -> HTMLResponse:
    """The releases of one DAG."""
    lines = release_lines(_office(request), dag=dag)
    empty = "No run of this DAG has spent privacy budget."
    return _release_page(request, lines, page, title=f"Releases of {dag}", empty=empty, dag=dag)


@router.get("/run")
def of_run(request: Request, dag: str, run: str, page: PageNumber = 1) -> HTMLResponse:
    """The release of one DAG run."""
    lines = release_lines(_office(request), dag=dag, run=run)
    if len(lines) == 1:
        return release(request, lines[0].name)
    empty = "This run has not spent privacy budget."
    return _release_page(request, lines, page, title="Releases of this run", empty=empty, dag=dag, run=run)


Asked = Annotated[RecordFilter, Depends()]
"""The filter that an address asks for."""


@router.get("/records")
def records(request: Request, asked: Asked, page: PageNumber = 1, each: bool = False) -> HTMLResponse:
    """The records, filtered, newest first: one line for each step and round, or (each) for each question."""
    first = (page - 1) * RECORDS_ON_A_PAGE
    found = record_page(_office(request), asked, each=each, first=first, most=RECORDS_ON_A_PAGE)
    return _page(
        request,
        "records.html",
        here="records",
        lines=found.lines,
        total=found.total,
        more=found.total > first + RECORDS_ON_A_PAGE,
        page=page,
        query="&".join(part for part in (asked.query, "each=true" if each else "") if part),
        filter=asked.query,
        each=each,
        asked=dict(asked.items()),
        choices=found.choices,
        names={name: NAMES.get(name, name.capitalize()) for name, _ in asked.items()},
    )


@router.get("/records.csv")
def records_csv(request: Request, asked: Asked) -> Response:
    """The same records for a spreadsheet."""
    headers = {"Content-Disposition": 'attachment; filename="privacy-ledger.csv"'}
    office = _office(request)
    office.ledger.records_from(1, most=1)  # what cannot be read is said before the first line is sent
    portions = csv_portions(office, asked)
    return StreamingResponse(portions, media_type="text/csv; charset=utf-8", headers=headers)


@router.get("/report")
def report(request: Request, release: str) -> Response:
    """The public report of a published release."""
    office = _office(request)
    if not office.manifest(release):
        raise SpecError("that release is not published, so it has no public report")
    return _report(office.paths(release).public_report)


@router.get("/explorer")
def explorer(request: Request, release: str) -> Response:
    """The page of tables of a published release."""
    office = _office(request)
    if not office.manifest(release):
        raise SpecError("that release is not published, so it has no page of tables")
    return _report(office.paths(release).explorer, policy=EXPLORER_POLICY)


@router.get("/explore.html")
def explorer_beside_report() -> Response:
    """Where a report's link leads from here: the report does not say of which release it is."""
    return RedirectResponse(address("releases"), status_code=303)


@router.get("/internal-report")
def internal_report(request: Request, release: str) -> Response:
    """The report with true errors, for editors alone."""
    _editor(request)
    return _report(_office(request).paths(release).internal_report)


@router.get("/artifact")
def artifact(request: Request, release: str, name: str) -> Response:
    """A published file: only what the manifest lists, never what merely lies in the folder."""
    office = _office(request)
    manifest, public = office.manifest(release), office.paths(release).public.resolve()
    path = (public / name).resolve()
    listed = manifest is not None and name in {*SIGNED, *manifest["artifacts"]}
    if not (listed and path.is_relative_to(public) and path.is_file()):
        raise SpecError("that file is not among the release's published artifacts")
    return FileResponse(path, filename=f"{release}-{path.name}", media_type="application/octet-stream")


@router.get("/metrics")
def prometheus(request: Request) -> Response:
    """Ledger and runs for Prometheus."""
    return PlainTextResponse(metrics.exposition(_office(request)), media_type=metrics.CONTENT_TYPE)


@router.get("/style.css")
def style() -> Response:
    """The style sheet of all pages."""
    return Response(render("style.css"), media_type="text/css")


@router.get("/frame.js")
def script() -> Response:
    """What a page does inside Airflow's frame."""
    return Response(render("frame.js"), media_type="text/javascript")


def _account_page(
    request: Request,
    view: AccountView,
    *,
    done: bool = False,
    refusal: str = "",
    asked: dict[str, str] | None = None,
    status: int = 200,
) -> HTMLResponse:
    who: Visitor = request.state.visitor
    purpose = f"cap {view.account.dataset}"
    token = issue_token(_secret(request), person=who.name, purpose=purpose) if who.may_edit else ""
    return _page(
        request,
        "account.html",
        status=status,
        here="accounts",
        view=view,
        token=token,
        done=done,
        refusal=refusal,
        asked=asked or {"epsilon": "", "reason": ""},
    )


def _release_page(
    request: Request, lines: list[ReleaseLine], page: int, *, title: str, empty: str, here: str = "", **named: str
) -> HTMLResponse:
    """Some of the releases; `named` is what the address names besides the page."""
    first = (page - 1) * RELEASES_ON_A_PAGE
    return _page(
        request,
        "releases.html",
        here=here,
        title=title,
        empty=empty,
        lines=lines[first : first + RELEASES_ON_A_PAGE],
        total=len(lines),
        number=page,
        more=len(lines) > first + RELEASES_ON_A_PAGE,
        path={"releases": "releases"}.get(here, "run" if "run" in named else "dag"),
        named=named,
    )


def _page(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    values |= {"visitor": request.state.visitor, "chain": _chain(_office(request))}
    return HTMLResponse(render(template, **values), status_code=status)


def _chain(office: Office) -> ChainStatus | None:
    try:
        return office.chain_status()
    except LedgerError:
        return None


def _verification(public: Path) -> Verification:
    """What a check of the published release finds."""
    try:
        return check_release(public)
    except OSError:
        raise SpecError("the server may not read all that the check needs; run: synth verify") from None


def _report(path: Path, *, policy: str = REPORT_POLICY) -> Response:
    if not os.access(path, os.R_OK):
        raise SpecError("that report is not there, or the server may not read it")
    return FileResponse(path, media_type="text/html; charset=utf-8", headers={"Content-Security-Policy": policy})


def _office(request: Request) -> Office:
    office: Office = request.app.state.office()
    return office


def _secret(request: Request) -> str:
    return str(request.app.state.secret())


def _editor(request: Request) -> Visitor:
    who: Visitor = request.state.visitor
    if not who.may_edit:
        raise HTTPException(403, "This takes permission to edit DAGs.")
    return who


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise LedgerError("the cap must be a number, such as 2.5") from None


LIFETIME_SECONDS = 2 * 60 * 60
"""Seconds for which a form's token is valid."""


def issue_token(secret: str, *, person: str, purpose: str, now: float | None = None) -> str:
    """A token for this person and purpose."""
    expires = str(int((time.time() if now is None else now) + LIFETIME_SECONDS))
    return f"{expires}.{_signature(secret, expires, person, purpose)}"


def token_is_valid(token: str, *, secret: str, person: str, purpose: str, now: float | None = None) -> bool:
    """Whether the token was issued for this person and purpose and has not expired."""
    expires, _, signature = token.partition(".")
    if not hmac.compare_digest(signature.encode(), _signature(secret, expires, person, purpose).encode()):
        return False
    return int(expires) > (time.time() if now is None else now)


def _signature(secret: str, *parts: str) -> str:
    # Lengths keep ("a", "bc") and ("ab", "c") apart.
    message = "".join(f"{len(part)}:{part}" for part in parts)
    return hmac.new(secret.encode(), message.encode(), hashlib.sha256).hexdigest()
