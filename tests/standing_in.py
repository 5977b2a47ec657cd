"""Modules of `tests/stand_ins` in place of tools that the tests do without: wandb and mlflow."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest.mock import patch

FOLDER = Path(__file__).parent / "stand_ins"
NAMES = ("wandb", "mlflow", "mlflow.entities")


@contextmanager
def standing_in() -> Iterator[SimpleNamespace]:
    """While this lasts, wandb and mlflow are ours, and new."""
    before = {name: sys.modules.pop(name) for name in NAMES if name in sys.modules}
    with patch.object(sys, "path", [str(FOLDER), *sys.path]):
        importlib.invalidate_caches()
        try:
            modules: dict[str, ModuleType] = {name: importlib.import_module(name) for name in NAMES[:2]}
            yield SimpleNamespace(**modules)
        finally:
            for name in NAMES:
                sys.modules.pop(name, None)
            sys.modules.update(before)
