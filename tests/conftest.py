"""Shared by all tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """GPU evidence goes stale when a kernel changes: say so in every summary."""
    from evidence import stale_kernels

    stale = stale_kernels()
    if stale:
        terminalreporter.write_line(
            f"GPU evidence is stale for: {', '.join(stale)}. Run make test-gpu on a CUDA machine.", yellow=True
        )
