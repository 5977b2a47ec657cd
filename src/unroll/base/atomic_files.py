"""Files that are whole or absent: temporary sibling, fsync, read back, rename, fsync the folder.

A temporary file is new, is no link, and has its process's number in its name, so that no process writes to another's
file. Twenty processes can write one file at once: the last one to rename it wins. Each process locks its temporary
file, so that files of killed processes can be recognised and cleared away.

Tensors are stored as sealed safetensors: the header holds a SHA-256 over the whole file, since a flipped bit in a
weight would otherwise load in silence.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from unroll.base import locks, untrusted
from unroll.base.errors import RunError, SaveError

if TYPE_CHECKING:
    from torch import Tensor

PARTIAL = ".partial"
PICKLES = (".pt", ".pth", ".bin", ".pkl", ".ckpt")
LONGEST = 200  # a file's name is part of its temporary's name up to this many bytes
OLD = 3600.0  # seconds after which a temporary file of an older version, which has no lock, is left over
TRIES = 10
READERS = (0.01, 0.05, 0.2, 0.5)  # seconds between attempts to replace a file that somebody has open
HEADER = 32 * untrusted.MEGABYTE  # the most bytes of a sealed file's header
ALIGNED = 8  # bytes of which a sealed file's header has a whole number
_PARTIAL_NAME = re.compile(r"(?P<name>.+?)(?P<token>\.[0-9a-f]+-[0-9a-f]{8})?" + re.escape(PARTIAL), re.DOTALL)
_BLANK = "0" * 64


def write(path: Path, content: bytes) -> None:
    """Replace a file's content, or leave it as it was."""
    try:
        with temporary_file(path) as (temporary, file):
            write_temporary(temporary, file, content)
            if hashlib.sha256(temporary.read_bytes()).digest() != hashlib.sha256(content).digest():
                raise OSError("what was read back is not what was written")
            put_in_place(temporary, file, path)
    except OSError as error:
        raise SaveError(f"Could not save {path}: {error.strerror or error}. What was saved before is intact.") from None


def write_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file of any size from pieces that come one by one: whole, or not at all."""
    try:
        with temporary_file(path) as (temporary, file):
            for piece in pieces:
                file.write(piece)
            file.flush()
            sync(file.fileno())
            put_in_place(temporary, file, path)
    except OSError as error:
        raise SaveError(f"Could not save {path}: {error.strerror or error}.") from None


def write_temporary(path: Path, file: BinaryIO, content: bytes) -> None:
    """Write and sync a temporary file that is open."""
    file.write(content)
    file.flush()
    sync(file.fileno())


def put_in_place(temporary: Path, file: BinaryIO, path: Path) -> None:
    """Rename a synced temporary file, for good; it stays locked until it has its name."""
    try:
        os.replace(temporary, path)
    except PermissionError:  # Windows renames no open file, and replaces none that somebody reads just now
        file.close()
        _replace_in_the_end(temporary, path)
    sync_folder(path.parent)


def _replace_in_the_end(temporary: Path, path: Path) -> None:
    for wait in READERS:
        with suppress(PermissionError):
            os.replace(temporary, path)
            return
        time.sleep(wait)
    os.replace(temporary, path)


@contextmanager
def temporary_file(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Open a new sibling of a file for writing; remove it afterwards, if it is still there."""
    temporary, file = _new_temporary(path)
    try:
        with file:
            yield temporary, file
    finally:
        with suppress(OSError):
            temporary.unlink()


def _new_temporary(path: Path) -> tuple[Path, BinaryIO]:
    """Make a temporary file next to `path`, locked while it is open."""
    name = path.name if len(os.fsencode(path.name)) <= LONGEST else "unroll"
    for _ in range(TRIES):
        temporary = path.with_name(f"{name}.{os.getpid():x}-{secrets.token_hex(4)}{PARTIAL}")
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | untrusted.CAREFULLY, 0o666)
        # A process that clears left-over files may have removed it before it was locked.
        if _hold(handle) is not False and os.fstat(handle).st_nlink:
            return temporary, os.fdopen(handle, "wb")
        os.close(handle)
    raise OSError(errno.EBUSY, "its temporary files are removed as soon as they are made")


def _hold(handle: int) -> bool | None:
    """Lock an open file until it is closed; False if another process has locked it, None if locks do not work here."""
    try:
        import fcntl
    except ImportError:  # Windows, where nobody could read back what is locked
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # not on this kind of disk
        return None
    return True


def clear_partials(folder: Path, ours: Callable[[str], bool], alone: bool = False) -> None:
    """Remove temporary files that killed processes left, of files whose names are `ours`; nothing else.

    If the caller holds the folder and so writes in it `alone`, all temporary files are left over.
    """
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        match = _PARTIAL_NAME.fullmatch(name)
        if not match or not ours(match["name"]) or not untrusted.is_regular(folder / name):
            continue
        if alone or _left_over(folder / name, known=bool(match["token"])):
            with suppress(OSError):
                (folder / name).unlink()


def _left_over(path: Path, known: bool) -> bool:
    """Whether no process is writing this temporary file; older versions did not lock theirs."""
    try:
        status = untrusted.require_regular(path)
        if not known or not locks.as_posix():  # Windows itself keeps a file that is open
            return time.time() - status.st_mtime > OLD
        with untrusted.open_file(path) as file:
            return _hold(file.fileno()) is True
    except OSError:
        return False


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that a rename in it survives a crash. Windows opens no folder; its disk keeps a journal."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:
        if hasattr(os, "O_DIRECTORY"):
            raise
        return
    try:
        sync(handle)
    finally:
        os.close(handle)


