"""Notifications arrive at a real webhook and a real mail server, say what they must, and never raise."""

import json
import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from synth_core.errors import SpecError
from synth_core.events.journal import Event, Kind
from synth_core.events.notices import Email, Webhook, configured, message, notify
from synth_core.privacy.accounts import Runner

REFUSED = Event(
    kind=Kind.REFUSAL,
    dataset="people",
    release="r1",
    step="prepare",
    text="dataset 'people' has epsilon 0.20 of 2.00 left and this release needs 1.00",
    runner=Runner(dag="census_release", run="manual__1"),
)


@pytest.fixture
def hook():
    """A loopback server that keeps what was posted to it; answers 500 below /broken and at the end below /slow."""
    posts, released = [], threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posts.append((self.path, self.headers["Content-Type"], json.loads(body)))
            if self.path == "/slow":
                released.wait()
            self.send_response(500 if self.path == "/broken" else 200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", posts
    released.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def post_office():
    """A mail server of a few lines: yields its port and the list of letters."""
    letters = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        connection, _ = listener.accept()
        with suppress(OSError), connection, connection.makefile("rwb") as line:

            def say(text):
                line.write(text + b"\r\n")
                line.flush()

            say(b"220 here")
            for command in line:
                if command.upper().startswith(b"DATA"):
                    say(b"354 go on")
                    letter = []
                    for part in line:
                        if part == b".\r\n":
                            break
                        letter.append(part)
                    letters.append(b"".join(letter).decode())
                    say(b"250 kept")
                elif command.upper().startswith(b"QUIT"):
                    say(b"221 bye")
                    return
                else:
                    say(b"250 ok")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1], letters
    listener.close()
    thread.join(5)


def test_a_webhook_gets_release_step_and_amounts(hook):
    url, posts = hook
    assert notify(REFUSED, [Webhook(url=f"{url}/services/x")]) == []
    ((path, kind, body),) = posts
    assert (path, kind) == ("/services/x", "application/json")
    assert list(body) == ["text"]
    for word in ("refused", "r1", "prepare", "needs 1.00", "census_release / manual__1"):
        assert word in body["text"]


def test_a_letter_arrives(post_office):
    port, letters = post_office
    channel = Email(
        kind="email", host="127.0.0.1", port=port, tls="none", sender="synth@a.example", to=["ops@a.example"]
    )
    assert notify(REFUSED, [channel]) == []
    (letter,) = letters
    assert "Subject: refused: r1, step prepare" in letter
    assert "To: ops@a.example" in letter
    assert "needs 1.00" in letter.replace("=\r\n", "")


@pytest.mark.parametrize("tls", ["starttls", "tls"])
def test_no_letter_goes_out_in_clear_where_tls_was_asked_for(post_office, tls):
    port, letters = post_office
    channel = Email(kind="email", host="127.0.0.1", port=port, tls=tls, sender="s@a.example", to=["t@a.example"])
    (trouble,) = notify(REFUSED, [channel])
    assert "email" in trouble
    assert letters == []


def test_a_broken_channel_is_named_without_its_address_and_the_next_one_still_gets_it(hook, caplog):
    url, posts = hook
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}/secret"
    channels = [Webhook(url=nobody), Webhook(url=f"{url}/broken"), Webhook(url=f"{url}/slow", timeout=0.2)]
    troubles = notify(REFUSED, [*channels, Webhook(url=f"{url}/good")])
    assert [trouble.split(" failed: ")[0] for trouble in troubles] == [
        f"notification by webhook (channel {number})" for number in (1, 2, 3)
    ]
    assert posts[-1][0] == "/good"
    assert "secret" not in caplog.text


def test_a_channel_gets_only_what_it_asked_for(hook):
    url, posts = hook
    chosen = Webhook(url=f"{url}/alarms", events=[Kind.CHAIN])
    usual = Webhook(url=f"{url}/usual")
    for kind in Kind:
        assert notify(Event(kind=kind), [chosen, usual]) == []
    paths = [path for path, _, _ in posts]
    assert paths.count("/alarms") == 1
    assert paths.count("/usual") == len(Kind) - 1  # a finished step calls nobody


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_has_a_subject_of_one_line(kind):
    subject, body = message(Event(kind=kind, release="r\n1", text="a\nb"))
    assert "\n" not in subject
    assert "a\nb" in body


def test_the_environment_and_a_file_name_the_channels(hook, tmp_path, monkeypatch):
    url, posts = hook
    monkeypatch.setenv("HOOK", f"{url}/file")
    file = tmp_path / "notify.yaml"
    file.write_text("channels:\n- {kind: webhook, url: $HOOK, events: [refusal, cap]}\n")
    monkeypatch.setenv("SYNTH_NOTIFY", str(file))
    monkeypatch.setenv("SYNTH_NOTIFY_WEBHOOK", f"{url}/environment")
    assert notify(REFUSED) == []
    assert [path for path, _, _ in posts] == ["/file", "/environment"]


def test_without_channels_nothing_happens(monkeypatch):
    monkeypatch.delenv("SYNTH_NOTIFY", raising=False)
    assert configured() == ()
    assert notify(REFUSED) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("channels: [{kind: pigeon}]", "pigeon"),
        ("channels: [{kind: webhook, url: 'file:///etc/passwd'}]", "url"),
        ("channels: [{kind: webhook, url: $MISSING_VARIABLE}]", "MISSING_VARIABLE is not set"),
        ("channels: [{kind: webhook, url: 'https://a.example', evnts: []}]", "evnts"),
        ("channels: [{kind: email, host: h, sender: s, to: []}]", "to"),
        (
            "channels: [{kind: email, host: h, sender: s, to: [t], tls: none, user: u, password: hunter2}]",
            "only over TLS",
        ),
        ("channels: [", "not valid YAML"),
        ("- 1", "valid"),
    ],
)
def test_a_wrong_file_is_refused_and_told_nowhere_but_raises_nothing(tmp_path, monkeypatch, text, says):
    file = tmp_path / "notify.yaml"
    file.write_text(text)
    monkeypatch.setenv("SYNTH_NOTIFY", str(file))
    with pytest.raises(SpecError) as refusal:
        configured()
    assert says in str(refusal.value)
    assert "hunter2" not in str(refusal.value)
    assert notify(REFUSED) == [str(refusal.value)]


def test_a_missing_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTH_NOTIFY", str(tmp_path / "no.yaml"))
    with pytest.raises(SpecError, match="cannot be read"):
        configured()


def test_secrets_are_not_shown():
    hook = Webhook(url="https://hooks.example/T000/B000/secret")
    mail = Email(kind="email", host="h", sender="s", to=["t"], user="u", password="hunter2")
    assert "secret" not in repr(hook)
    assert "hunter2" not in repr(mail)
