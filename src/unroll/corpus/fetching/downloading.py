"""A download that can be stopped and goes on: the part that is there, and what is known about the rest of it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from unroll.base import atomic_files, plain_files
from unroll.base.errors import SaveError
from unroll.corpus.fetching.web import Broken, Fault, Peer, in_words, without_password

Progress = Callable[[int, int | None], None]
FACTS = 1 << 16  # bytes of a file of facts, at most
SPARE = 1 << 20  # bytes that a download leaves free
# What is sent back must be a header: one line of plain characters.
_ETAG = re.compile(r'(W/)?"[!#-~]{0,200}"')
_DATE = re.compile(r"[!-~][ -~]{0,63}")


def read_json(path: Path) -> dict[str, Any]:
    """An object that we wrote, or nothing."""
    try:
        content = json.loads(plain_files.read(path, FACTS))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


@contextmanager
def saving(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SaveError(f"Could not save {path}: {error.strerror or error}. What was saved before is intact.") from None


def require_space(path: Path, needed: int) -> None:
    """Refuse a file that the disk has no place for."""
    with saving(path):
        free = shutil.disk_usage(path.parent).free
        if needed + SPARE > free:
            raise OSError(f"it needs {needed:,} bytes and some to spare, and the disk has {free:,} free")


@dataclass(frozen=True)
class Facts:
    """What a server said about the file that a part belongs to."""

    url: str = ""  # without a password
    etag: str | None = None
    modified: str | None = None
    total: int | None = None

    @classmethod
    def stated(cls, url: str, headers: Mapping[str, str]) -> Facts:
        """From an answer's headers; what is no tag, date or number there is not stated."""
        etag, modified = headers.get("ETag", ""), headers.get("Last-Modified", "")
        length = headers.get("Content-Length", "")
        if span := _span(headers):
            length = span[1]
        return cls(
            url,
            etag if _ETAG.fullmatch(etag) else None,
            modified if _DATE.fullmatch(modified) else None,
            None if encoding(headers) else _number(length),
        )

    @classmethod
    def kept(cls, path: Path) -> Facts:
        """From an earlier attempt; none where anything in them is not what we write."""
        url, etag, modified, total = map(read_json(path).get, ("url", "etag", "modified", "total"))
        number = total is None or (type(total) is int and total >= 0)
        if not isinstance(url, str) or not (_is(etag, _ETAG) and _is(modified, _DATE) and number):
            return cls()
        return cls(url, etag, modified, total)

    def contradicts(self, other: Facts) -> bool:
        """A server may leave out what it said before, but not say otherwise."""
        mine, others = asdict(self), asdict(other)
        return any(None not in (mine[name], others[name]) and mine[name] != others[name] for name in mine)

    def completed(self, other: Facts) -> Facts:
        """With what the other knows where this does not."""
        mine, others = asdict(self), asdict(other)
        return Facts(**{name: others[name] if mine[name] is None else mine[name] for name in mine})


