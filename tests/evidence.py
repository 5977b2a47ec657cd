"""Records of the tests that are run by hand: on a CUDA device, and on the paper's corpora."""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path
from typing import Any

import unroll.cells
import unroll.kernels
from unroll import plugins
from unroll.version import VERSION

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "results" / "gpu" / "kernels.json"
DATA_RECORD = ROOT / "results" / "data" / "tests.json"

# By kernel and precision, while the tests run: the largest share of its bound that any error came to, and where.
closest: dict[str, dict[str, Any]] = {}


def note_error(kernel: str, precision: str, what: str, error: float, bound: float) -> None:
    """Keep an error that comes closer to its bound than all before."""
    held = closest.setdefault(f"{kernel} {precision}", {"share_of_bound": 0.0})
    if error / bound >= held["share_of_bound"]:
        held |= {"share_of_bound": error / bound, "error": error, "bound": bound, "what": what}


def source_hashes() -> dict[str, str]:
    """A hash for each kernel, over its own source and what it computes with: the cells, or what CUDA kernels share; and
    one each for the head, for sampling and for what surrounds a recorded step."""
    cells, folder = sorted(Path(unroll.cells.__file__).parent.glob("*.py")), Path(unroll.kernels.__file__).parent
    package, hashes = folder.parent, {}
    gates = package / "hopper_gates.cu"
    for name in plugins.names("unroll.kernels"):
        if name in ("host", "compiled"):  # made for the CPU
            continue
        own = folder / f"{name.replace('-', '_')}.py"
        code = own.with_suffix(".cu")
        shared = [code, folder / "pointwise.cu", folder / "_cuda.py"] if code.exists() else cells
        hashes[name] = _digest([own, *shared, *([gates] if name == "persistent" else [])])
    head = [*package.glob("cuda_head.*"), *package.glob("cuda_dropout.*"), *package.glob("hopper_*.*")]
    sampling = [*sorted((package / "stepping").glob("cuda*")), folder / "pointwise.cu", gates]
    step = [package / name for name in ("batches.cu", "beside.py", "recording.py", "optimisers/_fused.py")]
    step.append(package / "optimisers" / "update.cu")
    return hashes | {"head": _digest(sorted(head)), "sampling": _digest(sampling), "step": _digest(step)}


def _digest(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


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
