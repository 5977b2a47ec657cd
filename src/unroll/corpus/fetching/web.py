"""Asking a server that may be slow, endless or malicious: what comes from it passes one place, which counts and times.

A timeout of requests begins anew with every byte, headers have none of their own, and the content of a redirect is read
to its end. So the limits are kept where bytes leave the socket, and redirects are followed here.
"""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator, Mapping
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urljoin

REDIRECTS = 10
HEADERS = 1 << 18  # bytes, all answers of one attempt together
PIECE = 1 << 12


class Fault(Exception):
    """An attempt that failed; `again` where another may do better."""

    def __init__(self, reason: str, again: bool = True) -> None:
        super().__init__(reason)
        self.again = again


class Broken(Exception):
    """The content ended before its end; the reason, where it is ours."""


def in_words(text: object, at_most: int = 200) -> str:
    """What a server sent, fit for a line on a terminal."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text)[: at_most + 1])
    return shown if len(shown) <= at_most else shown[: at_most - 1] + "…"


class Watch:
    """Limits of one attempt: its bytes, and the seconds to wait for each share of them."""

    def __init__(self, silence: float, pace: tuple[int, float]) -> None:
        self.silence = silence  # seconds between two pieces
        self.pace = pace  # bytes of content that must come, and in how many seconds
        self.complaint = ""
        self._begin(HEADERS, HEADERS, silence, f"its headers took more than {silence:g} seconds", "of headers")

    def content(self, at_most: int) -> None:
        """The headers are there; from now on it is content."""
        share, seconds = self.pace
        self._begin(at_most, share, seconds, f"fewer than {share:,} bytes in {seconds:g} seconds", "in all")

    def _begin(self, at_most: int, share: int, seconds: float, slow: str, of_what: str) -> None:
        self._left, self._share, self._seconds, self._slow = at_most, share, seconds, slow
        self._large = f"more than {at_most:,} bytes {of_what}"
        self._came, self._waited = 0, 0.0

    def receive(self, connection: Any, raw: io.RawIOBase, buffer: Any) -> int | None:
        """One read from a socket. Time that passes elsewhere, at the disk for one, is not the server's."""
        left = self._seconds - self._waited
        if left <= 0:
            self._refuse(self._slow)
        connection.settimeout(min(self.silence, left))
        begun = time.monotonic()
        try:
            count = raw.readinto(buffer)
        except TimeoutError:
            if left <= self.silence:
                self._refuse(self._slow)
            raise
        finally:
            self._waited += time.monotonic() - begun
        self._left -= count or 0
        self._came += count or 0
        if self._left < 0:
            self._refuse(self._large)
        if self._came >= self._share:
            self._came, self._waited = 0, 0.0
        return count

    def _refuse(self, complaint: str) -> None:
        self.complaint = complaint
        raise OSError(complaint)


class _Stream(io.RawIOBase):
    """A socket's bytes, watched."""

    def __init__(self, connection: Any, watch: Watch) -> None:
        self._connection, self._watch = connection, watch
        self._raw = connection.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        return self._watch.receive(self._connection, self._raw, buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Watched:
    """A socket as far as an answer needs one."""

    def __init__(self, connection: Any, watch: Watch) -> None:
        self._connection, self._watch = connection, watch

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Stream(self._connection, self._watch))


def can_ask() -> bool:
    """Whether the library is there that asks."""
    try:
        import requests  # noqa: F401
    except ImportError:
        return False
    return True


def _session(watch: Watch) -> Any:
    """A session of requests whose connections are watched and whose redirects are left to us."""
    import requests
    from requests.adapters import HTTPAdapter

    def answer(connection: Any, *options: Any, **more: Any) -> HTTPResponse:
        return HTTPResponse(_Watched(connection, watch), *options, **more)  # type: ignore[arg-type]

    def watched(pool: type[Any]) -> type[Any]:
        connection = pool.ConnectionCls
        connection = type(connection.__name__, (connection,), {"response_class": staticmethod(answer)})
        return type(pool.__name__, (pool,), {"ConnectionCls": connection})

    def set_watch(manager: Any) -> Any:
        """Through proxies of any kind as well: they make connections of their own classes."""
        manager.pool_classes_by_scheme = {name: watched(pool) for name, pool in manager.pool_classes_by_scheme.items()}
        return manager

    class Adapter(HTTPAdapter):
        def init_poolmanager(self, *options: Any, **more: Any) -> None:
            super().init_poolmanager(*options, **more)
            set_watch(self.poolmanager)

        def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
            known = self.proxy_manager.get(proxy)
            return known or set_watch(super().proxy_manager_for(proxy, **options))

    class Session(requests.Session):
        def get_redirect_target(self, response: Any, **_: Any) -> None:  # type: ignore[override]
            return None

    session = Session()
    session.mount("http://", Adapter())
    session.mount("https://", Adapter())
    return session


class Peer:
    """One attempt to get what a URL names."""

    def __init__(self, url: str, timeout: tuple[float, float], pace: tuple[int, float]) -> None:
        self.url, self.timeout = url, timeout
        self.watch = Watch(timeout[1], pace)
        self._session = _session(self.watch)
        self._response: Any = None

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *error: object) -> None:
        if self._response is not None:
            self._response.close()
        self._session.close()

    def ask(self, headers: Mapping[str, str]) -> Any:
        """The answer after all redirects: its headers, and none of its content."""
        try:
            return self._follow(headers)
        except _troubles() as error:
            host = without_password(self.url).split("/")[2]
            why = re.sub(r"//[^/\s]*@", "//", self.watch.complaint or _root(error))  # a URL in it may hold a password
            reason = f"no answer from {in_words(host)} ({in_words(why)})"
            raise Fault(reason, again=not isinstance(error, ValueError)) from None

    def _follow(self, headers: Mapping[str, str]) -> Any:
        from requests.utils import get_auth_from_url

        url, password = self.url, get_auth_from_url(self.url)
        for _ in range(REDIRECTS + 1):
            # A password is for the host that it was given for.
            known = any(password) and not self._session.should_strip_auth(self.url, url)
            self._response = self._session.get(
                url, headers=dict(headers), timeout=self.timeout, stream=True, auth=password if known else None
            )
            if not self._response.is_redirect:
                return self._response
            self._response.close()
            place = self._response.headers["Location"].encode("latin-1", "replace").decode("utf-8", "replace")
            url = urljoin(self._response.url, place)
        raise Fault(f"{in_words(without_password(self.url))} redirects more than {REDIRECTS} times", again=False)

    def pieces(self, at_most: int) -> Iterator[bytes]:
        """The content, or Broken. On its way it may have twice `at_most` bytes and some: chunks have headers, too."""
        self.watch.content(2 * at_most + (1 << 20))
        try:
            yield from self._response.iter_content(PIECE)
        except _troubles():
            raise Broken(self.watch.complaint) from None


def without_password(url: str) -> str:
    """A URL that may be shown and stored."""
    begin, slashes, rest = url.partition("//")
    host, slash, path = rest.partition("/")
    return begin + slashes + host.rpartition("@")[2] + slash + path


def _troubles() -> tuple[type[Exception], ...]:
    """All that requests and what is under it raise at answers that are none."""
    from urllib3.exceptions import HTTPError

    return OSError, ValueError, HTTPException, HTTPError


def _root(error: BaseException) -> str:
    """What the system said, under the layers of requests and urllib3."""
    while cause := error.__cause__ or error.__context__:
        error = cause
    return str(getattr(error, "strerror", None) or error)
