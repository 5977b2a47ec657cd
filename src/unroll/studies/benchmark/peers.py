"""What a user of torch would write instead of Unroll: the same model on the same batches, trained one run at a time.

Every peer computes Unroll's own loss, without peepholes, which cuDNN does not know. Text, counters and carried states
stay on the device, so that a whole step can be recorded as a CUDA graph.

Shapes: T time, B rows, K scored positions, I inputs, H hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from unroll.corpus.corpus import Corpus
from unroll.engines import devices
from unroll.model.head import LEAK
from unroll.studies.benchmark.numerics import DTYPES, numerics
from unroll.studies.benchmark.replay import replayed
from unroll.studies.benchmark.shapes import Shape

LEARNING_RATE = 0.001
LOSS_SCALE = 1024.0  # float16 has no room for small gradients; a power of two changes no digit
WIDE = 128  # half-precision products are fast where every width divides by a power of two

State = tuple[Tensor, Tensor]


class Window(NamedTuple):
    """What one training step reads."""

    inputs_TB: Tensor
    targets_KB: Tensor
    begins: Tensor  # whether an epoch begins, and with it every carried state


class Windows:
    """The batches that Unroll reads in its first epoch, over and over; a counter on the device finds them."""

    def __init__(self, shape: Shape, corpus: Corpus, device: torch.device) -> None:
        ids = corpus.train_ids(0).astype(np.int64)
        starts = np.arange(shape.rows) * len(ids) // shape.rows
        self.shape = shape
        self.per_epoch = (len(ids) - int(starts[-1]) - (shape.k2 + 1)) // shape.k1 + 1
        self.text = torch.from_numpy(ids).to(device)
        self.positions_TB = torch.from_numpy(np.arange(shape.k2 + 1)[:, None] + starts).to(device)
        self.number = torch.zeros((), dtype=torch.long, device=device)

    def read(self) -> Window:
        """Read the next window."""
        window_TB = self.text[self.positions_TB + self.number * self.shape.k1]
        begins = self.number == 0
        self.number.copy_((self.number + 1) % self.per_epoch)
        return Window(window_TB[:-1], window_TB[-self.shape.scheme.scored :], begins)


class Recurrent(nn.Module):
    """nn.LSTM on one-hot inputs: all layers in one module, or one module a layer; a wide input is padded with zeros."""

    def __init__(self, shape: Shape, singly: bool, inputs: int) -> None:
        super().__init__()
        self.k1, self.carries = shape.k1, shape.scheme.carries
        self.register_buffer("one_hot", torch.eye(shape.vocabulary, inputs))
        H = shape.hidden
        self.modules_in_order = nn.ModuleList(
            [nn.LSTM(H if layer else inputs, H) for layer in range(shape.layers)]
            if singly
            else [nn.LSTM(inputs, H, shape.layers)]
        )
        self.layers_each = 1 if singly else shape.layers

    def forward(self, inputs_TB: Tensor, first: list[State]) -> tuple[Tensor, list[State]]:
        """Return the top layer's h, and the states from which the next carried windows go on."""
        x_TBI = nn.functional.embedding(inputs_TB, self.get_buffer("one_hot"))
        after = []
        for module, state in zip(self.modules_in_order, first, strict=True):
            if self.carries and self.k1 < len(x_TBI):
                # cuDNN gives c only at the end, and the next window starts after k1: two calls.
                early, middle = module(x_TBI[: self.k1], state)
                late, _ = module(x_TBI[self.k1 :], middle)
                x_TBI = torch.cat((early, late))
                state = middle
            else:
                x_TBI, state = module(x_TBI, state)
            after.append(state)
        return x_TBI, after


