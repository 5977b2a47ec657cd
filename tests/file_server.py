"""A file server on this machine's loopback that misbehaves on demand."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class FileServer:
    """One file under every path, and what each request asked for."""

    content: bytes
    etag: str | None = '"one"'
    modified: str | None = None
    ranges: bool = True  # whether a Range request is honoured
    lengths: bool = True  # without: chunks, and no Content-Length
    cuts: list[int] = field(default_factory=list)  # request by request: close the connection after this many bytes
    statuses: list[int] = field(default_factory=list)  # request by request: answer with this instead
    moved: str | None = None  # redirect every other path to this one
    pause: float = 0.0  # seconds before each piece
    piece: int = 1 << 14
    seen: list[dict[str, str]] = field(default_factory=list)
    sent: int = 0  # bytes of content, all requests together
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/corpus.txt"

    @property
    def asked(self) -> list[str | None]:
        """The Range of each request."""
        return [request.get("Range") for request in self.seen]


@contextmanager
def serving(content: bytes, **behaviour: Any) -> Iterator[FileServer]:
    server = FileServer(content, **behaviour)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if server.moved and self.path != server.moved:
                self.respond(302, {"Location": server.moved, "Content-Length": "0"})
                return
            server.seen.append(dict(self.headers))
            if server.statuses and (status := server.statuses.pop(0)) != 200:
                self.respond(status, {"Content-Length": "5"})
                self.wfile.write(b"sorry")
                return
            start = self.start()
            if start is not None and start >= len(server.content):
                self.respond(416, {"Content-Range": f"bytes */{len(server.content)}", "Content-Length": "0"})
                return
            rest = server.content[start or 0 :]
            headers = {"ETag": server.etag, "Last-Modified": server.modified}
            headers |= {"Content-Length": str(len(rest))} if server.lengths else {"Transfer-Encoding": "chunked"}
            if start is not None:
                headers["Content-Range"] = f"bytes {start}-{len(server.content) - 1}/{len(server.content)}"
            self.respond(200 if start is None else 206, headers)
            self.send(rest, server.cuts.pop(0) if server.cuts else len(rest))

        def start(self) -> int | None:
            wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            since = self.headers.get("If-Range")
            if not wanted or not server.ranges or (since and since not in (server.etag, server.modified)):
                return None
            return int(wanted[1])

        def send(self, rest: bytes, size: int) -> None:
            for place in range(0, min(size, len(rest)), server.piece):
                time.sleep(server.pause)
                piece = rest[place : min(place + server.piece, size)]
                framed = piece if server.lengths else b"%x\r\n%s\r\n" % (len(piece), piece)
                try:
                    self.wfile.write(framed)
                except OSError:  # the client is gone
                    self.close_connection = True
                    return
                server.sent += len(piece)
            if size < len(rest):
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
            elif not server.lengths:
                self.wfile.write(b"0\r\n\r\n")

        def respond(self, status: int, headers: dict[str, str | None]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if value is not None:
                    self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """Clients that hang up are what the tests are about."""

    with Quiet(("127.0.0.1", 0), Handler) as listening:
        server.port = listening.server_address[1]
        thread = threading.Thread(target=lambda: listening.serve_forever(0.01))
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()
            thread.join()


def closed_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
