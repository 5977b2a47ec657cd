"""Records of the tests that are run by hand: on a CUDA device, and on the paper's corpora."""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path

import torch

import unroll.cells
import unroll.kernels
from unroll import cells, kernels, plugins
from unroll.version import VERSION

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "results" / "gpu" / "kernels.json"
DATA_RECORD = ROOT / "results" / "data" / "tests.json"


def cuda_kernels() -> list[str]:
    """The kernels that are made for a CUDA device."""
    network = kernels.Network(cells.load("lstm", "paper"), 1.0, ())
    names = plugins.names("unroll.kernels")
    return [name for name in names if kernels.load(name).supports(network, torch.device("cuda")) is None]


def source_hashes() -> dict[str, str]:
    """A hash for each of these kernels, over its own source and the cells', which it computes with."""
    sources = sorted(Path(unroll.cells.__file__).parent.glob("*.py"))
    hashes = {}
    for name in cuda_kernels():
        own = Path(unroll.kernels.__file__).parent / f"{name.replace('-', '_')}.py"
        digest = hashlib.sha256()
        for path in [own, *sources]:
            digest.update(path.read_bytes())
        hashes[name] = digest.hexdigest()
    return hashes


def stale_kernels() -> list[str]:
    """Kernels whose source is not the one that the record was made with."""
    recorded = json.loads(RECORD.read_text())["kernels"] if RECORD.exists() else {}
    return [name for name, digest in source_hashes().items() if recorded.get(name) != digest]


def record_data_tests(folder: Path, names: list[str]) -> None:
    """Which tests passed on which files."""
    corpora = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.txt"))}
    record = {"unroll": VERSION, "python": platform.python_version(), "corpora": corpora, "passed": sorted(names)}
    DATA_RECORD.parent.mkdir(parents=True, exist_ok=True)
    DATA_RECORD.write_text(json.dumps(record, indent=1) + "\n")
