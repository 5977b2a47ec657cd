"""The measures that scheme_traits.py takes of trained models, all runs of a fleet at once.

    position_nll     how well the token after p others is predicted, p counted from the model's own start
    excess           the cost of one wrong token for the true tokens after it
    answer_nll       how well the answers of the copy source are predicted

Each is a mean over many positions of a text, which are rows of one batch: a GPU does thousands of them in the time of
one.

Shapes: M runs, N tokens of a text, T time, B rows, P positions, R replaced tokens, Q pairs of a replaced token and a
distance, A answers, H hidden, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unroll.base import randomness
from unroll.corpus.synthetic import Copy
from unroll.model import conditioning, head
from unroll.model.model import Model
from unroll.model.network import States
from unroll.runs import perplexities

STEPS = 100  # time steps of one call of the kernel
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def position_nll(model: Model, ids_MN: Tensor, reach: int) -> Tensor:
    """The mean nll of the token after p others, read from the model's own start: [M, P], p = 1 … reach.

    Every position predicts the same tokens, all but the text's first `reach`: a window that begins at n − p predicts
    token n at position p. So two positions differ in what was read, and not in what is asked; and p = k2 gives the
    windowed perplexity of those tokens.
    """
    M, N = ids_MN.shape
    sums_MP = torch.zeros(M, reach, dtype=torch.float64, device=model.device)
    for starts_B in torch.arange(N - 1, device=model.device).split(_rows(model)):
        state = model.first_state(len(starts_B))
        for read_T in torch.arange(reach, device=model.device).split(STEPS):
            at_TB = starts_B + read_T.unsqueeze(1)
            h_MTBH, state = _read(model, ids_MN[:, at_TB.clamp(max=N - 1)], state)
            target_TB = at_TB + 1
            counts_TB = (target_TB >= reach) & (target_TB < N)
            nll_MTB = _nll(model, h_MTBH, ids_MN[:, target_TB.clamp(max=N - 1)])
            sums_MP[:, read_T] += torch.where(counts_TB, nll_MTB, 0.0).sum(-1)
    return sums_MP.cpu() / (N - reach)


def replaced_positions(tokens: int, count: int, k2: int, reach: int) -> Integers:
    """Where tokens are replaced: evenly spread, with a window before each and `reach` tokens after it."""
    return np.unique(np.linspace(k2, tokens - reach - 1, count).astype(np.int64))


def wrong_tokens(true_R: Sequence[int] | Integers, frequencies_V: Floats, seed: int) -> Integers:
    """Draw a token for each replaced one, by how frequent it is in the text, but never the true one."""
    draws_R = randomness.uniform(seed, "wrong tokens", 0, len(true_R))
    odds_RV = np.tile(frequencies_V, (len(true_R), 1))
    odds_RV[np.arange(len(true_R)), true_R] = 0.0
    sums_RV = np.cumsum(odds_RV / odds_RV.sum(1, keepdims=True), axis=1)
    # The last sum may round to below a draw, and the true token's step has no height: no draw reaches either.
    sums_RV[sums_RV >= sums_RV[:, -1:]] = 1.0
    return np.asarray((sums_RV <= draws_R[:, None]).sum(1))


def excess(
    model: Model, ids_MN: Tensor, replaced_R: Tensor, wrong_MR: Tensor, k2: int, reach: int
) -> dict[str, Tensor]:
    """The cost of a replaced token for the true tokens after it: nats, [M, R, distances].

    Distance 1 is the token right after the wrong one. Progressive: 1 … reach. Windowed: 1 … k2, since a window does not
    hold the wrong token beyond that, and its excess is 0.
    """
    first = _states_before(model, ids_MN, replaced_R)

    def progressive(wrong: Tensor | None) -> Tensor:
        state = first
        parts = []
        for read_T in torch.arange(reach, device=model.device).split(STEPS):
            at_TR = replaced_R + read_T.unsqueeze(1)
            h_MTRH, state = _read(model, _disturbed(ids_MN, at_TR, replaced_R, wrong), state)
            parts.append(_nll(model, h_MTRH, ids_MN[:, at_TR + 1]))
        return torch.cat(parts, 1).transpose(1, 2)

    def windowed(wrong: Tensor | None) -> Tensor:
        R = len(replaced_R)
        parts = []
        back_T = torch.arange(-k2, 0, device=model.device).unsqueeze(1)
        for pair_Q in torch.arange(R * k2, device=model.device).split(_rows(model, k2)):
            replaced_Q = replaced_R[pair_Q // k2]
            target_Q = replaced_Q + pair_Q % k2 + 1
            wrong_MQ = None if wrong is None else wrong[:, pair_Q // k2]
            state = model.first_state(len(pair_Q))
            for back in back_T.split(STEPS):
                h_MTQH, state = _read(model, _disturbed(ids_MN, target_Q + back, replaced_Q, wrong_MQ), state)
            parts.append(_nll(model, h_MTQH[:, -1:], ids_MN[:, target_Q].unsqueeze(1))[:, 0])
        return torch.cat(parts, 1).view(-1, R, k2)

    return {
        "progressive": (progressive(wrong_MR) - progressive(None)).cpu(),
        "windowed": (windowed(wrong_MR) - windowed(None)).cpu(),
    }


def _disturbed(ids_MN: Tensor, at_TR: Tensor, replaced_R: Tensor, wrong_MR: Tensor | None) -> Tensor:
    """The tokens at these positions of the text, with each row's replaced one exchanged."""
    ids_MTR = ids_MN[:, at_TR]
    return ids_MTR if wrong_MR is None else torch.where(at_TR == replaced_R, wrong_MR.unsqueeze(1), ids_MTR)


