"""The folder of downloads and encoded corpora between runs: the platform's cache folder, or $UNROLL_CACHE."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """The cache's folder, which may not exist yet. Everything in it can be made again."""
    chosen = os.environ.get("UNROLL_CACHE")
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", _home() / "AppData" / "Local"), "unroll", "Cache")
    if sys.platform == "darwin":
        return _home() / "Library" / "Caches" / "unroll"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path(_home(), ".cache"), "unroll")


def _home() -> Path:
    """The user's folder; if the system knows none, a path in which nothing can be written."""
    try:
        return Path.home()
    except RuntimeError:
        return Path(os.devnull)
