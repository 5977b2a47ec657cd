"""A run as a torch module: what it computes, in torch's own operations, to be trained, traced or taken apart.

Where torch has the cell (LSTM without peepholes, GRU, simple RNN) its own layers are inside, elsewhere a plain loop.
Nothing clips gradients here, and they flow through the states that come back: a loop of one's own detaches them where
it wants them to end.

Shapes: B rows, T time, H hidden, D dense, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor, nn

from unroll.base.errors import ConfigurationError
from unroll.corpus.tokens import Vocabulary
from unroll.experiment.experiment import Experiment
from unroll.experiment.scheme import Scheme
from unroll.model import cells
from unroll.model.head import LEAK
from unroll.model.initial_values import parameter_shapes
from unroll.model.precisions import PRECISIONS
from unroll.runs.exchange import torch_layers
from unroll.runs.exchange.cell_layers import PlainLayers, TorchState
from unroll.runs.loaded import Run, require_run


@final
class SequenceModel(nn.Module):
    """Recurrent layers, a dense layer with leaky ReLU if the run has one, a layer to the vocabulary.

    Made from an experiment and a vocabulary it holds zeros: `load_state_dict` gives it what another one saved.
    """

    def __init__(self, experiment: Experiment, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.experiment, self.vocabulary = experiment, vocabulary
        e, V = experiment, len(vocabulary)
        self._states = cells.load(e.cell, e.peepholes).STATES
        if torch_layers.equal(e.cell, e.peepholes):
            self.recurrent: nn.Module = torch_layers.make(e.cell, V, e.hidden, e.layers)
        else:
            self.recurrent = PlainLayers(e.cell, e.peepholes, V, e.hidden, e.layers)
        for name in self._states:
            # Where states are carried a text starts from 0, and nobody trains that.
            first = nn.Parameter(torch.zeros(e.layers, e.hidden), requires_grad=e.scheme.learns)
            self.register_parameter(f"{name}0", first)
            if e.scheme.carries:
                self.register_buffer(f"carried_{name}", torch.zeros(e.layers, e.rows, e.hidden))
        self.dense = _linear(e.hidden, e.dense) if e.dense else None
        if e.dense:
            self.activation = nn.LeakyReLU(LEAK)
        self.out = _linear(e.dense or e.hidden, V)
        self.dropout = nn.Dropout(e.dropout)
        self.to(PRECISIONS[e.precision].kept)

    @property
    def scheme(self) -> Scheme:
        """How the run was trained and is sampled."""
        return self.experiment.scheme

    def initial_state(self, rows: int) -> TorchState:
        """The first state of each row: learned, or 0 if states are carried."""
        tensors = tuple(getattr(self, f"{name}0").unsqueeze(1).repeat(1, rows, 1) for name in self._states)
        return tensors if len(tensors) > 1 else tensors[0]

    def forward(self, ids_BT: Tensor, state: TorchState | None = None) -> tuple[Tensor, TorchState]:
        """Logits of every next token, [B, T, V], and the state after the last."""
        state = self.initial_state(len(ids_BT)) if state is None else state
        if isinstance(self.recurrent, PlainLayers):
            x = ids_BT
        else:
            x = nn.functional.one_hot(ids_BT.long(), len(self.vocabulary)).to(self.out.weight.dtype)
        h_BTH, state = self.recurrent(x, state)
        x = h_BTH if self.dense is None else self.activation(self.dense(self.dropout(h_BTH)))
        return self.out(self.dropout(x)), state

    def fill(self, values: Mapping[str, Tensor]) -> None:
        """Take over a run's weights, by the names that the run has for them."""
        e = self.experiment
        if isinstance(self.recurrent, PlainLayers):
            self.recurrent.fill(values)
        else:
            torch_layers.fill(_rnn(self.recurrent), e.cell, values)
        with torch.no_grad():
            for name in self._states:
                getattr(self, f"{name}0").copy_(_stacked(values, f"layers.{{}}.{name}0", e.layers))
                if e.scheme.carries:
                    getattr(self, f"carried_{name}").copy_(_stacked(values, f"carried.{{}}.{name}", e.layers))
            for name, linear in self._head():
                linear.weight.copy_(values[f"{name}.W"].t())
                linear.bias.copy_(values[f"{name}.b"])

    def values(self) -> dict[str, Tensor]:
        """The weights by the names and in the order that a run has for them, on the CPU."""
        e, V = self.experiment, len(self.vocabulary)
        if isinstance(self.recurrent, PlainLayers):
            held = {name: value.detach() for name, value in self.recurrent.named_parameters()}
        else:
            if torch_layers.inner_bias(_rnn(self.recurrent)):
                raise ConfigurationError(
                    "The GRU's b_hn (the last third of bias_hh) is not 0 any more, and our GRU has no such bias. Leave "
                    "it frozen, as to_torch makes it; or give the parts of this module to from_torch."
                )
            held = torch_layers.read(_rnn(self.recurrent))
        for layer in range(e.layers):
            held |= {f"layers.{layer}.{name}0": getattr(self, f"{name}0").detach()[layer] for name in self._states}
        for name, linear in self._head():
            held |= {f"{name}.W": linear.weight.detach().t(), f"{name}.b": linear.bias.detach()}
        order = list(parameter_shapes(e, cells.load(e.cell, e.peepholes), V))
        if e.scheme.carries:
            carried = {name: getattr(self, f"carried_{name}") for name in self._states}
            held |= {f"carried.{n}.{name}": s[n] for name, s in carried.items() for n in range(e.layers)}
            order += [f"carried.{n}.{name}" for n in range(e.layers) for name in self._states]
        return {name: held[name].cpu().contiguous().clone() for name in order}

    def _head(self) -> list[tuple[str, nn.Linear]]:
        """The layers of the head, by the names that a run has for them."""
        return [("out", self.out)] if self.dense is None else [("dense", self.dense), ("out", self.out)]

    def extra_repr(self) -> str:
        """What a reader wants to know first."""
        return f"{len(self.vocabulary)} symbols, {self.scheme}"


def to_torch(run: Run) -> SequenceModel:
    """A run as a torch module, on the CPU and ready to predict (`module.train()` switches dropout on)."""
    require_run(run)
    module = SequenceModel(run.experiment, run.vocabulary)
    carried: dict[str, Any] = {}
    if run.carried is not None:
        names = run.model.cell.STATES
        carried = {
            f"carried.{layer}.{name}": s[0]
            for layer, state in enumerate(run.carried)
            for name, s in zip(names, state, strict=True)
        }
    module.fill(run.model.values(0) | carried)
    return module.eval()


def _linear(inputs: int, outputs: int) -> nn.Linear:
    # Made without values first, as in `torch_layers.make`.
    linear: nn.Linear = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
    with torch.no_grad():
        linear.weight.zero_()
        linear.bias.zero_()
    return linear


def _rnn(module: nn.Module) -> nn.RNNBase:
    assert isinstance(module, nn.RNNBase)
    return module


def _stacked(values: Mapping[str, Tensor], name: str, layers: int) -> Tensor:
    return torch.stack([values[name.format(layer)] for layer in range(layers)])