def _states_before(model: Model, ids_MN: Tensor, replaced_R: Tensor) -> States:
    """The states, a row each, that have read the text up to each replaced token, from one pass."""
    state = model.first_state(1)
    read = 0
    states = []
    for position in replaced_R.tolist():
        for ids_MT in ids_MN[:, read:position].split(STEPS, 1) if position > read else ():
            _, state = _read(model, ids_MT.unsqueeze(-1), state)
        read = position
        states.append(state)
    return tuple(
        tuple(torch.cat([one[layer][s] for one in states], 1) for s in range(len(state[layer])))
        for layer in range(len(state))
    )


def known_answers(source: Copy, text: str, k2: int, row: int) -> tuple[Integers, Integers]:
    """The answers that both procedures are asked for, in a text that is read in rows: positions, and distances back.

    The distance to the symbol is gap + 2, so a window holds it where that is at most k2. The whole record must lie in
    one row, and a window before the answer.
    """
    positions_A, gaps_A = source.answers(text)
    keep_A = (positions_A % row >= np.maximum(k2, gaps_A + 3)) & (positions_A < len(text) // row * row)
    return positions_A[keep_A], gaps_A[keep_A] + 2


def answer_nll(model: Model, ids_N: Tensor, positions_A: Tensor, k2: int, row: int) -> dict[str, Tensor]:
    """The nll of each answer, [M, A]: after a window of k2 tokens, and after a state that has read the row up to it.

    All runs read one text, cut into rows, and each row starts from the model's own start.
    """
    M = len(model.experiments)
    back_T = torch.arange(-k2, 0, device=model.device).unsqueeze(1)
    windowed = []
    for at_B in positions_A.split(_rows(model, k2)):
        state = model.first_state(len(at_B))
        for back in back_T.split(STEPS):
            h_MTBH, state = _read(model, ids_N[at_B + back].expand(M, -1, -1), state)
        windowed.append(_nll(model, h_MTBH[:, -1:], ids_N[at_B].expand(M, 1, -1))[:, 0])
    ids_RL = ids_N[: len(ids_N) // row * row].view(-1, row)
    state = model.first_state(len(ids_RL))
    parts = []
    for inputs_RT, targets_RT in zip(ids_RL[:, :-1].split(STEPS, 1), ids_RL[:, 1:].split(STEPS, 1), strict=True):
        h_MTBH, state = _read(model, inputs_RT.t().expand(M, -1, -1), state)
        parts.append(_nll(model, h_MTBH, targets_RT.t().expand(M, -1, -1)))
    nll_MTR = torch.cat(parts, 1)
    progressive_MA = nll_MTR[:, positions_A % row - 1, positions_A // row]
    return {"windowed": torch.cat(windowed, 1).cpu(), "progressive": progressive_MA.cpu()}


def share_copied(nats: Any, symbols: int) -> Any:
    """The share of ln(symbols) nats that a model saves on an answer.

    0: it knows that a symbol comes, but not which. 1: it knows which, at 0 nats. A reader who cannot copy pays these
    ln(symbols) nats an answer above the source's entropy rate.
    """
    return 1.0 - nats / math.log(symbols)


def _rows(model: Model, steps: int = STEPS) -> int:
    """How many rows are read side by side, so that their h over time fits."""
    M = len(model.experiments)
    H = model.experiments[0].hidden
    steps = min(steps, STEPS)
    fitting = model.engine.chunk_bytes // (M * steps * H * model.dtype.itemsize)
    return max(conditioning.TILE, fitting // conditioning.TILE * conditioning.TILE)


def _read(model: Model, ids_MTB: Tensor, state: States) -> tuple[Tensor, States]:
    with torch.no_grad(), model.engine.reading(model.precision):
        return model.read(ids_MTB, state)


def _nll(model: Model, h_MTBH: Tensor, targets_MTB: Tensor) -> Tensor:
    """The nll of each target, as perplexity computes it."""
    with torch.no_grad(), model.engine.reading(model.precision):
        return torch.cat(list(_parts(model, h_MTBH, targets_MTB)), 1)


def _parts(model: Model, h_MTBH: Tensor, targets_MTB: Tensor) -> Iterator[Tensor]:
    at = 0
    for logits_MnBV in perplexities.logits(model, h_MTBH):
        n = logits_MnBV.shape[1]
        yield head.nll(logits_MnBV, targets_MTB[:, at : at + n])
        at += n
