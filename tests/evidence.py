"""GPU evidence: which kernel sources the tests on a CUDA device were last passed with."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import unroll.cells
import unroll.kernels
from unroll import plugins

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "results" / "gpu" / "kernels.json"


def source_hashes() -> dict[str, str]:
    """A hash for each kernel, over its own source and the cells', which it computes with."""
    cells = sorted(Path(unroll.cells.__file__).parent.glob("*.py"))
    hashes = {}
    for name in plugins.names("unroll.kernels"):
        own = Path(unroll.kernels.__file__).parent / f"{name.replace('-', '_')}.py"
        digest = hashlib.sha256()
        for path in [own, *cells]:
            digest.update(path.read_bytes())
        hashes[name] = digest.hexdigest()
    return hashes


def stale_kernels() -> list[str]:
    """Kernels whose source is not the one that the record was made with."""
    recorded = json.loads(RECORD.read_text())["kernels"] if RECORD.exists() else {}
    return [name for name, digest in source_hashes().items() if recorded.get(name) != digest]
