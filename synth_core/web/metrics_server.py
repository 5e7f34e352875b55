"""The metrics over HTTP, for a Prometheus that has no login to Airflow; meant for a closed network."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from synth_core.errors import SpecError
from synth_core.events.office import Office
from synth_core.web.metrics import exposition


def metrics_server(office: Office, address: str) -> ThreadingHTTPServer:
    """A server on `host:port` that answers GET /metrics and nothing else; the caller runs and closes it."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise SpecError(f"{address!r} is no address; write HOST:PORT, such as 127.0.0.1:9105")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/metrics":
                self.send_error(404)
                return
            body = exposition(office).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 — named so by its base
            """Say nothing: a scrape every few seconds is no event."""

    try:
        return ThreadingHTTPServer((host, int(port)), Handler)
    except OSError:
        raise SpecError(
            f"metrics cannot be served on {address}; it is in use or not of this machine"
        ) from None
