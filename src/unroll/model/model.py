"""The model, M runs at once: recurrent layers, a dense layer with leaky ReLU, a layer to the vocabulary, softmax.

A model may lack the dense layer. Every parameter carries a leading run axis. Vocabularies of different sizes are padded
to one V: padded weights are 0, their logits −inf, so their gradients are exactly 0 and they stay 0.

Shapes: M runs, T time, B rows, K scored positions, H hidden, D dense, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unroll.base import randomness
from unroll.base.errors import ConfigurationError
from unroll.corpus.batches import Batch
from unroll.experiment.experiment import Experiment
from unroll.model import cells
from unroll.model.dropout import Dropout
from unroll.model.engine import Engine
from unroll.model.head import Head
from unroll.model.initial_values import initial_parameters, parameter_shapes
from unroll.model.network import Layer, Network, States, embed
from unroll.model.precisions import PRECISIONS

PAD = 16


class Model:
    """The parameters of M runs that share a shape, and what is computed with them."""

    def __init__(
        self,
        experiments: Sequence[Experiment],
        vocabularies: Sequence[int],
        parameters: Mapping[str, Tensor],
        engine: Engine,
    ) -> None:
        shape = experiments[0]
        self.experiments = tuple(experiments)
        self.vocabularies = tuple(vocabularies)
        self.parameters = dict(parameters)
        self.engine = engine
        self.cell = cells.load(shape.cell, shape.peepholes)
        self.precision = shape.precision
        out_b = self.parameters["out.b"]
        self.device, self.dtype, V = out_b.device, out_b.dtype, out_b.shape[1]
        # Padded symbols can be neither predicted nor learned.
        padded = torch.arange(V).unsqueeze(0) >= torch.tensor(self.vocabularies).unsqueeze(1)
        self._mask_MV = torch.zeros(padded.shape, dtype=self.dtype).masked_fill(padded, -torch.inf).to(self.device)
        self._at_M = self._per_run([min(e.scheme.k1, e.scheme.k2) for e in experiments], torch.long)
        self._carries_M = self._per_run([e.scheme.carries for e in experiments], torch.bool)
        self._learns_M = self._per_run([e.scheme.learns for e in experiments], torch.bool)
        self._dropout_M = self._per_run([e.dropout for e in experiments], self.dtype)
        self._words_M = tuple(randomness.seed_words(e.seed) for e in experiments)
        self._keys_M2 = self._per_run(self._words_M, torch.long).to(torch.int32).contiguous()
        self._drops = any(e.dropout for e in experiments)
        if reason := engine.refusal(self.network):
            raise ConfigurationError(
                f"The kernel {engine.kernel} cannot run this: {reason}. Choose another with --kernel."
            )

    @classmethod
    def initial(cls, experiments: Sequence[Experiment], vocabularies: Sequence[int], engine: Engine) -> Model:
        """The model that training starts from."""
        cell = cells.load(experiments[0].cell, experiments[0].peepholes)
        # Runs of one fleet with the same initial values share them: drawing is slow, and a sweep shares its seeds.
        distinct = {(e.seed, e.forget_bias, V): e for e, V in zip(experiments, vocabularies, strict=True)}
        drawn = {key: initial_parameters(e, cell, key[-1]) for key, e in distinct.items()}
        values = [drawn[e.seed, e.forget_bias, V] for e, V in zip(experiments, vocabularies, strict=True)]
        return cls.stacked(experiments, vocabularies, values, engine)

    @classmethod
    def stacked(
        cls,
        experiments: Sequence[Experiment],
        vocabularies: Sequence[int],
        values: Sequence[Mapping[str, Any]],
        engine: Engine,
    ) -> Model:
        """The model whose runs have these values, which are unpadded, as they are saved."""
        shape = experiments[0]
        cell = cells.load(shape.cell, shape.peepholes)
        V = -(-max(vocabularies) // PAD) * PAD
        dtype = PRECISIONS[shape.precision].kept
        parameters = {}
        for name, padded in parameter_shapes(shape, cell, V).items():
            stack = torch.zeros(len(experiments), *padded, dtype=dtype)
            for run, run_values in zip(stack, values, strict=True):
                value = torch.as_tensor(run_values[name])
                run[tuple(slice(n) for n in value.shape)] = value
            parameters[name] = stack.to(engine.device).requires_grad_()
        return cls(experiments, vocabularies, parameters, engine)

    @property
    def network(self) -> Network:
        """The recurrent layers, as kernels take them."""
        names = self.cell.extra_shapes(self.experiments[0].hidden)
        layers = []
        for layer in range(self.experiments[0].layers):
            of_layer = {k: self.parameters[f"layers.{layer}.{k}"] for k in ("W_x", "W_h", "b", *names)}
            layers.append(Layer(of_layer["W_x"], of_layer["W_h"], of_layer["b"], {k: of_layer[k] for k in names}))
        shape = self.experiments[0]
        return Network(self.cell, shape.clip, tuple(layers), shape.precision)

    def nll(self, batch: Batch, carried: States) -> tuple[Tensor, States]:
        """The negative log-likelihood of each scored target, and the state that each row's next window starts from."""
        first = self._first(batch, carried)
        K = batch.targets_MKB.shape[1]
        h_MKBH, after = self.engine.last_steps(self.network, batch.inputs_MTB, first, self._at_M, K)
        if batch.gap_MTB is not None:
            # k1 > k2: the tokens between the windows are read but not trained on, so that the state stays right.
            with torch.no_grad():
                for t in range(batch.gap_MTB.shape[1]):
                    after = self.advance(batch.gap_MTB[:, t], after)
        nll_MKB = self._nll_of(h_MKBH, batch.targets_MKB, batch.number)
        # Gradients end here: the next window starts from this state as a value.
        return nll_MKB.transpose(1, 2), tuple(tuple(s.detach() for s in state) for state in after)

    def _nll_of(self, h_MKBH: Tensor, targets_MKB: Tensor, number: Tensor) -> Tensor:
        """The negative log-likelihood of each target, under the dropout of batch `number`."""
        h_MNH = h_MKBH.flatten(1, 2)
        targets_MN = targets_MKB.flatten(1)
        nll_MN = self.engine.nll(self._head, h_MNH, targets_MN, self.precision, self._dropout(number))
        return nll_MN.view_as(targets_MKB)

    def head(self, h_MTBH: Tensor, batch: Tensor | None = None) -> Tensor:
        """Logits from the top layer's h; with a batch number, under that batch's dropout."""
        M, T, B, H = h_MTBH.shape
        dropout = None if batch is None else self._dropout(batch)
        logits_MNV = self._head.logits(h_MTBH.reshape(M, T * B, H), self.precision, self.engine.product, dropout)
        return logits_MNV.view(M, T, B, -1)

    @property
    def _head(self) -> Head:
        """What makes logits of h. Symbols that only pad a vocabulary can be neither predicted nor learned."""
        head = Head.of(self.parameters)
        return head._replace(out=head.out._replace(b=head.out.b + self._mask_MV))

    def _dropout(self, number: Tensor) -> Dropout:
        return Dropout(self._dropout_M, self._words_M, self._keys_M2, number, self._drops)

    def read(self, ids_MTB: Tensor, first: States) -> tuple[Tensor, States]:
        """Read T tokens in one call of the kernel, without gradients: the top layer's h and the last states."""
        M, T, _ = ids_MTB.shape
        first = tuple(tuple(s.contiguous() for s in state) for state in first)
        with torch.no_grad():
            at_M = torch.full((M,), T, device=self.device)
            return self.engine.recurrence(self.network, ids_MTB.contiguous(), first, at_M)

    def advance(self, ids_MB: Tensor, states: States) -> States:
        """Take all layers one time step on, without gradients; sampling and gaps are made of this."""
        after = []
        x: Tensor | None = None
        for layer, state in zip(self.network.layers, states, strict=True):
            if x is None:
                pre_x = embed(layer.W_x, ids_MB) + layer.b.unsqueeze(1)
            else:
                pre_x = torch.baddbmm(layer.b.unsqueeze(1), x, layer.W_x)
            state, _ = self.cell.forward(pre_x, torch.bmm(state[0], layer.W_h), state, layer.extra)
            x = state[0]
            after.append(state)
        return tuple(after)

    def first_state(self, rows: int) -> States:
        """The state that every text starts from: the learned one, which is 0 if states are carried."""
        return tuple(
            tuple(self.parameters[f"layers.{layer}.{s}0"].unsqueeze(1).expand(-1, rows, -1) for s in self.cell.STATES)
            for layer in range(self.experiments[0].layers)
        )

    def no_state(self) -> States:
        """The carried state before the first batch: 0."""
        shape = self.experiments[0]
        zeros = torch.zeros(len(self.experiments), shape.rows, shape.hidden, dtype=self.dtype, device=self.device)
        return tuple(tuple(zeros.clone() for _ in self.cell.STATES) for _ in range(shape.layers))

    def runs(self, chosen: Sequence[int]) -> Model:
        """Make a fleet of these runs, with a copy of their present values."""
        slots = torch.tensor(chosen, device=self.device)
        parameters = {name: value.detach()[slots] for name, value in self.parameters.items()}
        experiments, vocabularies = zip(*((self.experiments[m], self.vocabularies[m]) for m in chosen), strict=True)
        return Model(experiments, vocabularies, parameters, self.engine)

    def shapes(self, m: int) -> dict[str, tuple[int, ...]]:
        """The shape of every parameter of one run, without padding."""
        return parameter_shapes(self.experiments[m], self.cell, self.vocabularies[m])

    def values(self, m: int, tensors: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """One run's values of every parameter (or of tensors shaped like them), without padding, on the CPU."""
        shapes = self.shapes(m)
        source = self.parameters if tensors is None else tensors
        return {
            name: source[name]
            .detach()[m][tuple(slice(n) for n in shape)]
            .cpu()
            .clone(memory_format=torch.contiguous_format)
            for name, shape in shapes.items()
        }

    def _first(self, batch: Batch, carried: States) -> States:
        """The windows' first states: learned, carried or 0, run by run.

        `where` keeps a carried run's gradient out of the learned state.
        """
        learned = self.first_state(1)
        if all(e.scheme.learns for e in self.experiments):
            return learned
        learns = self._learns_M.view(-1, 1, 1)
        carries = self._carries_M.view(-1, 1, 1)
        keep = carries & ~batch.reset_MB.unsqueeze(-1)
        return tuple(
            tuple(torch.where(learns, a, torch.where(keep, b, 0.0)) for a, b in zip(*pair, strict=True))
            for pair in zip(learned, carried, strict=True)
        )

    def _per_run(self, values: Sequence[Any], dtype: torch.dtype) -> Tensor:
        return torch.as_tensor(np.array(values), dtype=dtype).to(self.device)
