"""Perplexity: how well a model predicts a text, under either way of conditioning."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from unroll import samplers
from unroll.errors import CorpusError
from unroll.kernels import States
from unroll.model import Model


@dataclass(frozen=True)
class Perplexity:
    """exp of the mean negative log-likelihood of `tokens` tokens.

    >>> Perplexity(nats=0.6931471805599453, tokens=100).perplexity
    2.0
    """

    nats: float  # a token
    tokens: int

    @property
    def perplexity(self) -> float:
        """exp(nats)."""
        return math.exp(self.nats) if self.nats < 700 else math.inf

    @property
    def bits_per_token(self) -> float:
        """The same in bits."""
        return self.nats / math.log(2)


def token_nll(
    model: Model,
    ids_N: Tensor,
    k2: int,
    procedure: str,
    first: States | None = None,
    between: Callable[[], None] = lambda: None,
) -> Tensor:
    """The negative log-likelihood of every token after the first k2, for every row of `first`: [N − k2, R] in float64.

    `between` is called now and then, so that a long evaluation can be watched and interrupted.
    """
    if len(ids_N) <= k2:
        raise CorpusError(f"Perplexity needs more than k2 = {k2} tokens; there are {len(ids_N)}.")
    chunks, place = [], k2
    with torch.inference_mode():
        for h_nRH in samplers.load(procedure).hidden(model, ids_N, k2, first):
            between()
            logits = model.head(h_nRH.unsqueeze(0))[0].double()
            targets = ids_N[place : place + len(h_nRH)].view(-1, 1, 1).expand(-1, logits.shape[1], 1)
            chunks.append((torch.logsumexp(logits, -1) - logits.gather(-1, targets).squeeze(-1)).cpu())
            place += len(h_nRH)
    return torch.cat(chunks)


def perplexities(nll_NR: Tensor) -> list[Perplexity]:
    """One a row."""
    return [Perplexity(float(nats), len(nll_NR)) for nats in nll_NR.mean(0)]
