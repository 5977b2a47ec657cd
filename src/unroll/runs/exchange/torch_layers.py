"""Where torch's own layers are equal to ours, and what is which of their parameters.

torch holds matrices with a row a gate unit, ours have a column; its gates stand in the same order. Two things differ:

- torch adds two biases, and one is enough. Ours becomes b_ih; b_hh is 0 and is not trained, or an optimiser would move
  their sum at twice the pace. Of a GRU's b_hh the last third, b_hn, stands inside the product that the reset gate
  multiplies, where ours has no bias at all: 0 is equal, and for anything else see `inner_bias.py`.
- The update gate of torch's GRU says how much is kept, ours how much is replaced: 1 − σ(x) = σ(−x), so the sign of its
  weights and bias changes, and no bit else.

Shapes: I inputs, H hidden, G gate columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from unroll.base.errors import ConfigurationError


class Equal(NamedTuple):
    """A layer of torch's, and by what each gate's columns are multiplied on the way there and back."""

    kind: type[nn.LSTM] | type[nn.GRU] | type[nn.RNN]
    signs: tuple[int, ...]


EQUALS = {
    "lstm": Equal(nn.LSTM, (1, 1, 1, 1)),
    "gru": Equal(nn.GRU, (1, -1, 1)),
    "rnn": Equal(nn.RNN, (1,)),
}


def equal(cell: str, peepholes: str) -> bool:
    """Whether torch has this cell."""
    return cell in EQUALS and (cell != "lstm" or peepholes == "off")


def make(cell: str, inputs: int, hidden: int, layers: int) -> nn.RNNBase:
    """torch's layers, with zeros for values."""
    # Made without values first: drawing them would move torch's global generator, and they would be thrown away.
    module: nn.RNNBase = EQUALS[cell].kind(inputs, hidden, layers, batch_first=True, device="meta")
    module = module.to_empty(device="cpu")
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.zero_()
            if name.startswith("bias_hh"):
                parameter.requires_grad_(False)
    return module


def fill(module: nn.RNNBase, cell: str, values: Mapping[str, Tensor]) -> None:
    """Give torch's layers the values of a run."""
    with torch.no_grad():
        for layer in range(module.num_layers):
            W_x, W_h, b = (_signed(values[f"layers.{layer}.{name}"], cell) for name in ("W_x", "W_h", "b"))
            getattr(module, f"weight_ih_l{layer}").copy_(W_x.t())
            getattr(module, f"weight_hh_l{layer}").copy_(W_h.t())
            getattr(module, f"bias_ih_l{layer}").copy_(b)
            getattr(module, f"bias_hh_l{layer}").zero_()


def cell_of(module: nn.RNNBase) -> str:
    """Which of our cells these layers are, or all reasons why none is."""
    cell = next((name for name, ours in EQUALS.items() if type(module) is ours.kind), None)
    if cell is None:
        raise ConfigurationError(f"Recurrent layers must be nn.LSTM, nn.GRU or nn.RNN. Got {type(module).__name__}.")
    wrong = []
    if module.bidirectional:
        wrong.append("it is bidirectional: a model that predicts the next token cannot read backwards")
    if module.proj_size:
        wrong.append(f"it projects h to {module.proj_size} numbers (proj_size), which no cell here does")
    if getattr(module, "nonlinearity", "tanh") != "tanh":
        wrong.append(f"its nonlinearity is {module.nonlinearity}, and that of the simple RNN here is tanh")
    if module.dropout and module.num_layers > 1:
        wrong.append(
            f"it drops {module.dropout:g} between its layers when it trains, which no model here does: to bring in its "
            "weights alone, set its dropout to 0 first"
        )
    if wrong:
        raise ConfigurationError(
            *(f"This {type(module).__name__} cannot be represented: {reason}." for reason in wrong)
        )
    return cell


def read(module: nn.RNNBase) -> dict[str, Tensor]:
    """The values of torch's layers by the names that a run has for them, but for an `inner_bias`."""
    cell, values = cell_of(module), {}
    for layer in range(module.num_layers):
        W_x, W_h = (getattr(module, f"weight_{part}_l{layer}").detach() for part in ("ih", "hh"))
        values[f"layers.{layer}.W_x"] = _signed(W_x.t(), cell).contiguous()
        values[f"layers.{layer}.W_h"] = _signed(W_h.t(), cell).contiguous()
        values[f"layers.{layer}.b"] = _signed(_bias(module, layer), cell)
    return values


def _bias(module: nn.RNNBase, layer: int) -> Tensor:
    if not module.bias:
        return torch.zeros_like(getattr(module, f"weight_hh_l{layer}")[:, 0])
    biases: list[Tensor] = [getattr(module, f"bias_{part}_l{layer}").detach() for part in ("ih", "hh")]
    b_ih, b_hh = biases
    if isinstance(module, nn.GRU):
        b_hh = torch.cat((b_hh[: 2 * module.hidden_size], torch.zeros_like(b_hh[2 * module.hidden_size :])))
    return (b_ih.double() + b_hh.double()).to(b_ih.dtype)


def inner_bias(module: nn.RNNBase) -> list[Tensor] | None:
    """b_hn of each layer, which a GRU's reset gate multiplies; None where there is none, or all are 0."""
    if not (isinstance(module, nn.GRU) and module.bias):
        return None
    inner: list[Tensor] = [getattr(module, f"bias_hh_l{n}").detach().chunk(3)[2] for n in range(module.num_layers)]
    return inner if any(b_hn.any() for b_hn in inner) else None


def _signed(value: Tensor, cell: str) -> Tensor:
    """The gates stand along the last axis."""
    signs = EQUALS[cell].signs
    return torch.cat(
        [part if sign > 0 else -part for sign, part in zip(signs, value.chunk(len(signs), -1), strict=True)], -1
    )
