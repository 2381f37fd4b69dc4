"""`gifair watch`: the report on localhost, for this machine only, while runs go on."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from gifair_ray.errors import BadInput

if TYPE_CHECKING:
    from gifair_ray.analysis.live import Live

HOST = "127.0.0.1"
CONTENT = "content.json"


def server(live: Live, port: int) -> ThreadingHTTPServer:
    """A server of the page and of its content; port 0 takes any that is free."""
    from gifair_ray.analysis.report import page

    frame = page({"address": CONTENT}).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = self.headers.get("Host", "").rpartition(":")[0]
            if host not in (HOST, "localhost"):  # a web site that calls itself by our address
                self.send_error(403)
            elif self.path == "/":
                self._send(frame, "text/html; charset=utf-8", {})
            elif self.path == f"/{CONTENT}":
                self._send_content()
            else:
                self.send_error(404)

        def _send_content(self) -> None:
            try:
                state, told = live.now()
            except BadInput as error:  # a folder was taken away, or is being written
                state, told = "", {"waiting": str(error), "live": str(error), "finished": False}
            if state and self.headers.get("If-None-Match") == state:
                self.send_response(304)
                self.end_headers()
                return
            text = json.dumps(told, ensure_ascii=False, allow_nan=False)
            self._send(text.encode(), "application/json", {"ETag": state})

        def _send(self, body: bytes, kind: str, more: dict[str, str]) -> None:
            self.send_response(200)
            headers = {"Content-Type": kind, "Content-Length": str(len(body)), **more}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the terminal shows the address, and what goes wrong."""

    try:
        return ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        why = error.strerror or error
        raise BadInput(f"cannot serve on port {port}: {why}; choose another --port") from error
