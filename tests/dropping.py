"""Files of `tests/dropped_in`, as if they stood beside Unroll's own."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from unroll.base import plugins

FOLDER = Path(__file__).parent / "dropped_in"


@contextmanager
def dropped_in(*families: str, folder: Path = FOLDER) -> Iterator[None]:
    """The files of these families are options while this lasts; of all families, where none is named."""
    with ExitStack() as stack:
        for family in families or plugins.FAMILIES:
            stack.enter_context(_beside(plugins.FAMILIES[family].packages[0], folder / family))
        plugins.refresh()
        stack.callback(plugins.refresh)
        yield


@contextmanager
def _beside(package: str, folder: Path) -> Iterator[None]:
    path = importlib.import_module(package).__path__
    path.append(str(folder))
    try:
        yield
    finally:
        path.remove(str(folder))
