"""An object store in this process: as much of S3's protocol as reading and listing needs, over files in memory."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

LAST_MODIFIED = "Mon, 16 Nov 2026 00:00:00 GMT"


class ObjectStore:
    """Objects by `bucket/key`; `requests` remembers what was asked."""

    def __init__(self):
        self.objects = {}
        self.requests = []

    @contextlib.contextmanager
    def serve(self):
        """The address of the store while it answers."""
        handler = type("Handler", (_Handler,), {"store": self})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: ObjectStore

    def do_HEAD(self):
        self._answer_object(body=False)

    def do_GET(self):
        asked = parse_qs(urlsplit(self.path).query)
        if "list-type" in asked:
            self._answer_list(asked)
        else:
            self._answer_object(body=True)

    def _answer_object(self, *, body):
        name = unquote(urlsplit(self.path).path).strip("/")
        self.store.requests.append((self.command, name))
        if name in {key.split("/")[0] for key in self.store.objects}:
            return self._send(200, b"", {}, body=False)
        if name not in self.store.objects:
            return self._send(404, b"", {}, body=False)
        content, status, headers = self.store.objects[name], 200, {}
        if "Range" in self.headers:
            first, last = self.headers["Range"].removeprefix("bytes=").split("-")
            end = min(int(last), len(content) - 1)
            headers["Content-Range"] = f"bytes {first}-{end}/{len(content)}"
            content, status = content[int(first) : end + 1], 206
        return self._send(status, content, headers, body=body)

    def _answer_list(self, asked):
        bucket = unquote(urlsplit(self.path).path).strip("/")
        prefix, delimiter = asked.get("prefix", [""])[0], asked.get("delimiter", [""])[0]
        keys = [n.removeprefix(f"{bucket}/") for n in sorted(self.store.objects) if n.startswith(f"{bucket}/{prefix}")]
        folders = set()
        if delimiter:
            rest = {key: key.removeprefix(prefix) for key in keys}
            folders = {prefix + r.split(delimiter)[0] + delimiter for r in rest.values() if delimiter in r}
            keys = [key for key, r in rest.items() if delimiter not in r]
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.store.objects[f'{bucket}/{key}'])}</Size>"
            "<LastModified>2026-11-16T00:00:00.000Z</LastModified></Contents>"
            for key in keys
        )
        common = "".join(f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in sorted(folders))
        text = (
            '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(keys)}</KeyCount>"
            f"<IsTruncated>false</IsTruncated>{contents}{common}</ListBucketResult>"
        )
        self._send(200, text.encode(), {"Content-Type": "application/xml"}, body=True)

    def _send(self, status, content, headers, *, body):
        self.send_response(status)
        for name, value in {
            "Content-Length": str(len(content)),
            "Last-Modified": LAST_MODIFIED,
            **headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *args):
        pass
