"""A server on this machine's loopback that sends any bytes as slowly as it likes, for a while."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

LONGEST = 8.0  # seconds that it serves at most
CONNECTIONS = 40

Script = Callable[[], Iterable[bytes]]


@dataclass
class RawServer:
    """What each connection gets, in turn; the last is for all that follow."""

    scripts: list[Script]
    pause: float = 0.0  # seconds before each piece
    asked: list[bytes] = field(default_factory=list)  # each request, head and all
    sent: int = 0  # bytes, all connections together
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/corpus.txt"


def said(*pieces: bytes) -> Script:
    return lambda: pieces


def forever(first: bytes, again: bytes) -> Script:
    """An answer that begins and does not end."""

    def pieces() -> Iterator[bytes]:
        yield first
        while True:
            yield again

    return pieces


def slowly(content: bytes, size: int = 1, head: bytes = b"") -> Script:
    """Send a body in pieces of this many bytes, after a head that comes at once."""

    def pieces() -> Iterator[bytes]:
        yield head
        for place in range(0, len(content), size):
            yield content[place : place + size]

    return pieces


@contextmanager
def speaking(*scripts: Script, pause: float = 0.0) -> Iterator[RawServer]:
    server, over = RawServer(list(scripts), pause), threading.Event()
    deadline = time.monotonic() + LONGEST

    def talk(connection: socket.socket, script: Script) -> None:
        with connection:
            connection.settimeout(1)
            try:
                request = b""
                while b"\r\n\r\n" not in request and (more := connection.recv(1 << 16)):
                    request += more
                server.asked.append(request)
                for piece in script():
                    if over.wait(server.pause) or time.monotonic() > deadline:
                        return
                    connection.sendall(piece)
                    server.sent += len(piece)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)  # until the other side hangs up
            except OSError:
                return

    def serve(listening: socket.socket) -> None:
        talks = []
        while not over.is_set() and time.monotonic() < deadline and len(talks) < CONNECTIONS:
            try:
                connection, _ = listening.accept()
            except TimeoutError:
                continue
            script = server.scripts[min(len(talks), len(server.scripts) - 1)]
            talks.append(threading.Thread(target=talk, args=(connection, script)))
            talks[-1].start()
        for each in talks:
            each.join()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.02)
        server.port = listening.getsockname()[1]
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        try:
            yield server
        finally:
            over.set()
            thread.join()
