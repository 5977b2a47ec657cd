"""Record every launch on an NVIDIA GPU without having one, and compare the records of two versions.

    python benchmarks/gpu_launches.py --src ../old/src --out before.jsonl
    python benchmarks/gpu_launches.py --src src --out after.jsonl
    python benchmarks/gpu_launches.py --compare before.jsonl after.jsonl --summary results/gpu/launches.json

Trainings and samples of all kernels run through public names on a GPU that is played (`played_gpu`). In a record
stands each launch, product, graph and order between streams: the compiled text without its comments, its definitions,
function, grid, block, shared memory and stream; and of each argument its value, or a tensor's memory (numbered as it
first appears), offset, type, shape, strides and content. So it shows that the host asks a GPU for the same; what
kernels make of it only a real GPU shows. Copies between the two are counted apart.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from played_gpu import RENAMED, Record, now, played

SCHEMES: list[dict[str, Any]] = [
    {},
    {"loss": "last"},
    {"loss": "equal", "state": "carried", "sample": "progressive"},
    {"loss": "linear", "k3": 4, "normalise": True},
    {"loss": "equal", "state": "carried", "sample": "progressive", "k1": 14},
    {"loss": "exponential", "state": "carried", "sample": "progressive", "reset": 0.3},
]
CELLS = [("lstm", "paper"), ("lstm", "lasagne"), ("lstm", "off"), ("gru", "paper"), ("rnn", "paper")]
SAMPLES: list[dict[str, Any]] = [
    {"sample": "progressive", "temperature": 0.7},
    {"sample": "windowed", "top_p": 0.9, "min_p": 0.02},
    {"sample": "progressive", "num_return_sequences": 3, "stop": "zz"},
    {"sample": "windowed", "num_return_sequences": 3, "top_k": 5},
    {"sample": "progressive", "num_beams": 2},
    {"sample": "windowed", "num_beams": 2},
    {"sample": "windowed-naive", "temperature": 0.0},
]


def cases() -> Iterator[dict[str, Any]]:
    """Every cell, precision, depth, width and fleet, the other settings in turn; then every kernel and scheme."""
    turn = random.Random(5)

    def case(kernel: str, cell: tuple[str, str], precision: str, layers: int, hidden: int, runs: int) -> dict[str, Any]:
        return {
            "kernel": kernel, "cell": cell[0], "peepholes": cell[1], "precision": precision, "layers": layers,
            "hidden": hidden, "runs": runs, "scheme": turn.randrange(len(SCHEMES)),
            "optimiser": turn.choice(("adam", "rmsprop")), "dropout": turn.choice((0.0, 0.25)),
            "dense": turn.choice((64, 256)), "k2": turn.choice((10, 20)),
        }  # fmt: skip

    for chosen in itertools.product(CELLS, ("float32", "tf32", "bfloat16"), (1, 2), (128, 512), (1, 5)):
        yield case("auto", *chosen)
    for kernel, cell, precision in itertools.product(
        ("persistent", "fused", "stacked", "reference"), CELLS, ("float32", "tf32", "bfloat16")
    ):
        for layers, hidden, runs in ((1, 96, 1), (2, 128, 5)):
            yield case(kernel, cell, precision, layers, hidden, runs)
    for precision, runs in itertools.product(("float32", "bfloat16"), (1, 5)):
        for scheme in range(len(SCHEMES)):
            yield case("auto", ("lstm", "paper"), precision, 1, 128, runs) | {"scheme": scheme}


def run(case: dict[str, Any], text: str) -> None:
    """Train a fleet, and ask its first run for samples."""
    import unroll

    runs, settings = case["runs"], {k: v for k, v in case.items() if k not in ("runs", "scheme", "k2")}
    asked = [
        unroll.Experiment(
            scheme=unroll.Scheme(**{"k1": 7, "k2": case["k2"], **SCHEMES[case["scheme"]]}), seed=m, device="cuda",
            rows=8, batches=4, test_tokens=60, learning_rate=0.001 * (m + 1), **settings,
        )
        for m in range(runs)
    ]  # fmt: skip
    corpus = unroll.Corpus.from_text(text)
    with tempfile.TemporaryDirectory() as folder:
        outs = [Path(folder, str(m)) for m in range(runs)]
        for _ in unroll.train_fleet(asked, [corpus] * runs, outs):
            pass
        now.record.entries.append(["sampling"])
        trained = unroll.load(outs[0], device="cuda")
        for controls in SAMPLES:
            now.record.entries.append(["sample", controls])
            unroll.sample(trained, prompt="the cat", length=12, seed=1, **controls)
        unroll.score(trained, text[:50])


def recorded(src: str, only: str) -> Iterator[dict[str, Any]]:
    sys.path.insert(0, src)
    torch.set_num_threads(1)
    text = "the cat sat on the mat, and the dog ran to it. " * 60
    named = {" ".join(f"{k}={v}" for k, v in case.items()): case for case in cases()}
    with played():
        for name, case in named.items():
            if not re.search(only, name):
                continue
            now.record = Record()
            now.kept.clear()
            error = None
            try:
                run(case, text)
            except Exception as problem:  # a refusal is a result, too
                error = f"{type(problem).__name__}: {problem}"
                if os.environ.get("TRACE"):
                    raise
            yield {"case": name, "error": error, "mixed": now.record.mixed, "entries": now.record.entries}


def compared(before: Path, after: Path) -> dict[str, Any]:
    """What is alike in two records, and what is not."""
    cases: dict[str, Any] = {}
    refused: dict[str, str] = {}
    differences: list[dict[str, Any]] = []
    kinds, functions, mixed, *copies = (Counter[str]() for _ in range(5))
    with before.open() as olds, after.open() as news:
        for old, new in zip(map(json.loads, olds), map(json.loads, news), strict=True):
            name = old["case"]
            if name != new["case"] or bool(old["error"]) != bool(new["error"]):
                raise SystemExit(f"{name}: {old['error']}; {new['case']}: {new['error']}")
            if new["error"]:
                refused[name] = new["error"]
                continue
            lists = [[json.dumps(e) for e in side["entries"] if e[0] != "copied"] for side in (old, new)]
            hashes = [hashlib.sha256("\n".join(each).encode()).hexdigest()[:32] for each in lists]
            launches = [e for e in new["entries"] if e[0] == "launch"]
            cases[name] = {"launches": len(launches), "entries": len(lists[1]), "before": hashes[0], "after": hashes[1]}
            functions += Counter(f"{e[1][-1]}: {e[4]}" for e in launches)
            kinds += Counter(e[0] for e in new["entries"] if e[0] != "copied")
            mixed += Counter(new["mixed"])
            for count, side in zip(copies, (old, new), strict=True):
                count.update(f"{e[1]}, {e[2]}" for e in side["entries"] if e[0] == "copied")
            if hashes[0] != hashes[1]:
                pairs = enumerate(itertools.zip_longest(*lists))
                at, (was, now_is) = next((at, pair) for at, pair in pairs if pair[0] != pair[1])
                differences.append({"case": name, "entry": at, "before": was, "after": now_is})
    return {
        "alike": len(cases) - len(differences), "of": len(cases), "differences": differences, "renamed": RENAMED,
        "entries": kinds, "launches": functions, "operations on both host and GPU": mixed,
        "copies before": copies[0], "copies after": copies[1], "cases": cases, "refused by both": refused,
    }  # fmt: skip


def compare(before: Path, after: Path, to: Path | None, versions: list[str]) -> int:
    summary = {"versions": versions, "torch": torch.__version__} | compared(before, after)
    if to:
        to.write_text(json.dumps(summary, indent=1) + "\n")
    count = sum(case["launches"] for case in summary["cases"].values())
    other = summary["differences"]
    print(
        f"{len(summary['cases']) - len(other)} of {len(summary['cases'])} cases alike, with {count:,} launches in all."
    )
    for each in other:
        print(each["case"], f"entry {each['entry']}", each["before"], each["after"], sep="\n   ")
    return 1 if other else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--src", default="src")
    parser.add_argument("--only", default="", help="a pattern that a case's name has")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("BEFORE", "AFTER"))
    parser.add_argument("--summary", type=Path)
    parser.add_argument("--versions", nargs=2, default=["", ""], help="what was compared, for the summary")
    asked = parser.parse_args()
    if asked.compare:
        return compare(*asked.compare, asked.summary, asked.versions)
    with (asked.out or Path(os.devnull)).open("w") as out:
        for number, result in enumerate(recorded(asked.src, asked.only), 1):
            out.write(json.dumps(result) + "\n")
            out.flush()
            kinds = dict(Counter(entry[0] for entry in result["entries"]))
            print(number, result["case"], result["error"] or kinds, dict(result["mixed"]) or "", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
