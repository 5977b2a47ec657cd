"""A model without a dense layer against nn.LSTM with nn.Linear: training steps and drawn tokens, in CPU time.

One thread, one process, in turns: a round is one step, or one block of tokens, by each contestant after one that does
not count. What is measured is the processor time of this process, which another process on the machine changes little.
A ratio is the median over the rounds of `theirs / ours`. Both train with Adam; torch's LSTM reads one-hot vectors or
rows of an embedding, and the faster counts.

    python benchmarks/softmax_on_h.py [--rounds 15]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import sampling
import torch
from llvmlite import binding
from torch import Tensor, nn
from torch.nn import functional

from unroll import Corpus, Experiment, Scheme
from unroll.engines import devices
from unroll.engines.choice import engine_of
from unroll.model.model import Model
from unroll.training.learner import Learner

RECORDS = Path(__file__).parent.parent / "results" / "bench"
ROWS, K2, V = 64, 100, 85
TOKENS = {"progressive": 100, "windowed": 20}  # of a block
CPU = torch.device("cpu")
Step = Callable[[], object]


def experiment(hidden: int, scored: int = K2) -> Experiment:
    """Ours: an LSTM without peepholes, softmax on its h."""
    scheme = Scheme(loss="equal" if scored == K2 else "last", k1=20, k2=K2)
    return devices.resolve(
        Experiment(scheme=scheme, hidden=hidden, peepholes="off", dense=0, rows=ROWS, device="cpu", threads=1)
    )


class Peer(nn.Module):
    """What one writes with torch's own layers; it draws as `sampling.Usual` does."""

    def __init__(self, hidden: int, embedded: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(V, V) if embedded else None
        self.lstm = nn.LSTM(V, hidden)
        self.out = nn.Linear(hidden, V)

    def logits(self, ids_TB: Tensor, scored: int, state: Any = None) -> tuple[Tensor, Any]:
        """Logits of the last positions, and the state after them."""
        x = functional.one_hot(ids_TB, V).float() if self.embedding is None else self.embedding(ids_TB)
        h, state = self.lstm(x, state)
        return self.out(h[-scored:]), state

    def forward(self, ids_BT: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """The next token's probabilities."""
        logits, state = self.logits(ids_BT.t(), 1, state)
        return torch.softmax(logits[-1], -1), state


def training(hidden: int, scored: int) -> dict[str, Step]:
    """A training step of each contestant."""
    ids = np.concatenate((np.arange(V), np.random.default_rng(0).integers(V, size=200_000)))
    run = experiment(hidden, scored)
    learner = Learner([run], [Corpus.from_text("".join(chr(33 + i) for i in ids))], engine_of(CPU, run.kernel))
    window_TB = torch.from_numpy(np.random.default_rng(0).integers(V, size=(K2 + 1, ROWS)))

    def peer(embedded: bool) -> Step:
        model = Peer(hidden, embedded)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.001, fused=True)

        def step() -> None:
            optimiser.zero_grad()
            with torch.enable_grad():
                logits, _ = model.logits(window_TB[:-1], scored)
                functional.cross_entropy(logits.flatten(0, 1), window_TB[-scored:].flatten()).backward()
            optimiser.step()

        return step

    def ours() -> None:
        with torch.enable_grad():
            learner.step()

    return {"ours": ours, "nn.LSTM, one-hot": peer(False), "nn.LSTM, embedding": peer(True)}


def drawing(hidden: int, procedure: str) -> dict[str, Step]:
    """A block of tokens of each contestant."""
    run = experiment(hidden)
    model = Model.initial([run], [V], engine_of(CPU, run.kernel))
    tokens = sampling.ours(model, procedure)
    usual = {"progressive": sampling.usual_progressive, "windowed": sampling.usual_windowed}[procedure](
        Peer(hidden).eval()
    )
    return {
        "ours": lambda: [next(tokens) for _ in range(TOKENS[procedure])],
        "nn.LSTM": lambda: [next(usual) for _ in range(TOKENS[procedure])],
    }


def race(steps: dict[str, Step], rounds: int, each: float) -> dict[str, Any]:
    """Processor time of each contestant; a step does `each` pieces of work, and times are a piece's."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            step()
            before = time.process_time()
            step()
            times[name].append((time.process_time() - before) / each)
    medians = {name: statistics.median(values) for name, values in times.items()}
    best = min((name for name in medians if name != "ours"), key=medians.__getitem__)
    ratio = statistics.median(theirs / ours for theirs, ours in zip(times[best], times["ours"], strict=True))
    return {"median": medians, "against": best, "ratio": round(ratio, 2), "every_round": times}


def rounded(result: dict[str, Any], factor: float) -> dict[str, Any]:
    """The same in other units than seconds."""
    median = {name: round(factor * value, 2) for name, value in result["median"].items()}
    rounds = {name: [round(factor * value, 2) for value in values] for name, values in result["every_round"].items()}
    return result | {"median": median, "every_round": rounds}


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    torch.manual_seed(0)
    trained, drawn = [], []
    for hidden in (128, 512):
        for scored in (K2, 1):
            case = {"hidden": hidden, "loss": "multi" if scored == K2 else "single"}
            trained.append(case | rounded(race(training(hidden, scored), rounds, 1), 1e3))
            print(case, "ms a batch", trained[-1]["median"], "ratio", trained[-1]["ratio"], flush=True)
        for procedure, tokens in TOKENS.items():
            case = {"hidden": hidden, "procedure": procedure}
            drawn.append(case | rounded(race(drawing(hidden, procedure), rounds, tokens), 1e6))
            print(case, "µs a token", drawn[-1]["median"], "ratio", drawn[-1]["ratio"], flush=True)
    processor = binding.get_host_cpu_name()
    record = {
        "what": f"processor time, one thread: LSTM without peepholes, softmax on h, {ROWS} rows, k2 = {K2}, |V| = {V}",
        "training_ms_a_batch": trained,
        "sampling_us_a_token": drawn,
        "rounds": rounds,
        "processor": processor,
        "machine": f"{platform.machine()}, {platform.system()}, {torch.backends.cpu.get_cpu_capability()}",
        "load_after": round(os.getloadavg()[0], 2),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    (RECORDS / f"softmax_on_h_{processor}.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
