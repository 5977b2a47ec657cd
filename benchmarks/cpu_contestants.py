"""The contestants of cpu_training.py: a training step of ours, of the peer, its products alone, and the peak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from unroll import Corpus, Experiment, Scheme
from unroll.engines import devices
from unroll.engines.choice import engine_of
from unroll.engines.cpu import workers
from unroll.engines.cpu.builder import VECTORS, Code, Value, Variable
from unroll.engines.cpu.compiler import make
from unroll.engines.cpu.packing import panel
from unroll.training.learner import Learner

SUMS, TURN = 12, 8  # of the peak: sums that hide each other's delay, and rounds in a turn of its loop
ROWS, K2, DENSE, SYMBOLS = 64, 100, 1024, 85
THREADS = 2
CPU = torch.device("cpu")
Step = Callable[[], None]
CELLS = {"lstm": (nn.LSTM, 4), "gru": (nn.GRU, 3), "rnn": (nn.RNN, 1)}  # torch's layers, and how many gates


class Case(NamedTuple):
    """A model to train, and how many positions carry a loss."""

    cell: str
    hidden: int
    layers: int
    scored: int  # positions that carry a loss


class Peer(nn.Module):
    """The model with torch's own layers."""

    def __init__(self, cell: str, hidden: int, layers: int, scored: int, batch_first: bool, embedded: bool) -> None:
        super().__init__()
        self.scored, self.batch_first = scored, batch_first
        self.embedding = nn.Embedding(SYMBOLS, SYMBOLS) if embedded else None
        self.layers = CELLS[cell][0](SYMBOLS, hidden, layers, batch_first=batch_first)
        self.dense = nn.Linear(hidden, DENSE)
        self.out = nn.Linear(DENSE, SYMBOLS)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits of the scored positions."""
        x = functional.one_hot(ids, SYMBOLS).float() if self.embedding is None else self.embedding(ids)
        h, _ = self.layers(x)
        h = h[:, -self.scored :] if self.batch_first else h[-self.scored :]
        logits: Tensor = self.out(functional.leaky_relu(self.dense(h), 0.01))
        return logits


def peer(case: Case, batch_first: bool = False, embedded: bool = False, bfloat16: bool = False) -> Step:
    """One step of the peer with its fastest Adam; its products may be in bfloat16."""
    scored = case.scored
    model = Peer(*case, batch_first, embedded)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.001, fused=True)
    window = torch.from_numpy(np.random.default_rng(0).integers(SYMBOLS, size=(K2 + 1, ROWS)))
    inputs = window[:-1]
    targets = window[-scored:]
    if batch_first:
        inputs, targets = inputs.t().contiguous(), targets.t().contiguous()

    def step() -> None:
        optimiser.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            logits = model(inputs)
        functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten()).backward()
        optimiser.step()

    return step


def ours(case: Case, corpus: Corpus, runs: int = 1, precision: str = "float32") -> Step:
    """One step of this many runs."""
    scheme = Scheme(loss="equal" if case.scored == K2 else "last", k1=20, k2=K2)
    sizes = {"cell": case.cell, "hidden": case.hidden, "layers": case.layers, "dense": DENSE, "rows": ROWS}
    run = devices.resolve(Experiment(scheme=scheme, device="cpu", precision=precision, **sizes))
    fleet = [replace(run, seed=seed) for seed in range(runs)]
    return Learner(fleet, [corpus] * runs, engine_of(CPU, run.kernel)).step


def floor(case: Case) -> tuple[Step, float]:
    """The matrix products of one step, and how many GFLOP they are."""
    B = ROWS
    T = K2
    H = case.hidden
    D = DENSE
    V = -(-SYMBOLS // 16) * 16
    N = case.scored * ROWS
    layers = case.layers
    G = CELLS[case.cell][1] * H
    shapes = [(B, H, G), (B, G, H)] * T * layers + [(H, T * B, G)] * layers
    shapes += [(T * B, H, G), (H, T * B, G), (T * B, G, H)] * (layers - 1)
    shapes += [(N, H, D), (N, D, V), (N, V, D), (D, N, V), (N, D, H), (H, N, D)]
    pool = torch.randn(max(max(m * k, k * n, m * n) for m, k, n in shapes) + 64)
    # Operands may overlap; results may not overlap operands.
    results = torch.empty_like(pool)
    products = [
        (pool[: m * k].view(m, k), pool[-k * n :].view(k, n), results[: m * n].view(m, n)) for m, k, n in shapes
    ]

    def step() -> None:
        for a, b, out in products:
            torch.mm(a, b, out=out)

    return step, sum(2 * m * k * n for m, k, n in shapes) / 1e9


def spin(code: Code, inputs: Value, out: Value, turns: Value) -> None:
    """Multiplications and additions out of registers, and nothing else."""
    factor = code.load(inputs)
    more = code.load(code.at(inputs, code.lanes))
    sums = [Variable(code, more) for _ in range(SUMS)]
    with code.loop(turns):
        for _ in range(TURN):
            for value in sums:
                value.set(code.fma(value.get(), factor, more))
    for n, value in enumerate(sums):
        code.store(value.get(), code.at(out, n * code.lanes))


def peak(gflop: float) -> Step:
    """Do as many operations as the products of one step have, as fast as the processor can."""
    lanes = panel(torch.float32) // VECTORS
    inputs = torch.full((2 * lanes,), 0.5)
    out = torch.empty(THREADS, SUMS * lanes)
    turns = round(gflop * 1e9 / THREADS / (2 * lanes * SUMS * TURN))
    code = make(spin, 32, "aan")
    return lambda: workers.each(THREADS, lambda part: code(inputs.data_ptr(), out[part].data_ptr(), turns))
