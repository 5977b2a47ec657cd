"""A model from the parts that people have: recurrent layers of torch's, a decoder, perhaps an embedding.

Shapes: E embedding, H hidden, V vocabulary.
"""

from __future__ import annotations

import copy
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from unroll.base.errors import ConfigurationError
from unroll.experiment.experiment import Experiment
from unroll.experiment.scheme import Scheme
from unroll.model import cells
from unroll.runs.exchange import decoders, inner_bias, torch_layers
from unroll.runs.exchange.decoders import Decoder

Module = TypeVar("Module", bound=nn.Module)
HALF = (torch.float16, torch.bfloat16)


class Parts(NamedTuple):
    """The modules, and how many symbols there are."""

    layers: nn.RNNBase
    decoder: nn.Module
    embedding: nn.Embedding | None
    V: int

    @classmethod
    def of(cls, layers: nn.RNNBase, decoder: nn.Module, embedding: nn.Embedding | None, V: int) -> Parts:
        """Parts in single or double precision."""
        return cls(_widened(layers), _widened(decoder), None if embedding is None else _widened(embedding), V)

    def as_run(self, scheme: Scheme, kind: str) -> tuple[Experiment, dict[str, Tensor]]:
        """An experiment, and weights by the names that a run has for them; an error in words where that cannot be."""
        cell, head = torch_layers.cell_of(self.layers), decoders.read(self.decoder)
        inner = torch_layers.inner_bias(self.layers)
        wrong = [*self._misfits(head)]
        if inner and not scheme.learns:
            wrong.append(
                "This GRU's b_hn (the last third of bias_hh) is not 0. A unit that is always 1 stands for it, which "
                f"needs a learned first state, and {scheme.training} training has none. Choose another scheme."
            )
        if wrong:
            raise ConfigurationError(*wrong)
        states, zeros = cells.load(cell, "off").STATES, torch.zeros(self.layers.hidden_size)
        values = {name: value.cpu() for name, value in torch_layers.read(self.layers).items()}
        values |= {
            f"layers.{n}.{name}0": zeros.to(head.out.b) for n in range(self.layers.num_layers) for name in states
        }
        if self.embedding is not None:
            # A token's row of the product is what its embedding brought: one table instead of two.
            table_VE, W_x = self.embedding.weight.detach().cpu().double(), values["layers.0.W_x"]
            values["layers.0.W_x"] = (table_VE @ W_x.double()).to(W_x.dtype)
        if inner:
            values |= inner_bias.with_a_unit(values, [b_hn.cpu() for b_hn in inner])
            head = head.with_a_unit()
        values |= head.values()
        experiment = Experiment(
            kind=kind,
            scheme=scheme,
            cell=cell,
            peepholes="off" if cell == "lstm" else Experiment.peepholes,
            layers=self.layers.num_layers,
            hidden=head.inputs,
            dense=0 if head.dense is None else len(head.dense.b),
            dropout=head.dropout,
        )
        if scheme.carries:
            carried = torch.zeros(experiment.rows, experiment.hidden).to(head.out.b)
            values |= {f"carried.{n}.{name}": carried for n in range(experiment.layers) for name in states}
        return experiment, values

    def _misfits(self, head: Decoder) -> list[str]:
        """Where the parts do not fit together."""
        layers, embedding, V = self.layers, self.embedding, self.V
        wrong = []
        if embedding is not None and embedding.max_norm is not None:
            wrong.append("An embedding with max_norm changes its rows as it reads them: it cannot be represented.")
        reads, width = (V, V) if embedding is None else (embedding.num_embeddings, embedding.embedding_dim)
        if layers.input_size != width:
            what = f"one-hot vectors of {V} symbols" if embedding is None else f"an embedding of {width}"
            wrong.append(
                f"The recurrent layers take {layers.input_size} numbers, and get {what}. Give the embedding between."
            )
        if reads != V:
            wrong.append(f"The embedding knows {reads} symbols, the vocabulary has {V}. Give the model's own symbols.")
        if head.inputs != layers.hidden_size:
            wrong.append(f"The decoder takes {head.inputs} numbers, and h has {layers.hidden_size}.")
        if len(head.out.b) != V:
            wrong.append(f"The decoder makes {len(head.out.b)} logits, and the vocabulary has {V} symbols.")
        return wrong


def _widened(module: Module) -> Module:
    """Half precision is exact in single: sums and products of weights are not rounded back to it."""
    return copy.deepcopy(module).float() if any(p.dtype in HALF for p in module.parameters()) else module