def sync(handle: int) -> None:
    """Make what was written last. On a Mac fsync leaves it in the disk's own memory, and another call does not."""
    if not _sync_as_a_mac(handle):
        os.fsync(handle)


def _sync_as_a_mac(handle: int) -> bool:
    with suppress(ImportError, OSError):  # Windows, or a disk that knows no more than fsync
        import fcntl

        if (full := getattr(fcntl, "F_FULLFSYNC", None)) is not None:
            fcntl.fcntl(handle, full)
            return True
    return False


def append(path: Path, line: str) -> int:
    """Add a line to a file and sync it; return the file's new size."""
    try:
        untrusted.refuse_link(path)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | untrusted.CAREFULLY, 0o666)
        with os.fdopen(handle, "ab") as file:
            status = os.fstat(handle)
            if wrong := untrusted.unlike_file(status.st_mode):
                raise OSError(errno.EINVAL, f"it is {wrong}, not a regular file")
            if status.st_nlink > 1:
                raise OSError(errno.EMLINK, "it has a second name elsewhere, whose content would change with it")
            file.write(line.encode() + b"\n")
            file.flush()
            sync(handle)
            return file.tell()
    except OSError as error:
        raise SaveError(f"Could not write to {path}: {error.strerror or error}.") from None


def cut(path: Path, size: int) -> None:
    """Cut a file to a size, for good. A file with a second name elsewhere is replaced by a copy first."""
    try:
        with untrusted.open_file(path) as file:
            before = os.fstat(file.fileno())
            kept = file.read(size) if before.st_nlink > 1 else b""
        if before.st_nlink > 1:
            write(path, kept)
            return
        handle = os.open(path, os.O_WRONLY | untrusted.CAREFULLY)
        try:
            os.ftruncate(handle, size)
            sync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise SaveError(f"Could not write to {path}: {error.strerror or error}.") from None


def finite(content: Any) -> Any:
    """The same content with null for numbers that JSON cannot write."""
    if isinstance(content, dict):
        return {key: finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def seal(tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> bytes:
    """Tensors and facts as one safetensors file whose header holds its hash: equal ones give equal bytes."""
    from safetensors.torch import save

    content = save(dict(tensors))
    end = 8 + int.from_bytes(content[:8], "little")
    # The library writes facts in an order that differs from process to process.
    known = {untrusted.SEAL: _BLANK, **dict(sorted(facts.items()))}
    header = json.dumps({"__metadata__": known, **json.loads(content[8:end])}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % ALIGNED)
    start, data = len(header).to_bytes(8, "little") + header, memoryview(content)[end:]
    hashed = hashlib.sha256(start)
    hashed.update(data)
    blank = start.index(_BLANK.encode())
    return b"".join((start[:blank], hashed.hexdigest().encode(), start[blank + len(_BLANK) :], data))


def unseal(path: Path, at_most: int | None = None) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and facts of a sealed file, or a RunError that says what is wrong with it.

    A file of more than `at_most` bytes is refused before it is read.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    with _opened(path) as (file, size):
        header = _header(path, file, size)
        if at_most is not None and size > at_most:
            raise RunError(f"{path} has {size:,} bytes; this model's are at most {at_most:,}. It is another's.")
        file.seek(0)
        content = file.read(size)
    try:
        hashed = hashlib.sha256(content[: header.seal_at])
        hashed.update(_BLANK.encode())
        hashed.update(memoryview(content)[header.seal_at + len(_BLANK) :])
        if hashed.hexdigest() != header.stated or len(content) != size:
            raise ValueError
        return load(content), header.facts
    except (ValueError, KeyError, TypeError, AttributeError, SafetensorError):
        raise _damaged(path, size) from None


def header_facts(path: Path) -> dict[str, str]:
    """The facts in a sealed file's header. Only the header is read, so the hash is not checked."""
    with _opened(path) as (file, size):
        return _header(path, file, size).facts


@dataclass(frozen=True)
class Header:
    """The beginning of a sealed file, before its tensors."""

    facts: dict[str, str]
    stated: str  # the hash in the header
    seal_at: int  # the position of that hash


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open a file that should be sealed, and get its size."""
    if path.suffix in PICKLES:
        raise RunError(f"{path} is a pickle, which can run code when it is opened; it is not loaded.")
    try:
        with untrusted.open_file(path) as file:
            yield file, os.fstat(file.fileno()).st_size
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}.") from None


def _header(path: Path, file: BinaryIO, size: int) -> Header:
    """Read the header; its tensors must fill the file exactly."""
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if length > min(size - 8, HEADER):
        raise _damaged(path, size)
    text = file.read(length)
    try:
        content = untrusted.parse_json(text)
        facts = content.pop("__metadata__")
        stated = facts.pop("sha256")
        if len(stated) != len(_BLANK) or not all(isinstance(value, str) for value in facts.values()):
            raise ValueError
        ends = [tensor["data_offsets"][1] for tensor in content.values()]
        if 8 + length + max(ends, default=0) != size:
            raise ValueError
        return Header(dict(facts), stated, 8 + text.index(stated.encode()))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise _damaged(path, size) from None


def _damaged(path: Path, size: int) -> RunError:
    return RunError(f"{path} is damaged ({size:,} bytes; its hash does not match).")
