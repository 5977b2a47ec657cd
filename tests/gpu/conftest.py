"""Tests that need a CUDA device. When all of them pass, the record of what they passed with is written."""

from __future__ import annotations

import json
import platform

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs a device."""
    for item in items:
        if "gpu" in item.path.parts:
            item.add_marker(pytest.mark.gpu)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    from evidence import RECORD, closest, source_hashes

    chosen = [item for item in session.items if item.get_closest_marker("gpu")]
    if exitstatus != 0 or not chosen or not torch.cuda.is_available():
        return
    record = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "tests": len(chosen),
        "kernels": source_hashes(),
        "closest_to_the_bound": dict(sorted(closest.items())),
    }
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
