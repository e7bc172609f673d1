"""The explorer's server: pure functions over HTTP, for this machine alone."""

import json
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from mmulator.matrix.explore import site

HOST = "127.0.0.1"
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "json": "application/json"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@cache
def _index() -> str:
    return json.dumps(site.index(), separators=(",", ":"))


def respond(path: str) -> tuple[int, str, str]:
    """(status, kind of file, text) for a path and its query, as a request names them."""
    try:
        parts = urlsplit(path)
    except ValueError:  # a host that is none
        parts = urlsplit("/no/page")
    name = parts.path.lstrip("/") or "index.html"
    if name == "index.html":
        return HTTPStatus.OK, "html", site.page("server")
    if name in site.PARTS:
        return HTTPStatus.OK, name.rpartition(".")[2], site.part(name)
    if name == "index.json":
        return HTTPStatus.OK, "json", _index()
    if name.startswith("api/"):
        found = site.answer(name.removeprefix("api/"), dict(parse_qsl(parts.query, keep_blank_values=True)))
        status = HTTPStatus.BAD_REQUEST if "error" in found else HTTPStatus.OK
        return status, "json", json.dumps(found, separators=(",", ":"))
    return HTTPStatus.NOT_FOUND, "json", '{"error":"there is no such page","hint":""}'


class Handler(BaseHTTPRequestHandler):
    """A request. Only names of this machine are answered: no other site's name may lead here."""

    server_version, sys_version = "mmulator", ""
    protocol_version = "HTTP/1.1"
    timeout = 30  # seconds without a word from the other side

    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        port = self.server.port
        status: int
        if self.headers.get("Host") not in (f"{HOST}:{port}", f"localhost:{port}"):
            status, kind, text = HTTPStatus.MISDIRECTED_REQUEST, "json", '{"error":"this name is not served","hint":""}'
        else:
            status, kind, text = respond(self.path)
        data = text.encode()
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{_TYPES[kind]}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the terminal belongs to the command."""


class Server(ThreadingHTTPServer):
    """The server, bound to the loopback address. port: 0 takes a free one."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__((HOST, port), Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/"
