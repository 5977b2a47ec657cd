"""A pickle that does harm when it is opened, as a stranger's folder may hold one."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Bomb:
    """A pickle that leaves a file behind when it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)
