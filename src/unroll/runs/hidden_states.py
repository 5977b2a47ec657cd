"""What goes on inside a model as it reads a text: its states after every token, as arrays.

Progressive: the state runs on from the first token to the last. Windowed: after every token, the state of the window
of k2 tokens that ends there; the first k2 tokens are read progressively, since a window is the whole text there.

Shapes: T tokens of a text, n windows at a time, L layers, H hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unroll.base.errors import ConfigurationError, SymbolError
from unroll.corpus.tokens import Ids
from unroll.model import head
from unroll.model.conditioning import PROCEDURES
from unroll.model.model import Model
from unroll.model.network import States
from unroll.runs import perplexities
from unroll.runs.loaded import Run, require_run

WINDOWS = 512  # read side by side


@dataclass(frozen=True, eq=False)
class HiddenStates:
    """A text, token by token: the states after reading each, and how surprising each was."""

    procedure: str
    symbols: tuple[str, ...]
    states: Mapping[str, NDArray[np.float32]]  # by name, [T, L, H]; a token's are those after it was read
    surprisal: NDArray[np.float32]  # nats, [T]; NaN for the first token, which nothing predicts

    @property
    def h(self) -> NDArray[np.float32]:
        """The h of all layers, [T, L, H]; the last layer's predicts the next token."""
        return self.states["h"]

    @property
    def c(self) -> NDArray[np.float32]:
        """The memory of an LSTM's cells, [T, L, H]."""
        if "c" not in self.states:
            raise ConfigurationError(f"This cell has no c. It has {', '.join(self.states)}.")
        return self.states["c"]

    def __len__(self) -> int:
        return len(self.symbols)


def hidden_states(run: Run, text: str, sample: str = "progressive") -> HiddenStates:
    """The states of a run after every token of a text, and the surprisal of every token."""
    require_run(run)
    if not isinstance(text, str):
        raise ConfigurationError(f"What is read is text. Got {str(text)[:60]!r}.")
    return states_after(run, run.vocabulary.encode(text), sample)


def states_after(run: Run, ids: Ids, sample: str = "progressive") -> HiddenStates:
    """The same of a text that is token ids already."""
    if sample not in PROCEDURES:
        raise ConfigurationError(f"sample must be one of {', '.join(PROCEDURES)}. Got {sample!r}.")
    if not len(ids):
        raise SymbolError("A text to read needs at least 1 token. Got 0.")
    model = run.model
    ids_T = torch.from_numpy(ids.astype(np.int64)).to(model.device)
    shape = (len(ids), len(model.network.layers), model.experiments[0].hidden)
    arrays = {name: np.empty(shape, np.float32) for name in model.cell.STATES}
    surprisal = np.full(len(ids), np.nan, np.float32)
    begin = 0
    with torch.inference_mode(), model.engine.reading(model.precision):
        for states in _read(model, ids_T, run.experiment.scheme.k2, sample):
            end = begin + states[0][0].shape[1]
            for layer, state in enumerate(states):
                for name, s in zip(model.cell.STATES, state, strict=True):
                    arrays[name][begin:end, layer] = s[0].float().cpu().numpy()
            predicted_n = ids_T[begin + 1 : end + 1]
            surprisal[begin + 1 : end + 1] = _nats(model, states[-1][0][:, : len(predicted_n)], predicted_n)
            begin = end
    return HiddenStates(sample, tuple(run.vocabulary.symbols[i] for i in ids), arrays, surprisal)


def _nats(model: Model, h_MnH: Tensor, predicted_n: Tensor) -> NDArray[np.float64]:
    """What each of these tokens costs, predicted from the h before it."""
    if not len(predicted_n):
        return np.empty(0)
    logits_MnRV = torch.cat(list(perplexities.logits(model, h_MnH.unsqueeze(2))), dim=1)
    nats_MnR = head.nll(logits_MnRV, predicted_n.view(1, -1, 1))
    nats_n: NDArray[np.float64] = nats_MnR[0, :, 0].cpu().numpy()
    return nats_n


def _read(model: Model, ids_T: Tensor, k2: int, procedure: str) -> Iterator[States]:
    """States after each token, in order, a stretch of tokens at a time: [1, n, H] each."""
    known = len(ids_T) if procedure == "progressive" else min(k2, len(ids_T))
    state = model.first_state(1)
    for stretch in ids_T[:known].split(WINDOWS):
        history: list[States] = []
        for token in stretch:
            state = model.advance(token.view(1, 1), state)
            history.append(state)
        yield _side_by_side(history)
    if known == len(ids_T):
        return
    # Window w begins at token w: the first of these is read up to the token after the known ones.
    for ids_nT in ids_T.unfold(0, k2, 1)[1:].split(WINDOWS):
        state = model.first_state(len(ids_nT))
        for ids_n in ids_nT.unbind(1):
            state = model.advance(ids_n.unsqueeze(0), state)
        yield state


def _side_by_side(history: list[States]) -> States:
    """States of one row at several times as those of several rows."""
    return tuple(
        tuple(torch.cat(component, dim=1) for component in zip(*of_layer, strict=True))
        for of_layer in zip(*history, strict=True)
    )
