"""The pages: who may see what, what they say, that nothing in them runs, and that caps change only from our form."""

import csv
import io
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import pytest
from fastapi import FastAPI, HTTPException, Request
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from support.budget_examples import EVIL, tampered
from support.conversations import chain, conversation

from synth_core.errors import SpecError
from synth_core.events.office import Office
from synth_core.privacy.wording import left_figure, loss_figure
from synth_core.synthesizers.methods import synthesizer
from synth_core.web.application import create_app
from synth_core.web.pages import size
from synth_core.web.records import record_lines, to_csv
from synth_core.web.routes import RECORDS_ON_A_PAGE, Visitor, issue_token

SECRET = "s" * 32
PEOPLE = {"viewer": Visitor("vera", may_edit=False), "editor": Visitor("edith", may_edit=True)}
PAGES = (
    *("/", "/account?dataset=people", "/account?dataset=houses", "/releases", "/release?name=r1"),
    *("/release?name=r1&check=files", "/release?name=going-1", "/release?name=failed-1", "/records"),
    *("/dag?dag=census_release", "/dag?dag=other", "/run?dag=census_release&run=manual__2026-01-01"),
)


def visitor(request: Request) -> Visitor:
    name = request.headers.get("x-person")
    if name not in PEOPLE:
        raise HTTPException(401)
    return PEOPLE[name]


def application(office):
    return create_app(office=lambda: office, visitor=visitor, secret=lambda: SECRET)


@pytest.fixture
def shown(finished_workspace):
    """The pages of a workspace that nobody changes, mounted under a prefix as in Airflow."""
    return client(Office(finished_workspace))


def client(office):
    outer = FastAPI()
    outer.mount("/some/where/budget", application(office))
    return TestClient(outer, base_url="http://testserver/some/where/budget", follow_redirects=False)


def ask(browser, address, person="viewer"):
    return browser.get(address.lstrip("/") or "/", headers={"x-person": person})


class Links(HTMLParser):
    """Every address a page names, and whether it has anything that could run."""

    def __init__(self):
        super().__init__()
        self.addresses, self.dangers, self.labels, self.inputs = [], [], set(), set()

    def handle_starttag(self, tag, attrs):
        facts = dict(attrs)
        self.addresses += [facts[name] for name in ("href", "src", "action") if name in facts]
        self.dangers += [name for name in facts if name.startswith("on") or name == "style"]
        if tag == "script" and facts != {"src": "frame.js"}:
            self.dangers.append(tag)
        if tag == "label":
            self.labels.add(facts["for"])
        if tag in ("input", "select") and facts.get("type") != "hidden":
            self.inputs.add(facts["id"])


def links(text):
    parser = Links()
    parser.feed(text)
    return parser


def test_every_address_turns_strangers_away(shown, finished_workspace):
    routes = [route for route in application(Office(finished_workspace)).routes if isinstance(route, APIRoute)]
    assert len(routes) == len(application(Office(finished_workspace)).routes) == 17
    for route in routes:
        for method in route.methods:
            answer = shown.request(method, route.path.lstrip("/") or "/")
            assert answer.status_code == 401, route.path
            assert "people" not in answer.text


def test_every_release_is_reached_by_the_links_older_and_newer(shown, monkeypatch):
    monkeypatch.setattr("synth_core.web.routes.RELEASES_ON_A_PAGE", 1)
    address, names = "releases", []
    while address:
        answer = ask(shown, address)
        assert answer.status_code == 200
        names += set(re.findall(r'href="release\?name=([^"&]+)"', answer.text))  # a chart and a table
        older = re.search(r'href="([^"]+)" rel="next"', answer.text)
        address = unescape(older[1]) if older else ""
    assert sorted(names) == ["failed-1", "going-1", "r1"]
    newer = re.search(r'href="([^"]+)" rel="prev"', answer.text)
    assert ask(shown, unescape(newer[1])).status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("address", PAGES)
def test_pages_are_complete_escaped_and_link_relatively(shown, address):
    for person in PEOPLE:
        answer = ask(shown, address, person)
        assert answer.status_code == 200
        assert "alert('x')" not in answer.text.replace("&#39;", "'").replace("&lt;script&gt;alert('x')", "")
        page = links(answer.text)
        assert page.dangers == []
        assert page.inputs <= page.labels
        assert all(not re.match(r"^(/|[a-z]+:)", link) for link in page.addresses)
        for name, value in (("content-security-policy", "default-src 'none'"), ("cache-control", "no-store")):
            assert value in answer.headers[name]
        assert "unsafe-inline" not in answer.headers["content-security-policy"]


