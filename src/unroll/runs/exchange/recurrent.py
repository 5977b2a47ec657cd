"""Recurrent layers with the scheme's truncation, as a torch module, for a loop of one's own.

A window of T = k2 tokens goes in; gradients flow back through all of it and into the state that it started from, and
end there. What comes back as the state is a value, detached, after as many steps as are asked for: after k1, where the
next window starts k1 tokens on. Gradients are clipped where a run clips them, inside backpropagation.

The kernel that a run would have computes, on whatever device the parameters are: machine code, where llvmlite is.

Shapes: M runs (one), B rows, T time, I inputs, H hidden, G gate columns.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from unroll.base.errors import ConfigurationError
from unroll.engines import kernels
from unroll.experiment.experiment import Experiment
from unroll.model.initial_values import initial_parameters
from unroll.model.network import Network
from unroll.runs.exchange.cell_layers import CellLayers, TorchState, joined

PRECISIONS = {torch.float32: "float32", torch.float64: "float64"}
REPEATABLE = ("reference", "stacked")  # kernels that keep what the way back needs, however often it is taken


@final
class Recurrent(CellLayers):
    """Layers of one cell, with the initial values of a run of the same seed, and a first state that can be trained."""

    def __init__(
        self,
        cell: str,
        inputs: int,
        hidden: int,
        layers: int = 1,
        peepholes: str = "paper",
        clip: float = 50.0,
        forget_bias: float = 0.0,
        seed: int = 0,
        kernel: str = "auto",
        learned: bool = True,
    ) -> None:
        """`inputs` counts symbols, or numbers a step; `clip` may be inf; `learned` makes the first state trainable."""
        if type(inputs) is not int or inputs < 1:
            raise ConfigurationError(f"inputs must be at least 1. Got {inputs!r}.")
        settings = Experiment(
            cell=cell,
            peepholes=peepholes,
            layers=layers,
            hidden=hidden,
            dense=1,
            clip=clip,
            forget_bias=forget_bias,
            seed=seed,
            kernel=kernel,
        )
        super().__init__(cell, peepholes, inputs, hidden, layers)
        self.clip, self.kernel = settings.clip, kernel
        drawn = {n: torch.from_numpy(v) for n, v in initial_parameters(settings, self.cell, inputs).items()}
        self.fill(drawn)
        for name in self.cell.STATES:
            self.register_parameter(f"{name}0", nn.Parameter(torch.zeros(layers, hidden), requires_grad=learned))

    def initial_state(self, rows: int) -> TorchState:
        """The first state of each row: 0 until it is trained."""
        tensors = tuple(getattr(self, f"{name}0").unsqueeze(1).expand(-1, rows, -1) for name in self.cell.STATES)
        return tensors if len(tensors) > 1 else tensors[0]

    def forward(self, x: Tensor, state: TorchState | None = None, at: int | None = None) -> tuple[Tensor, TorchState]:
        """h of the top layer, [B, T, H], and the state after step `at` (counted from 1; the last one by default).

        `x` holds ids, [B, T], which look up rows of W_x, or numbers, [B, T, inputs], which are multiplied with it. A
        state goes in as it came out of `initial_state`, which stands for None, or of an earlier call.
        """
        if x.dim() != (3 if x.is_floating_point() else 2) or not x.numel():
            raise ConfigurationError(
                f"x must be ids [rows, steps], or numbers [rows, steps, inputs]. Got {list(x.shape)}."
            )
        B, T = x.shape[:2]
        at = T if at is None else at
        if not 1 <= at <= T:
            raise ConfigurationError(f"at must be between 1 and the {T} steps of this window. Got {at}.")
        first = self.parted(self.initial_state(B) if state is None else state, B)
        network, ids_BT = self._network(x)
        device = ids_BT.device
        name = kernels.choose(network, device) if self.kernel == "auto" else self.kernel
        kernel = kernels.require(name, network, device)
        contiguous = tuple(tuple(s.contiguous() for s in of_layer) for of_layer in first)
        at_M = torch.tensor([at], device=device)
        h_MTBH, after = kernel.run(network, ids_BT.t().unsqueeze(0).contiguous(), contiguous, at_M)
        if h_MTBH.requires_grad and name not in REPEATABLE:
            h_MTBH.register_hook(_Once(name))
        return h_MTBH[0].transpose(0, 1), joined(tuple(tuple(s.detach() for s in of_layer) for of_layer in after))

    def _network(self, x: Tensor) -> tuple[Network, Tensor]:
        """The layers as kernels take them, and ids that look up the rows of the lowest one's W_x."""
        layers = list(self.each_layer())
        dtype = layers[0].W_x.dtype
        if dtype not in PRECISIONS:
            raise ConfigurationError(f"Parameters must be float32 or float64. Got {dtype}.")
        if x.is_floating_point():
            if x.shape[2] != self.inputs or x.dtype != dtype:
                raise ConfigurationError(
                    f"x must have {self.inputs} numbers a step, of {dtype}. Got {x.shape[2]} of {x.dtype}."
                )
            # Kernels look up rows: here of the product x·W_x, each of its rows once. Autograd does the rest.
            B, T, _ = x.shape
            layers[0] = layers[0]._replace(W_x=x.reshape(1, B * T, -1) @ layers[0].W_x)
            ids_BT = torch.arange(B * T, device=x.device).view(B, T)
        else:
            ids_BT = x.long()
            # A kernel looks up unguarded: an id that is none would read memory of somebody else's.
            low, high = int(ids_BT.min()), int(ids_BT.max())
            if low < 0 or high >= self.inputs:
                raise ConfigurationError(f"Ids must be between 0 and {self.inputs - 1}. Got {low} to {high}.")
        return Network(self.cell, self.clip, tuple(layers), PRECISIONS[dtype]), ids_BT

    def extra_repr(self) -> str:
        """What a reader wants to know first."""
        return f"{len(self.layers)} × {self.hidden}, {self.inputs} inputs, clip={self.clip:g}"


class _Once:
    """A hook that says in words what a kernel would fail with when a graph is gone back through again."""

    def __init__(self, kernel: str) -> None:
        self.kernel, self.passed = kernel, False

    def __call__(self, gradient: Tensor) -> None:
        if self.passed:
            raise ConfigurationError(
                f"The kernel {self.kernel} goes back through a window once, and uses its memory again. "
                "For retain_graph choose Recurrent(…, kernel='stacked')."
            )
        self.passed = True
