"""What installed packages bring, by entry points of the groups `unroll.<family>`. Found without importing any of it.

[project.entry-points."unroll.cells"]
mingru = "my_package.mingru"
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from unroll.base.errors import ConfigurationError


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
    from importlib import metadata  # slow to import, and most commands need none of it

    points = metadata.entry_points(group=f"unroll.{family}")
    brought = [
        Brought(
            point.name.replace("_", "-"),
            point.module,
            point.attr or "",
            point.dist.name if point.dist else "unknown",
            point.dist.version if point.dist else "unknown",
        )
        for point in points
    ]
    return sorted(set(brought), key=lambda one: (one.name, one.package))
