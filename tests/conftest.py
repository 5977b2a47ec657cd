"""Shared by all tests."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let the garbage collector pass over all modules: every fleet calls it at its end, and a test has many."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """GPU evidence goes stale when a kernel changes: say so in every summary."""
    from evidence import stale_kernels

    stale = stale_kernels()
    if stale:
        terminalreporter.write_line(
            f"GPU evidence is stale for: {', '.join(stale)}. Run make test-gpu on a CUDA machine.", yellow=True
        )


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """When the tests on the paper's corpora have passed, say in a record on which files."""
    folder = Path(os.environ.get("UNROLL_DATA") or "no-folder-was-given")
    chosen = [item.name for item in session.items if item.get_closest_marker("data")]
    if exitstatus == 0 and folder.is_dir() and chosen and len(chosen) == len(session.items):
        from evidence import record_data_tests

        record_data_tests(folder, chosen)
