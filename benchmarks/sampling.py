"""Tokens a second: windowed as the paper runs it, rolling and progressive, and what one writes with nn.LSTM.

Every contestant draws real tokens, in one process, in short blocks that take turns, so that the machine's other work
meets all of them. On a CPU each draws for half a block before the one that counts: the threads of the contestant before
still wait busily on the second core for a few milliseconds. A figure is the median over blocks, a ratio the median of
the ratios of neighbouring blocks. On a machine that others use, too, blocks are disturbed, and those of two threads
most of all, since each waits for the other. Beside the median stands the ratio of the best tenth of all blocks, the
nearest there is to a quiet machine.
Writes results/bench/sampling_cpu.json, or with --device cuda sampling_ and the GPU's name.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unroll import Experiment, Scheme
from unroll.engines import devices
from unroll.engines.choice import engine_of
from unroll.experiment.decoding import Decoding
from unroll.model.model import Model
from unroll.sampling import device_loop
from unroll.sampling.host_loop import Stream, generate

RECORDS = Path(__file__).parent.parent / "results" / "bench"
V, K2, DENSE = 85, 100, 1024
PROMPT = np.arange(K2) % V
ENDLESS = 10**9
BLOCK_S = 0.03  # seconds that a block draws, about
STREAMS = {"cpu": (1, 2, 4, 8, 16, 32, 64, 256, 1024, 4096), "cuda": (1, 4, 16, 64, 256, 1024, 4096)}

MANY = ((128, "progressive"), (512, "progressive"), (128, "windowed"), (512, "windowed"))

torch.set_grad_enabled(False)


def model(hidden: int, layers: int, device: str) -> Model:
    """A model as training starts, which draws nearly uniformly: tokens differ from each other."""
    experiment = Experiment(
        corpus="none",
        scheme=Scheme(k2=K2),
        hidden=hidden,
        layers=layers,
        dense=DENSE,
        device=device,
        precision="float32",
    )
    return Model.initial([experiment], [V], engine_of(torch.device(device), "host" if device == "cpu" else "fused"))


def ours(network: Model, procedure: str, streams: int = 1) -> Iterator[int]:
    """Draw; yield how many tokens each step drew."""
    asked = [Stream(PROMPT, ENDLESS, Decoding(), seed) for seed in range(streams)]
    return (len(drawn.ids) for drawn in generate(network, asked, K2, procedure))


class Usual(torch.nn.Module):
    """nn.LSTM on one-hot input, with the same head."""

    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(V, hidden, layers, batch_first=True)
        self.dense = torch.nn.Linear(hidden, DENSE)
        self.out = torch.nn.Linear(DENSE, V)

    def forward(self, ids: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, Any]:
        h, state = self.lstm(torch.nn.functional.one_hot(ids, V).float(), state)
        logits = self.out(torch.nn.functional.leaky_relu(self.dense(h[:, -1]), 0.01))
        return torch.softmax(logits, -1), state


def usual_progressive(network: Usual) -> Iterator[int]:
    """Draw a token at a time, and hand the state on."""
    p, state = network(torch.from_numpy(PROMPT).unsqueeze(0).to(network.out.weight.device))
    while True:
        token = torch.multinomial(p, 1)
        token.item()
        yield 1
        p, state = network(token, state)


def usual_windowed(network: Usual) -> Iterator[int]:
    """Read the last k2 tokens again for each token."""
    window = torch.from_numpy(PROMPT).unsqueeze(0).to(network.out.weight.device)
    while True:
        token = torch.multinomial(network(window)[0], 1)
        token.item()
        yield 1
        window = torch.cat((window[:, 1:], token), dim=1)


def wait() -> None:
    """Wait until the GPU has done all its work."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def seconds_a_token(tokens: Iterator[int], steps: int) -> float:
    """Time one block. A GPU may lag behind its launches, so it catches up before the block and within it."""
    wait()
    began = time.perf_counter()
    drawn = sum(next(tokens) for _ in range(steps))
    wait()
    return (time.perf_counter() - began) / drawn


