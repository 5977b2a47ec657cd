"""Records of the tests that are run by hand: on a CUDA device, and on the paper's corpora."""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path
from typing import Any

import unroll
from unroll.base.version import VERSION

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "results" / "gpu" / "kernels.json"
DATA_RECORD = ROOT / "results" / "data" / "tests.json"

# By kernel and precision, while the tests run: the largest share of its bound that any error came to, and where.
closest: dict[str, dict[str, Any]] = {}


def note_error(kernel: str, precision: str, what: str, error: float, bound: float) -> None:
    """Keep an error if it comes closer to its bound than all before."""
    held = closest.setdefault(f"{kernel} {precision}", {"share_of_bound": 0.0})
    if error / bound >= held["share_of_bound"]:
        held |= {"share_of_bound": error / bound, "error": error, "bound": bound, "what": what}


def source_hashes() -> dict[str, str]:
    """A hash for each kernel, over its source and the code that it shares, and one hash each for the head, for sampling
    and for the code around a recorded step."""
    package = Path(unroll.__file__).parent
    cells, cuda = sorted((package / "model" / "cells").glob("*.py")), package / "engines" / "cuda"
    hashes, gates, pointwise = {}, cuda / "hopper_gates.cu", cuda / "pointwise.cu"
    for folder in (package / "engines" / "torch" / "kernels", cuda / "kernels"):
        for source in sorted(folder.glob("[a-z]*.py")):
            code = source.with_suffix(".cu")
            shared = [code, pointwise, cuda / "cells.py"] if code.exists() else cells
            hashes[source.stem] = _digest([source, *shared, *([gates] if source.stem == "persistent" else [])])
    head = [*cuda.glob("head.*"), *cuda.glob("dropout_masks.*"), *cuda.glob("hopper_*.*")]
    sampling = [*sorted((cuda / "steppers").glob("[a-z]*")), pointwise, gates]
    step = [cuda / name for name in ("batches.cu", "side_stream.py", "replay.py", "update.py", "update.cu")]
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
