"""Files that are whole or absent: temporary sibling, fsync, read back, rename, fsync the folder.

Tensors are stored as safetensors, sealed: a SHA-256 over the whole file stands in its own header, since a flipped bit
in a weight would otherwise load in silence.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unroll.errors import RunError, SaveError

if TYPE_CHECKING:
    from torch import Tensor

PARTIAL = ".partial"
PICKLES = (".pt", ".pth", ".bin", ".pkl", ".ckpt")
_BLANK = "0" * 64


def write(path: Path, content: bytes) -> None:
    """Replace a file's content, or leave it as it was."""
    temporary = path.with_name(path.name + PARTIAL)
    try:
        write_temporary(temporary, content)
        if hashlib.sha256(temporary.read_bytes()).digest() != hashlib.sha256(content).digest():
            raise OSError("what was read back is not what was written")
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise SaveError(f"Could not save {path}: {error.strerror or error}. What was saved before is intact.") from None


def write_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """A file of any size from pieces that come one by one: whole, or not at all."""
    temporary = path.with_name(path.name + PARTIAL)
    try:
        with open(temporary, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        raise SaveError(f"Could not save {path}: {error.strerror or error}.") from None
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_temporary(path: Path, content: bytes) -> None:
    """Write and sync a file that nobody looks at yet."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make a rename last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def append(path: Path, line: str) -> int:
    """Add a line and make it last; the file's size after it."""
    try:
        with open(path, "ab") as file:
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
            return file.tell()
    except OSError as error:
        raise SaveError(f"Could not write to {path}: {error.strerror or error}.") from None


def finite(content: Any) -> Any:
    """The same with numbers that JSON has no word for as null."""
    if isinstance(content, dict):
        return {key: finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def seal(tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> bytes:
    """Tensors and facts as one safetensors file with its own hash in the header."""
    from safetensors.torch import save

    content = save(dict(tensors), {**facts, "sha256": _BLANK})
    return content.replace(_BLANK.encode(), hashlib.sha256(content).hexdigest().encode(), 1)


def unseal(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and facts of a sealed file, or a RunError that says what is wrong with it."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    if path.suffix in PICKLES:
        raise RunError(f"{path} is a pickle, which can run code when it is opened; it is not loaded.")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}.") from None
    try:
        size = int.from_bytes(content[:8], "little")
        facts = json.loads(content[8 : 8 + size])["__metadata__"]
        stated = facts.pop("sha256")
        blank = content.replace(stated.encode(), _BLANK.encode(), 1)
        if hashlib.sha256(blank).hexdigest() != stated:
            raise ValueError
        return load(content), dict(facts)
    except (ValueError, KeyError, TypeError, AttributeError, SafetensorError, RecursionError, MemoryError):
        raise RunError(f"{path} is damaged ({len(content):,} bytes; its hash does not match).") from None
