"""Recurrent layers of any cell as a torch module: their parameters, by the names that a run has for them.

A module has no run axis: what a kernel wants with one gets an M of 1. States are as torch has them: a tensor
[layers, B, H] for a cell with one, a tuple of them for a cell with more, h first.

Shapes: M runs (one), T time, B rows, I inputs, H hidden, G gate columns.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Mapping
from typing import final

import torch
from torch import Tensor, nn

from unroll.base.errors import ConfigurationError
from unroll.model import cells
from unroll.model.cells import Extra, RecurrentCell
from unroll.model.network import Layer, States

TorchState = Tensor | tuple[Tensor, ...]


def joined(states: States) -> TorchState:
    """States of all layers, with a run axis, as torch has them."""
    tensors = tuple(torch.cat(component) for component in zip(*states, strict=True))
    return tensors if len(tensors) > 1 else tensors[0]


def parted(state: TorchState, names: tuple[str, ...], layers: int, rows: int, hidden: int) -> States:
    """The same the other way, or an error that names the shape."""
    tensors = (state,) if isinstance(state, Tensor) else tuple(state)
    wanted = (layers, rows, hidden)
    if len(tensors) != len(names) or any(tuple(s.shape) != wanted for s in tensors):
        got = ", ".join(str(list(s.shape)) for s in tensors)
        raise ConfigurationError(
            f"A state must be {' and '.join(names)}, each {list(wanted)}: layers, rows, units. Got {got}. "
            "Take it from initial_state(rows), or from the call before."
        )
    return tuple(tuple(s[layer].unsqueeze(0) for s in tensors) for layer in range(layers))


class CellLayers(nn.Module, ABC):
    """A stack of layers of one cell. A parameter of layer 0 is `layers.0.W_x`, as in a run's weights."""

    def __init__(self, cell: str, peepholes: str, inputs: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.cell: RecurrentCell = cells.load(cell, peepholes)
        self.inputs, self.hidden = inputs, hidden
        G, extra = self.cell.GATES * hidden, self.cell.extra_shapes(hidden)
        self.layers = nn.ModuleList()
        for layer in range(layers):
            shapes = {"W_x": (hidden if layer else inputs, G), "W_h": (hidden, G), **extra, "b": (G,)}
            self.layers.append(nn.ParameterDict({name: torch.zeros(shape) for name, shape in shapes.items()}))

    def each_layer(self) -> Iterator[Layer]:
        """The parameters of every layer, with a run axis."""
        for held in self.layers:
            assert isinstance(held, nn.ParameterDict)
            values = {name: value.unsqueeze(0) for name, value in held.items()}
            yield Layer(values.pop("W_x"), values.pop("W_h"), values.pop("b"), values)

    def fill(self, values: Mapping[str, Tensor]) -> None:
        """Take over values by the names that a run has for them."""
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if name in values:
                    parameter.copy_(values[name])

    def parted(self, state: TorchState, rows: int) -> States:
        """A state of torch's form, layer by layer with a run axis."""
        return parted(state, self.cell.STATES, len(self.layers), rows, self.hidden)


@final
class PlainLayers(CellLayers):
    """A plain loop in torch's own operations: gradients flow everywhere, into the states too, and nothing clips them.

    It stands for nn.LSTM where a run has a cell that torch does not have.
    """

    def forward(self, x: Tensor, state: TorchState) -> tuple[Tensor, TorchState]:
        """Ids [B, T] or numbers [B, T, I], and a state: h of the top layer [B, T, H], and the state after."""
        after = []
        for layer, before in zip(self.each_layer(), self.parted(state, len(x)), strict=True):
            W_x = layer.W_x[0]
            pre_x_BTG = (x @ W_x if x.is_floating_point() else nn.functional.embedding(x, W_x)) + layer.b
            x, last = self._over_time(pre_x_BTG, before, layer.W_h[0], layer.extra)
            after.append(last)
        return x, joined(tuple(after))

    def _over_time(
        self, pre_x_BTG: Tensor, state: tuple[Tensor, ...], W_h: Tensor, extra: Extra
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        history = []
        for pre_x_BG in pre_x_BTG.unbind(1):
            state, _ = self.cell.forward(pre_x_BG.unsqueeze(0), state[0] @ W_h, state, extra)
            history.append(state[0][0])
        return torch.stack(history, dim=1), state