def in_turns(
    contestants: dict[str, Callable[[], Iterator[int]]], blocks: int, device: str, at_once: dict[str, int]
) -> dict[str, list[float]]:
    """Seconds a token of each contestant, block by block; one that draws many at once is timed over whole draws."""
    streams = {name: begin() for name, begin in contestants.items()}
    steps = {}
    for name, tokens in streams.items():
        next(tokens)  # reads the prompt
        at_a_time = at_once.get(name, 1)
        few = 3 if device == "cpu" else 2 * at_a_time + 130  # a GPU comes to its full number at a time only after some
        began = time.perf_counter()
        seconds_a_token(tokens, few)
        many = BLOCK_S * few / (time.perf_counter() - began) / at_a_time
        steps[name] = max(2 if at_a_time == 1 else 1, round(many)) * at_a_time
    seconds: dict[str, list[float]] = {name: [] for name in streams}
    for _ in range(blocks):
        for name, tokens in streams.items():
            if device == "cpu":
                seconds_a_token(tokens, -(-steps[name] // 2))
            seconds[name].append(seconds_a_token(tokens, steps[name]))
    return seconds


def one_stream(hidden: int, layers: int, blocks: int, device: str) -> dict[str, Any]:
    """Time all contestants, one stream each."""
    network = model(hidden, layers, device)
    usual = Usual(hidden, layers).eval().to(device)
    seconds = in_turns(
        {
            "progressive": lambda: ours(network, "progressive"),
            "nn.LSTM progressive": lambda: usual_progressive(usual),
            "windowed": lambda: ours(network, "windowed"),
            "nn.LSTM windowed": lambda: usual_windowed(usual),
            "windowed-naive": lambda: ours(network, "windowed-naive"),
        },
        blocks,
        device,
        {} if device == "cpu" else {name: steps_at_a_time(network, name, 1) for name in ("progressive", "windowed")},
    )

    def against(name: str, other: str) -> dict[str, float]:
        pairs = zip(seconds[name], seconds[other], strict=True)
        median = statistics.median(theirs / mine for mine, theirs in pairs)
        return {
            "median": round(median, 2),
            "best_tenth": round(best_tenth(seconds[other]) / best_tenth(seconds[name]), 2),
        }

    return {
        "hidden": hidden,
        "layers": layers,
        "threads": torch.get_num_threads(),
        "us_a_token": {name: round(1e6 * statistics.median(values), 1) for name, values in seconds.items()},
        "us_a_token_best_tenth": {name: round(1e6 * best_tenth(values), 1) for name, values in seconds.items()},
        "faster_than_nn.LSTM": {name: against(name, f"nn.LSTM {name}") for name in ("progressive", "windowed")},
        "rolling_faster_than_naive": against("windowed", "windowed-naive"),
        "windowed_to_progressive": against("progressive", "windowed"),
        "blocks_us_a_token": {name: [round(1e6 * v, 1) for v in values] for name, values in seconds.items()},
    }


def best_tenth(values: list[float]) -> float:
    """The value that a tenth of all values do not exceed."""
    return sorted(values)[len(values) // 10]


def steps_at_a_time(network: Model, procedure: str, streams: int) -> int:
    """How many steps one launch asks a GPU for: time it over whole launches only."""
    drawer = network.engine.draws(network, K2, procedure)
    drawer.begin(streams)
    return min(device_loop.MOST, device_loop.TOKENS // streams, drawer.most_steps)


def many_streams(hidden: int, procedure: str, device: str) -> dict[str, float]:
    """Tokens a second of all streams together, by the number of streams."""
    network = model(hidden, 1, device)
    rates = {}
    for streams in STREAMS[device]:
        tokens = ours(network, procedure, streams)
        next(tokens)
        if device == "cpu":
            steps = max(3, 400 // streams)
        else:
            at_a_time = steps_at_a_time(network, procedure, streams)
            steps = at_a_time * max(2, 64 // at_a_time)
            seconds_a_token(tokens, steps)
        values = [1 / seconds_a_token(tokens, steps) for _ in range(5 if device == "cpu" else 3)]
        rates[str(streams)] = round(statistics.median(values), 1)
        print(f"  γ={hidden} {procedure}, {streams} streams: {rates[str(streams)]:,.0f} tokens a second", flush=True)
    return rates


def main() -> None:
    """Measure, print and record."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--blocks", type=int, default=30)
    arguments.add_argument("--threads", type=int, nargs="+", default=[torch.get_num_threads()])
    arguments.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments.add_argument("--out", type=Path, default=None, help="where the record goes, if not to results/bench")
    chosen = arguments.parse_args()
    device, name = chosen.device, "cpu"
    if device == "cuda":
        name = torch.cuda.get_device_name()
    torch.manual_seed(0)
    alone = []
    for threads, hidden, layers in itertools.product(chosen.threads, (128, 512), (1, 2)):
        torch.set_num_threads(threads)
        alone.append(one_stream(hidden, layers, chosen.blocks, device))
        shown = {k: v for k, v in alone[-1].items() if not k.startswith("blocks")}
        print(json.dumps(shown, ensure_ascii=False), flush=True)
    many = {f"{procedure} γ={hidden}": many_streams(hidden, procedure, device) for hidden, procedure in MANY}
    where = "the CPU" if device == "cpu" else f"an {name}"
    record = {
        "what": f"seconds and tokens on {where}, float32, |V| = 85, k2 = 100, LSTM with the paper's peepholes",
        "one_stream": alone,
        "tokens_a_second_by_streams": many,
        "threads": torch.get_num_threads(),
        "busy": "the machine was in use by others" if os.getloadavg()[0] > 2 * torch.get_num_threads() else "quiet",
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": f"{devices.describe(torch.device(device))}, {platform.system()}",
    }
    path = chosen.out or RECORDS / f"sampling_{name.split()[-1].lower()}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