class Part:
    """A download on its way: the file that is written to, and what is known about the rest of it."""

    def __init__(
        self,
        path: Path,
        url: str,
        report: Progress,
        at_most: int,
        timeout: tuple[float, float],
        pace: tuple[int, float],
    ) -> None:
        self.path, self.url, self.report = path, url, report
        self.at_most = at_most  # bytes
        self.timeout, self.pace = timeout, pace
        self.shown = in_words(without_password(url), len(url))
        self.facts_path = path.with_name(path.name + ".json")
        self.facts = Facts.kept(self.facts_path)
        self.resumed = False

    @property
    def size(self) -> int:
        """How many bytes are on the disk."""
        return plain_files.size(self.path) or 0

    def clear(self) -> None:
        """Begin anew next time."""
        self.facts = Facts()
        with saving(self.path):
            self.path.unlink(missing_ok=True)
        with saving(self.facts_path):
            self.facts_path.unlink(missing_ok=True)

    def go_on(self) -> None:
        """Get what is missing, or raise a Fault with the bytes so far kept."""
        known = self.at_most if self.facts.total is None else self.facts.total
        if self.facts.url != self.shown or not self.size <= known <= self.at_most:
            self.clear()
        self.resumed = self.size > 0
        if self.resumed and self.size == self.facts.total:
            return
        with Peer(self.url, self.timeout, self.pace) as peer:
            file = self._begin(peer.ask(self._headers()))
            try:
                for piece in peer.pieces(self.at_most):
                    self._write(file, piece)
                broken = None
            except Broken as error:
                broken = str(error)
            finally:
                with suppress(OSError):
                    file.close()
        total = self.facts.total
        if broken is not None or (total is not None and self.size < total):
            of, why = "" if total is None else f" of {total:,}", f": {broken}" if broken else ""
            raise Fault(f"the connection broke after {self.size:,}{of} bytes{why}")

    def _headers(self) -> dict[str, str]:
        # Ranges and lengths are those of the file itself only where it is not compressed on its way.
        headers = {"Accept-Encoding": "identity"}
        if self.resumed:
            headers["Range"] = f"bytes={self.size}-"
            # A weak ETag may not be sent back; `_begin` compares it instead.
            strong = (self.facts.etag or "").startswith('"')
            if since := self.facts.etag if strong else self.facts.modified:
                headers["If-Range"] = since
        return headers

    def _begin(self, response: Any) -> BinaryIO:
        """The file to write to, once the headers are there and the content is not."""
        status, headers = response.status_code, response.headers
        if status == 416:  # what is kept is longer than the file
            self.clear()
        if status not in (200, 206):
            again = status in (408, 416, 429) or status >= 500
            raise Fault(f"{self.shown} answered {status} {in_words(response.reason or '', 60)}".rstrip(), again)
        stated = Facts.stated(self.shown, headers)
        if stated.total is not None and stated.total > self.at_most:
            self.clear()
            raise Fault(f"{self.shown} is another file: it is larger than {self.at_most:,} bytes", again=False)
        if encoding(headers) not in ("", "gzip", "deflate"):  # others expand without a bound
            raise Fault(f"{self.shown} is compressed on its way, by {in_words(encoding(headers), 60)}", again=False)
        if status == 206:
            span = _span(headers)
            if stated.contradicts(self.facts) or encoding(headers) or not span or span[0] != self.size:
                self.clear()
                raise Fault(f"{self.shown} is no longer the file that was begun")
        else:  # emptied before the facts are written: new ones must never describe old bytes
            self.clear()
            self.resumed = False
        self.facts = stated.completed(self.facts)
        if self.facts.total is not None:
            require_space(self.path, self.facts.total - self.size)
        with saving(self.path):
            file = plain_files.open_to_append(self.path) if self.resumed else plain_files.open_new(self.path)
        try:
            atomic_files.write(self.facts_path, json.dumps(asdict(self.facts)).encode())
            self.report(self.size, self.facts.total)
        except BaseException:
            file.close()
            raise
        return file

    def _write(self, file: BinaryIO, piece: bytes) -> None:
        total, done = self.facts.total, file.tell() + len(piece)
        if done > (self.at_most if total is None else total):
            self.clear()
            what = f"{self.at_most:,} bytes, and is another file" if total is None else f"the {total:,} bytes it said"
            raise Fault(f"{self.shown} goes on after {what}", again=False)
        try:
            with saving(self.path):
                file.write(piece)
                file.flush()
        except SaveError:
            self.clear()  # it would keep a full disk full
            raise
        self.report(done, total)


def encoding(headers: Mapping[str, str]) -> str:
    """How the content is compressed on its way; empty if it is not."""
    stated = headers.get("Content-Encoding", "").strip().lower()
    return "" if stated == "identity" else stated


def _span(headers: Mapping[str, str]) -> tuple[int | None, str] | None:
    """Where the content of an answer begins in the file, and the file's size."""
    span = re.fullmatch(r"bytes ([0-9]+)-[0-9]+/([0-9]+|\*)", headers.get("Content-Range", ""))
    return (_number(span[1]), span[2]) if span else None


def _is(value: Any, pattern: re.Pattern[str]) -> bool:
    return value is None or (isinstance(value, str) and pattern.fullmatch(value) is not None)


def _number(digits: str) -> int | None:
    """A length in bytes. Beyond twenty digits it is only known to be large, which is all that one needs."""
    return int(digits.lstrip("0")[:20] or "0") if re.fullmatch("[0-9]+", digits) else None