def test_every_link_leads_somewhere(shown):
    seen, todo = set(), ["/"]
    while todo:
        address = todo.pop()
        if address in seen:
            continue
        seen.add(address)
        answer = ask(shown, address, "editor")
        assert answer.status_code == 200, address
        if "text/html" in answer.headers["content-type"] and not re.search("report|explorer", address):
            found = (link.split("#")[0] for link in links(answer.text).addresses)
            todo += [link for link in found if link and not link.startswith("..") and link not in ("cap", "./")]
    assert {link.split("?")[0] for link in seen} >= {
        *(
            "account",
            "release",
            "records",
            "records.csv",
            "internal-report",
            "artifact",
            "style.css",
            "frame.js",
        )
    }


def test_the_accounts_page_says_what_is_left(shown):
    text = ask(shown, "/").text
    assert "Ledger verified" in text
    assert "houses" in text
    assert "no room &lt;script&gt;" in text  # the latest refusal, harmless
    assert text.index("people") < text.index("houses</a></h2>")  # the one with the least room comes first


def test_a_release_page_has_guarantee_artifacts_and_lineage(shown):
    text = ask(shown, "/release?name=r1").text
    for word in (
        "published",
        "manifest.json",
        "part-00000.parquet",
        "SHA-256",
        "no conclusion becomes more than",
    ):
        assert word in text
    assert "../dags/census_release/runs/manual__2026-01-01" in text
    assert "each with the checksum" not in text
    checked = ask(shown, "/release?name=r1&check=files").text
    for name in ("Signature", "Files", "Certificate", "Ledger"):
        assert f"<dt>{name}</dt><dd>agrees: " in checked
    assert "task fit failed" in ask(shown, "/release?name=failed-1").text
    assert "under way" in ask(shown, "/release?name=going-1").text


def test_a_changed_file_is_found(workspace):
    browser = client(Office(workspace))
    (workspace / "public" / "r1" / "scores.json").write_text("{}")
    assert "scores.json: does not match its checksum" in ask(browser, "/release?name=r1&check=files").text
    (workspace / "public" / "r1" / "scores.json").unlink()
    assert "missing" in ask(browser, "/release?name=r1").text


def test_the_run_tab_shows_the_release_of_that_run(shown):
    assert "<h1>Release r1</h1>" in ask(shown, "/run?dag=census_release&run=manual__2026-01-01").text
    several = ask(shown, "/run?dag=census_release&run=manual__2026-01-02").text
    assert "Releases of this run" in several
    assert "failed-1" in several
    assert "r1" not in several
    assert "No run of this DAG" in ask(shown, "/dag?dag=other").text
    assert "has not spent" in ask(shown, "/run?dag=census_release&run=other").text


def test_records_are_filtered_and_downloaded(shown):
    text = ask(shown, "/records?dataset=houses&step=fit").text
    assert "1 line" in text
    assert "measuring" in text
    rows = list(csv.DictReader(io.StringIO(ask(shown, "/records.csv?dataset=houses&step=fit").text)))
    assert [(row["release"], row["state"], row["task"]) for row in rows] == [("failed-1", "measuring", "fit")]
    everything = list(csv.DictReader(io.StringIO(ask(shown, "/records.csv").text)))
    assert {row["dataset"] for row in everything} == {"houses", "people"}
    by_run = ask(shown, "/records.csv?dag=census_release&run=manual__2026-01-01&task=score").text
    assert {row["step"] for row in csv.DictReader(io.StringIO(by_run))} == {"score"}
    assert "No record matches" in ask(shown, "/records?release=none").text


def test_the_records_page_has_a_line_for_each_round_and_each_question_where_asked(shown):
    """The same prices in sum, with fewer lines; the page of one filter leads to the other view of it."""
    domain, codes = chain((3, 3, 3, 3), 400)
    told = conversation(synthesizer("privmrf"), domain, codes)
    lines, each = (record_lines(told.measured, each=one) for one in (False, True))
    assert len(each) == len(told.measured) > 10
    assert len(lines) < len(each)
    assert sum(line.mu2 for line in lines) == sum(line.mu2 for line in each)
    assert sum(line.questions for line in lines) == sum(line.questions for line in each)
    assert {"round 0", "round 1"} <= {line.purpose for line in lines}
    assert [line.records[-1].id for line in lines] == sorted((line.records[-1].id for line in lines), reverse=True)
    assert 'href="records?dataset=people&amp;each=true"' in ask(shown, "/records?dataset=people").text
    single = ask(shown, "/records?dataset=people&each=true").text
    assert 'href="records?dataset=people"' in single
    assert single.count("<tr>") > ask(shown, "/records?dataset=people").text.count("<tr>")