class FlashRecurrent(nn.Module):
    """The same layers over the function of the package flashrnn; its gates are in the order i, f, c, o."""

    def __init__(self, shape: Shape, call: Callable[..., tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        self.call = call
        self.last_carried = min(shape.k1, shape.k2)
        self.layers_each = 1
        H = shape.hidden
        self.table = nn.Parameter(torch.empty(shape.vocabulary, 4 * H))
        self.above = nn.ModuleList([nn.Linear(H, 4 * H, bias=False) for _ in range(1, shape.layers)])
        self.R = nn.ParameterList([torch.empty(4, 1, H, H) for _ in range(shape.layers)])
        self.b = nn.ParameterList([torch.zeros(4, 1, H) for _ in range(shape.layers)])
        for weight in (self.table, *self.R):
            nn.init.uniform_(weight, -(H**-0.5), H**-0.5)

    def forward(self, inputs_TB: Tensor, first: list[State]) -> tuple[Tensor, list[State]]:
        """Return the top layer's h, and the states from which the next carried windows go on."""
        pre_x_BTG = nn.functional.embedding(inputs_TB.T, self.table)
        after, h_BTH = [], None
        for layer, (R, b, (h, c)) in enumerate(zip(self.R, self.b, first, strict=True)):
            if h_BTH is not None:
                pre_x_BTG = self.above[layer - 1](h_BTH)
            B, T, G = pre_x_BTG.shape
            start = torch.stack((h[0], c[0])).view(2, B, 1, 1, G // 4)
            states, _ = self.call(pre_x_BTG.view(B, T, 4, 1, G // 4), R, b, states=start, function="lstm")
            h_BTH = states[0, :, :, 0]
            last = states[:, :, self.last_carried - 1, 0]
            after.append((last[0].unsqueeze(0), last[1].unsqueeze(0)))
        assert h_BTH is not None
        return h_BTH.transpose(0, 1), after


class Peer:
    """One run: recurrent layers, dense, leaky ReLU, dense, softmax, Adam."""

    def __init__(
        self,
        shape: Shape,
        corpus: Corpus,
        device: torch.device,
        recurrent: Recurrent | FlashRecurrent,
        precision: str,
        outputs: int | None = None,
    ) -> None:
        self.shape, self.precision, self.device = shape, precision, device
        self.half = DTYPES[precision] in (torch.float16, torch.bfloat16)
        self.windows = Windows(shape, corpus, device)
        self.head = nn.Sequential(
            nn.Linear(shape.hidden, shape.dense),
            nn.LeakyReLU(LEAK),
            nn.Linear(shape.dense, outputs or shape.vocabulary),
        )
        layers_each = recurrent.layers_each
        modules = -(-shape.layers // layers_each)
        self.first = nn.ParameterList([torch.zeros(2, layers_each, 1, shape.hidden) for _ in range(modules)])
        self.recurrent = recurrent
        self.model = nn.ModuleList([recurrent, self.head, self.first]).to(device, DTYPES[precision])
        self.carried = [
            torch.zeros(2, layers_each, shape.rows, shape.hidden, device=device, dtype=DTYPES[precision])
            for _ in range(modules)
        ]
        self.last_loss = torch.zeros((), device=device)
        # A first state that nobody reads is not trained.
        learned = () if shape.scheme.carries else self.first
        self.parameters = [*recurrent.parameters(), *self.head.parameters(), *learned]

    def loss(self) -> Tensor:
        """Nats per token on the next window; carried states move on."""
        window = self.windows.read()
        if self.shape.scheme.carries:
            first = [state * ~window.begins for state in self.carried]
        else:
            first = [state.expand(-1, -1, self.shape.rows, -1) for state in self.first]
        h_TBH, after = self.recurrent(window.inputs_TB, [(s[0].contiguous(), s[1].contiguous()) for s in first])
        if self.shape.scheme.carries:
            for carried, state in zip(self.carried, after, strict=True):
                carried.copy_(torch.stack(state).detach())
        logits_KBV = self.head(h_TBH[-len(window.targets_KB) :])[..., : self.shape.vocabulary]
        if self.half:
            logits_KBV = logits_KBV.float()
        loss = nn.functional.cross_entropy(logits_KBV.flatten(0, 1), window.targets_KB.flatten())
        self.last_loss.copy_(loss.detach())
        return loss


class Eager:
    """What most people write: plain calls, and Adam's default form."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.adam = torch.optim.Adam(peer.parameters, lr=LEARNING_RATE)

    def step(self) -> None:
        """Train on one batch."""
        with numerics(self.peer.precision):
            self.adam.zero_grad()
            self.peer.loss().backward()
            self.adam.step()


class Graphed:
    """The same with Adam as one kernel, recorded as a CUDA graph; half-precision weights have float32 masters."""

    def __init__(self, peer: Peer, record: bool = True) -> None:
        self.peer = peer
        trained = self.trained = peer.parameters
        self.half = peer.half
        self.scale = LOSS_SCALE if peer.precision == "float16" else 1.0
        self.masters = [p.detach().float().requires_grad_() for p in trained] if self.half else trained
        if self.half:
            for master in self.masters:
                master.grad = torch.zeros_like(master)
        self.adam = torch.optim.Adam(
            self.masters, lr=LEARNING_RATE, fused=True, capturable=not devices.is_host(peer.device)
        )
        with numerics(peer.precision):
            self.step = replayed(self._train, peer.device, record)

    def _train(self) -> None:
        for p in self.trained:
            p.grad = None
        (self.peer.loss() * self.scale).backward()
        if self.half:
            wide = [m.grad for m in self.masters]
            torch._foreach_copy_(wide, [p.grad for p in self.trained])
            torch._foreach_mul_(wide, 1.0 / self.scale)
        self.adam.step()
        if self.half:
            with torch.no_grad():
                torch._foreach_copy_(self.trained, self.masters)


def lstm_eager(shape: Shape, corpus: Corpus, device: torch.device, precision: str) -> Eager:
    """torch.nn.LSTM with plain calls."""
    return Eager(Peer(shape, corpus, device, Recurrent(shape, False, shape.vocabulary), precision))


def lstm_graphed(shape: Shape, corpus: Corpus, device: torch.device, precision: str, record: bool = True) -> Graphed:
    """torch.nn.LSTM with its step recorded."""
    return Graphed(Peer(shape, corpus, device, Recurrent(shape, False, shape.vocabulary), precision), record)


def cudnn_half(shape: Shape, corpus: Corpus, device: torch.device, precision: str, record: bool = True) -> Graphed:
    """The strongest use of cuDNN that we know: half precision, padded widths, a module a layer, a recorded step."""
    wide = -(-shape.vocabulary // WIDE) * WIDE
    return Graphed(Peer(shape, corpus, device, Recurrent(shape, True, wide), precision, outputs=wide), record)


def flash(shape: Shape, corpus: Corpus, device: torch.device, precision: str, record: bool = True) -> Graphed:
    """The package flashrnn in the precision that it is made for, recorded like the others."""
    from flashrnn import flashrnn

    wide = -(-shape.vocabulary // WIDE) * WIDE
    return Graphed(Peer(shape, corpus, device, FlashRecurrent(shape, flashrnn), precision, outputs=wide), record)
