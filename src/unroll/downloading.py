"""A download that can be stopped and goes on: the part that is there, and what is known about the rest of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from unroll import durable
from unroll.errors import SaveError

Progress = Callable[[int, int | None], None]
_PIECE = 1 << 14


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


@contextmanager
def saving(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SaveError(f"Could not save {path}: {error.strerror or error}. What was saved before is intact.") from None


class Fault(Exception):
    """An attempt that failed; `again` where another may do better."""

    def __init__(self, reason: str, again: bool = True) -> None:
        super().__init__(reason)
        self.again = again


class Part:
    """A download on its way: the file that pooch writes to, and what is known about the rest of it."""

    def __init__(self, path: Path, url: str, report: Progress) -> None:
        self.path, self.url, self.report = path, url, report
        self.shown = re.sub(r"//[^/@]*@", "//", url)  # without a password
        self.facts_path = path.with_name(path.name + ".json")
        self.facts = read_json(self.facts_path)
        self.resumed = False
        self._file: BinaryIO | None = None
        self._response: Any = None

    @property
    def size(self) -> int:
        """How many bytes are on the disk."""
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def total(self) -> int | None:
        """How many there will be, where the server said so."""
        total = self.facts.get("total")
        return total if isinstance(total, int) else None

    def clear(self) -> None:
        """Begin anew next time."""
        self.facts = {}
        with saving(self.path):
            self.path.unlink(missing_ok=True)
            self.facts_path.unlink(missing_ok=True)

    def go_on(self, downloader: Callable[..., Any], timeout: tuple[float, float]) -> None:
        """Get what is missing, or raise a Fault with the bytes so far kept."""
        if self.facts.get("url") != self.shown or (self.total is not None and self.size > self.total):
            self.clear()
        self.resumed = self.size > 0
        if self.resumed and self.size == self.total:
            return
        # Ranges and lengths are those of the file itself only where it is not compressed on its way.
        headers = {"Accept-Encoding": "identity"}
        if self.resumed:
            headers["Range"] = f"bytes={self.size}-"
            # A weak ETag may not be sent back; `_begin` compares it instead.
            etag = str(self.facts.get("etag"))
            if since := etag if etag.startswith('"') else self.facts.get("modified"):
                headers["If-Range"] = str(since)
        get = downloader(chunk_size=_PIECE, timeout=timeout, headers=headers, hooks={"response": self._begin})
        broken = False
        try:
            get(self.url, self, None)
        except SaveError:
            self.clear()  # it would keep a full disk full
            raise
        except OSError as error:  # all that requests raises; what the disk raises is a SaveError by now
            if self._file is None:
                reason = f"no answer from {self.shown.split('/')[2]} ({_root(error)})"
                raise Fault(reason, again=not isinstance(error, ValueError)) from None
            broken = True
        finally:
            with suppress(OSError):
                if self._file is not None:
                    self._file.close()
            if self._response is not None:
                self._response.close()
            self._file = self._response = None
        if broken or (self.total is not None and self.size < self.total):
            of = "" if self.total is None else f" of {self.total:,}"
            raise Fault(f"the connection broke after {self.size:,}{of} bytes")

    def write(self, piece: bytes) -> None:
        """Called by pooch."""
        assert self._file is not None
        with saving(self.path):
            self._file.write(piece)
            self._file.flush()
        self.report(self._file.tell(), self.total)

    def flush(self) -> None:
        """Called by pooch after each piece, which is flushed by then."""

    def _begin(self, response: Any, *_: Any, **__: Any) -> None:
        """Called by requests when the headers are there and the content is not."""
        self._response, status, headers = response, response.status_code, response.headers
        if response.is_redirect:
            return
        if status == 416:  # what is kept is longer than the file
            self.clear()
        if status not in (200, 206):
            again = status in (408, 416, 429) or status >= 500
            raise Fault(f"{self.shown} answered {status} {response.reason}".rstrip(), again)
        facts = {"url": self.shown, "etag": headers.get("ETag"), "modified": headers.get("Last-Modified")}
        span = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", headers.get("Content-Range", ""))
        length = span[2] if span else headers.get("Content-Length", "")
        encoded = headers.get("Content-Encoding", "identity") != "identity"
        facts["total"] = int(length) if length.isdigit() and not encoded else None
        if status == 200:
            self.resumed, self.facts = False, {}
        # A server may leave out what it said before, but not say otherwise.
        changed = any(value and self.facts.get(key, value) not in (value, None) for key, value in facts.items())
        if status == 206 and (changed or encoded or not span or int(span[1]) != self.size):
            self.clear()
            raise Fault(f"{self.shown} is no longer the file that was begun")
        with saving(self.path):  # emptied before the facts are written: new ones must never describe old bytes
            self._file = open(self.path, "ab" if self.resumed else "wb")  # noqa: SIM115
        self.facts = {key: value or self.facts.get(key) for key, value in facts.items()}
        durable.write(self.facts_path, json.dumps(self.facts).encode())
        self.report(self.size, self.total)


def _root(error: BaseException) -> str:
    """What the system said, under the layers of requests and urllib3."""
    while cause := error.__cause__ or error.__context__:
        error = cause
    return str(getattr(error, "strerror", None) or error)
