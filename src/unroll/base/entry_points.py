"""What installed packages bring, by entry points of the groups `unroll.<family>`. Found without importing any of it.

[project.entry-points."unroll.cells"]
mingru = "my_package.mingru"
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from unroll.base.errors import ConfigurationError

GROUP = "unroll."


@dataclass(frozen=True)
class Brought:
    """One plug-in of a package."""

    name: str
    module: str
    attribute: str  # of the module; empty: the module itself
    package: str
    version: str

    def load(self, noun: str) -> Any:
        """The plug-in itself: its module is imported."""
        try:
            return self._plugin
        except Exception as error:  # whatever a stranger's module does when it is imported
            raise ConfigurationError(
                f"The {noun} {self.name} of the package {self.package} {self.version} cannot be loaded: "
                f"{type(error).__name__}: {error}. Mend the package, or: pip uninstall {self.package}"
            ) from error

    @cached_property
    def _plugin(self) -> Any:
        plugin: Any = importlib.import_module(self.module)
        for part in filter(None, self.attribute.split(".")):
            plugin = getattr(plugin, part)
        return plugin


def of(family: str) -> list[Brought]:
    """What all packages bring to a family, in the order of their names."""
    return sorted(
        (one for group, one in _all() if group == f"{GROUP}{family}"), key=lambda one: (one.name, one.package)
    )


def refresh() -> None:
    """Look at the packages again."""
    _all.cache_clear()


@cache
def _all() -> tuple[tuple[str, Brought], ...]:
    """What every package on Python's path brings, with its group; of two installations of one, the first counts."""
    brought: dict[str, list[tuple[str, Brought]]] = {}
    for folder in sys.path:
        for info in _infos(folder or "."):
            package, points = _read(info)
            brought.setdefault(package.lower().replace("_", "-").replace(".", "-"), points)
    return tuple(point for points in brought.values() for point in points)


def _infos(folder: str) -> Iterator[Path]:
    """The metadata of packages in a folder that name a group of ours; few do, and only those are parsed."""
    with suppress(OSError), os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.name.endswith((".dist-info", ".egg-info")))
        for name in names:
            with suppress(OSError, UnicodeDecodeError):
                path = Path(folder, name)
                if f"[{GROUP}" in (path / "entry_points.txt").read_text("utf-8"):
                    yield path


def _read(info: Path) -> tuple[str, list[tuple[str, Brought]]]:
    from importlib.metadata import Distribution  # slow to import, and hardly ever needed

    package = Distribution.at(info)
    name, version = package.metadata["Name"] or info.stem, package.version
    points = [
        (point.group, Brought(point.name.replace("_", "-"), point.module, point.attr or "", name, version))
        for point in package.entry_points
        if point.group.startswith(GROUP)
    ]
    return name, points
