"""Hash the weights of trainings and the texts of samples: run it before and after a change that must not change a bit.

    python benchmarks/same_bits.py --device cpu --out before.json
    python benchmarks/same_bits.py --device cpu --compare before.json

It uses public names only, so that it runs on any version. Bits depend on the machine and the threads, which the record
names: compare only what one machine has made.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import unroll

FLEETS = {
    "alone": [{}],
    "fleet": [{"seed": 1}, {"seed": 2, "learning_rate": 0.003}, {"seed": 3, "scheme": 4}, {"seed": 4, "dropout": 0.25}],
}
SCHEMES: dict[str | int, dict[str, Any]] = {
    "k3 decayed": {"loss": "linear", "k3": 4, "normalise": True},
    "gap": {"loss": "equal", "state": "carried", "sample": "progressive", "k1": 30},
    "reset": {"loss": "exponential", "state": "carried", "sample": "progressive", "reset": 0.3},
    1: {},
    2: {"loss": "last"},
    4: {"loss": "equal", "state": "carried", "sample": "progressive"},
}
# kernel, cell, precision, scheme, fleet, and further settings
CPU: list[tuple[str, str, str, Any, str, dict[str, Any]]] = [
    ("compiled", "lstm", "float32", 1, "alone", {}),
    ("compiled", "lstm", "float32", 2, "fleet", {"layers": 2}),
    ("compiled", "lstm", "bfloat16", 4, "fleet", {}),
    ("compiled", "lstm", "float32", "gap", "alone", {"peepholes": "lasagne"}),
    ("compiled", "gru", "float32", "reset", "alone", {"layers": 2}),
    ("compiled", "gru", "bfloat16", 1, "alone", {}),
    ("compiled", "rnn", "float32", "k3 decayed", "alone", {"optimiser": "rmsprop"}),
    ("compiled", "lstm", "float64", 1, "alone", {"dropout": 0.25}),
    ("compiled", "lstm", "float32", 1, "alone", {"shuffle": True, "hidden": 40}),
    ("host", "lstm", "float32", 1, "alone", {"layers": 2}),
    ("host", "lstm", "float64", 4, "fleet", {}),
    ("host", "lstm", "float32", 2, "alone", {"peepholes": "lasagne", "rotation": "continue"}),
    ("stacked", "lstm", "float32", 1, "fleet", {"layers": 2}),
    ("stacked", "gru", "float32", "gap", "alone", {"optimiser": "rmsprop"}),
    ("stacked", "rnn", "float64", "k3 decayed", "alone", {}),
    ("reference", "lstm", "float64", 1, "alone", {"dropout": 0.25}),
    ("reference", "lstm", "float32", "reset", "fleet", {"peepholes": "off"}),
    ("reference", "gru", "float64", 4, "alone", {"layers": 2}),
    ("reference", "rnn", "float32", 2, "alone", {"clip": 0.001}),
    ("auto", "lstm", "float32", 1, "fleet", {"hidden": 128, "dense": 256}),
]
CUDA: list[tuple[str, str, str, Any, str, dict[str, Any]]] = [
    ("persistent", "lstm", "bfloat16", 1, "alone", {"hidden": 128}),
    ("persistent", "lstm", "bfloat16", 4, "fleet", {"hidden": 512, "dense": 1024}),
    ("persistent", "lstm", "bfloat16", 2, "fleet", {"hidden": 128, "layers": 2}),
    ("persistent", "lstm", "bfloat16", "gap", "alone", {"hidden": 256, "peepholes": "lasagne"}),
    ("persistent", "lstm", "bfloat16", 1, "fleet", {"hidden": 128, "dropout": 0.25, "optimiser": "rmsprop"}),
    ("fused", "lstm", "float32", 1, "fleet", {}),
    ("fused", "lstm", "tf32", 2, "alone", {"layers": 2}),
    ("fused", "gru", "float32", "reset", "fleet", {}),
    ("fused", "gru", "bfloat16", 1, "alone", {"layers": 2}),
    ("fused", "lstm", "tf32", 4, "fleet", {"hidden": 128, "dropout": 0.25}),
    ("stacked", "lstm", "float32", 1, "fleet", {}),
    ("stacked", "rnn", "float32", "k3 decayed", "alone", {"optimiser": "rmsprop"}),
    ("stacked", "lstm", "float64", 1, "alone", {"dropout": 0.25}),
    ("reference", "lstm", "float32", "reset", "fleet", {"peepholes": "off"}),
    ("reference", "gru", "float64", 4, "alone", {}),
    ("auto", "lstm", "float32", 1, "alone", {"hidden": 128, "shuffle": True}),
    ("auto", "lstm", "bfloat16", 1, "fleet", {"hidden": 128, "layers": 2, "dropout": 0.1}),
    ("auto", "gru", "bfloat16", 4, "alone", {"hidden": 96}),
    ("auto", "rnn", "float32", 1, "alone", {"hidden": 96}),
    ("auto", "lstm", "tf32", "gap", "alone", {"hidden": 64}),
]
SAMPLES: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.7},
    {"temperature": 1.0, "top_k": 5},
    {"top_p": 0.9, "min_p": 0.02},
    {"temperature": 0.5, "sample": "progressive"},
    {"sample": "windowed", "temperature": 1.2},
]


def text() -> str:
    """Words of a made-up language: about 120,000 characters, the same everywhere."""
    draw = random.Random(5)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(300)]
    return "".join(draw.choice(words) + draw.choice([" ", " ", " ", ", ", ".\n"]) for _ in range(18_000))


def experiments(case: tuple[str, str, str, Any, str, dict[str, Any]], device: str) -> list[unroll.Experiment]:
    kernel, cell, precision, scheme, fleet, settings = case
    every = []
    for changes in FLEETS[fleet]:
        settings_of_run = dict(changes)
        point = dict(SCHEMES[settings_of_run.pop("scheme", scheme)])
        # Runs of one fleet score the same positions, and carried ones read the same gap.
        if fleet == "fleet" and scheme in (2, "reset"):
            point = dict(SCHEMES[scheme])
        sizes = {"hidden": 24, "dense": 48, "rows": 16, "batches": 24, "test_tokens": 400} | settings | settings_of_run
        every.append(
            unroll.Experiment(
                scheme=unroll.Scheme(**{"k1": 7, "k2": 20, **point}), cell=cell, precision=precision, kernel=kernel,
                device=device, threads=2 if device == "cpu" else None, **sizes,
            )
        )  # fmt: skip
    return every


def digest(path: Path) -> str:
    tensors = load_file(path)
    sha256 = hashlib.sha256()
    for name in sorted(tensors):
        sha256.update(name.encode() + tensors[name].contiguous().numpy().tobytes())
    return sha256.hexdigest()


def measured(device: str) -> dict[str, Any]:
    corpus = unroll.Corpus.from_text(text())
    weights: dict[str, Any] = {}
    samples: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(CPU if device == "cpu" else CUDA):
            name = " ".join(map(str, case[:5])) + "".join(f" {k}={v}" for k, v in case[5].items())
            asked = experiments(case, device)
            outs = [Path(folder, f"{number}-{m}") for m in range(len(asked))]
            for _ in unroll.train_fleet(asked, [corpus] * len(asked), outs):
                pass
            weights[name] = [digest(out / "weights.safetensors") for out in outs]
            lines = [json.loads(line) for out in outs for line in (out / "metrics.jsonl").read_text().splitlines()]
            weights[name] += [repr((line["loss"], line["perplexity"])) for line in lines if line["batch"] == 24]
            run = unroll.load(outs[0], device=device)
            controls = SAMPLES[number % len(SAMPLES)]
            drawn = [unroll.sample(run, prompt="the ", length=80, seed=seed, **controls) for seed in (1, 2)]
            samples[f"{name}: {controls}"] = hashlib.sha256(repr([d.text for d in drawn]).encode()).hexdigest()
            print(f"{number + 1:3} {name}", flush=True)
    where = torch.cuda.get_device_name() if device != "cpu" else platform.machine()
    return {
        "unroll": unroll.__version__,
        "torch": torch.__version__,
        "where": where,
        "weights": weights,
        "samples": samples,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out")
    parser.add_argument("--compare")
    asked = parser.parse_args()
    now = measured(asked.device)
    if asked.out:
        Path(asked.out).write_text(json.dumps(now, indent=1) + "\n")
    if not asked.compare:
        return 0
    before = json.loads(Path(asked.compare).read_text())
    other = [
        f"{kind}: {name}"
        for kind in ("weights", "samples")
        for name, value in before[kind].items()
        if now[kind].get(name) != value
    ]
    total = sum(len(before[kind]) for kind in ("weights", "samples"))
    print(f"{total - len(other)} of {total} alike, bit for bit.", *other, sep="\n")
    return 1 if other else 0


if __name__ == "__main__":
    sys.exit(main())
