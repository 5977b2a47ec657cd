"""The file that a command is asked to write with --out."""

from __future__ import annotations

from pathlib import Path

from unroll.base.errors import ConfigurationError


def require_new_file(out: Path) -> None:
    """Refuse a file that exists, or whose folder does not, before any work is done for it."""
    if out.exists():
        raise ConfigurationError(f"{out} exists. Choose another file with --out.")
    if not out.absolute().parent.is_dir():
        raise ConfigurationError(f"{out.absolute().parent} is no folder. Choose another file with --out.")