def test_a_spreadsheet_runs_nothing(office):
    (record,) = [record for record in office.ledger.records() if record.runner.actor == EVIL]
    dangerous = replace(record, reason="=cmd|' /C calc'!A0", mu2=record.mu2)
    (row,) = csv.DictReader(io.StringIO(to_csv([dangerous])))
    assert row["reason"].startswith("'=")
    assert float(row["mu2"]) == 0


def test_long_lists_have_pages(workspace, monkeypatch):
    monkeypatch.setattr("synth_core.web.routes.RECORDS_ON_A_PAGE", 5)
    browser = client(Office(workspace))
    first, second = (
        ask(browser, "/records?dataset=people").text,
        ask(browser, "/records?dataset=people&page=2").text,
    )
    assert "records?dataset=people&amp;page=2" in first
    assert 'rel="prev"' in second
    assert ask(browser, "/records?page=0").status_code == 422
    assert RECORDS_ON_A_PAGE == 200


def test_the_internal_report_is_for_editors(shown):
    assert ask(shown, "/internal-report?release=r1").status_code == 403
    answer = ask(shown, "/internal-report?release=r1", "editor")
    assert answer.status_code == 200
    assert "sandbox" in answer.headers["content-security-policy"]
    assert "script-src" not in answer.headers["content-security-policy"]
    viewer, editor = (ask(shown, "/release?name=r1", person).text for person in ("viewer", "editor"))
    assert "internal-report?" not in viewer
    assert "internal-report?" in editor


def test_the_public_report_needs_a_published_release(workspace):
    browser, public = client(Office(workspace)), workspace / "public"
    answer = ask(browser, "/report?release=r1")
    assert answer.status_code == 200
    assert "sandbox" in answer.headers["content-security-policy"]
    assert "<iframe" in ask(browser, "/release?name=r1").text
    (public / "going-1").mkdir()
    (public / "going-1" / "report.html").write_text("<p>too early</p>")
    assert ask(browser, "/report?release=going-1").status_code == 404
    (public / "r1" / "report.html").unlink()
    assert ask(browser, "/report?release=r1").status_code == 404


def test_the_page_of_tables_runs_its_script_in_no_origin(workspace):
    browser, public = client(Office(workspace)), workspace / "public"
    answer = ask(browser, "/explorer?release=r1")
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none';")
    assert policy.endswith("sandbox allow-scripts allow-downloads")
    assert "explorer?release=r1" in ask(browser, "/release?name=r1").text
    beside = browser.get("explore.html", headers={"x-person": "viewer"}, follow_redirects=False)
    assert (beside.status_code, beside.headers["location"]) == (303, "releases")
    (public / "going-1").mkdir()
    (public / "going-1" / "explore.html").write_text("<p>too early</p>")
    assert ask(browser, "/explorer?release=going-1").status_code == 404
    (public / "r1" / "explore.html").unlink()
    assert ask(browser, "/explorer?release=r1").status_code == 404
    assert "explorer?release=r1" not in ask(browser, "/release?name=r1").text


def test_a_server_that_may_not_read_everything_says_so(finished_workspace, monkeypatch):
    def refuse(_):
        raise PermissionError

    monkeypatch.setattr("synth_core.web.routes.check_release", refuse)
    office = Office(finished_workspace)
    app = create_app(office=lambda: office, visitor=visitor, secret=lambda: SECRET)
    answer = TestClient(app).get("/release?name=r1&check=files", headers={"x-person": "viewer"})
    assert "may not read all" in answer.text


@pytest.mark.parametrize(
    ("release", "name"),
    [
        ("r1", "../../confidential/r1/report.html"),
        ("r1", "/etc/passwd"),
        ("r1", "extract"),
        ("r1", "secret.txt"),
        ("../confidential/r1", "report.html"),
        ("going-1", "schema.yaml"),
    ],
)
def test_only_published_files_are_handed_out(workspace, release, name):
    (workspace / "public" / "r1" / "secret.txt").write_text("not in the manifest")
    browser = client(Office(workspace))
    query = {"release": release, "name": name}
    assert browser.get("artifact", params=query, headers={"x-person": "editor"}).status_code == 404


def test_a_manifest_cannot_open_the_confidential_zone(workspace):
    path = workspace / "public" / "r1" / "manifest.json"
    path.write_text(path.read_text().replace('"schema.yaml"', '"../../confidential/r1/report.html"'))
    query = {"release": "r1", "name": "../../confidential/r1/report.html"}
    answer = client(Office(workspace)).get("artifact", params=query, headers={"x-person": "viewer"})
    assert answer.status_code == 404


def test_an_artifact_is_a_download(shown):
    answer = ask(shown, "/artifact?release=r1&name=extract/part-00000.parquet")
    assert answer.content[:4] == b"PAR1"
    assert "attachment" in answer.headers["content-disposition"]


def cap_form(browser, dataset="houses", person="editor"):
    text = ask(browser, f"/account?dataset={dataset}", person).text
    found = re.search(r'name="token" value="([^"]+)"', text)
    return found and found[1]


def post_cap(browser, *, person="editor", headers=None, **fields):
    form = {"dataset": "houses", "epsilon": "2.5", "reason": "board 14", "token": "", **fields}
    return browser.post("cap", data=form, headers={"x-person": person, **(headers or {})})


def test_an_editor_sets_a_cap_with_a_reason(office):
    browser = client(office)
    answer = post_cap(browser, token=cap_form(browser))
    assert answer.status_code == 303
    assert answer.headers["location"] == "account?dataset=houses&done=cap"
    assert office.ledger.balance("houses").account.cap_epsilon == 2.5
    last = office.ledger.records(dataset="houses")[-1]
    assert (last.reason, last.runner.actor) == ("board 14", "edith")
    assert "The cap is now ε 2.5" in ask(browser, "/account?dataset=houses&done=cap").text


@pytest.mark.parametrize(
    "change",
    [
        {"person": "viewer"},
        {"token": ""},
        {"token": "9999999999.00"},
        {"token": issue_token(SECRET, person="vera", purpose="cap houses")},
        {"token": issue_token(SECRET, person="edith", purpose="cap people")},
        {"token": issue_token("t" * 32, person="edith", purpose="cap houses")},
        {"token": issue_token(SECRET, person="edith", purpose="cap houses", now=0)},
        {"headers": {"sec-fetch-site": "cross-site"}},
        {"headers": {"sec-fetch-site": "same-site"}},
    ],
)
def test_nobody_else_sets_a_cap(office, change):
    browser = client(office)
    answer = post_cap(browser, **{"token": cap_form(browser), **change})
    assert answer.status_code == 403
    assert office.ledger.balance("houses").account.cap_epsilon == 2.0


def test_a_viewer_is_offered_no_form(shown):
    assert cap_form(shown, person="viewer") is None


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"epsilon": "0.1"}, "cannot be lower"),
        ({"epsilon": "nan"}, "positive and finite"),
        ({"epsilon": "much"}, "must be a number"),
        ({"reason": "  "}, "needs a reason"),
        ({"reason": "x" * 501}, "at most 500"),
    ],
)
def test_a_refused_cap_says_why_and_keeps_what_was_typed(office, fields, says):
    browser = client(office)
    answer = post_cap(browser, token=cap_form(browser), **fields)
    assert answer.status_code == 422
    assert says in answer.text
    assert 'aria-invalid="true"' in answer.text
    assert f'value="{fields.get("epsilon", "2.5")}"' in answer.text
    assert office.ledger.balance("houses").account.cap_epsilon == 2.0


def test_a_broken_ledger_is_shown_in_red(workspace):
    tampered(workspace, "UPDATE ledger_records SET purpose = 'x' WHERE id = 4")
    text = ask(client(Office(workspace)), "/").text
    assert "Ledger broken" in text
    assert "record 4 was changed after it was written" in text


def test_without_a_ledger_the_page_says_what_to_do(tmp_path):
    browser = client(Office(tmp_path))
    assert "there is no ledger at" in ask(browser, "/").text
    assert ask(browser, "/releases").status_code == 404


@pytest.mark.parametrize("address", ["/account?dataset=none", "/release?name=none", "/release?name=../r1"])
def test_what_is_not_there_is_a_page_that_says_so(shown, address):
    answer = ask(shown, address)
    assert answer.status_code == 404
    assert 'role="alert"' in answer.text


def test_an_unreadable_manifest_is_refused(office):
    office.paths("r1").manifest.write_text("{")
    with pytest.raises(SpecError, match="cannot be read"):
        office.manifest("r1")


def test_amounts_are_written_as_people_read_them():
    assert [loss_figure(value) for value in (0, 0.1, 2, 0.03121)] == ["0.00", "0.10", "2.00", "0.0313"]
    assert [left_figure(value) for value in (0, 0.109, 1.999999999)] == ["0.00", "0.10", "2.00"]
    assert [size(value) for value in (0, 999, 1000, 80_512, 3_200_000_000)] == [
        *("0 bytes", "999 bytes", "1 kB", "80.5 kB", "3.2 GB")
    ]
