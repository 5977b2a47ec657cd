"""Perplexity: how well models predict their texts, under any way of conditioning; all runs of a fleet at once.

Shapes: M runs, N tokens of a text, n of a chunk, R rows (first states), H hidden, V vocabulary.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from unroll.base.errors import CorpusError
from unroll.model import conditioning, head
from unroll.model.model import Model
from unroll.model.network import States

DIVERGED = "The model gives no finite probabilities: its weights have diverged. Choose another run."


@dataclass(frozen=True)
class Perplexity:
    """exp of the mean negative log-likelihood of `tokens` tokens.

    >>> Perplexity(nats=0.6931471805599453, tokens=100).perplexity
    2.0
    """

    nats: float  # per token
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
    texts: Sequence[Tensor],
    k2: int,
    procedure: str,
    first: States | None = None,
    between: Callable[[], None] = lambda: None,
) -> list[Tensor]:
    """The negative log-likelihood of every token of a text after its first k2, for every row of `first`.

    Takes a text of N ids for each run of the model; gives [N − k2, R] in float64 for each, on the host. `between` is
    called now and then, so that a long evaluation can be watched and interrupted.
    """
    shortest = min(len(ids_N) for ids_N in texts)
    if shortest <= k2:
        raise CorpusError(
            f"Perplexity needs more than k2 = {k2} tokens. Got {shortest}. Bring a longer text, or raise --test-tokens."
        )
    # Shorter texts are padded with a symbol that every run knows; the predictions of it are cut off again.
    ids_MN = pad_sequence(list(texts), batch_first=True)
    pieces = []
    position = k2
    with torch.no_grad(), model.engine.reading(model.precision):
        for chunk_MnRH in conditioning.load(procedure).hidden(model, ids_MN, k2, first):
            between()
            for logits_MnRV in logits(model, chunk_MnRH):
                _, n, R, _ = logits_MnRV.shape
                pieces.append(head.nll(logits_MnRV, ids_MN[:, position : position + n].unsqueeze(-1).expand(-1, -1, R)))
                position += n
    nll_MNR = torch.cat(pieces, dim=1).cpu()
    return [nll_NR[: len(ids_N) - k2] for nll_NR, ids_N in zip(nll_MNR, texts, strict=True)]


def logits(model: Model, h_MnRH: Tensor) -> Iterator[Tensor]:
    """The head's logits for each h, in float64; as many positions at a time as memory allows."""
    for part_MnRH in h_MnRH.split(_positions(model, h_MnRH), dim=1):
        yield model.head(part_MnRH).double()


def _positions(model: Model, h_MnRH: Tensor) -> int:
    """How many positions of each text pass through the head at a time."""
    M, _, R, _ = h_MnRH.shape
    widest = max(model.experiments[0].dense, model.parameters["out.b"].shape[-1])
    fitting = model.engine.chunk_bytes // (M * R * widest * torch.float64.itemsize)
    return max(conditioning.TILE // R, 1, fitting)


def perplexities(nll_NR: Tensor) -> list[Perplexity]:
    """The perplexity of each row."""
    return [Perplexity(nats, len(nll_NR)) for nats in nll_NR.mean(0).tolist()]


def middle(rows: Sequence[Perplexity]) -> Perplexity:
    """One perplexity for many first states: the median.

    >>> middle([Perplexity(0.0, 9), Perplexity(math.log(7), 9), Perplexity(math.log(2), 9)]).perplexity
    2.0
    """
    if len(rows) % 2:
        return sorted(rows, key=lambda row: row.nats)[len(rows) // 2]
    value = statistics.median(row.perplexity for row in rows)
    return Perplexity(math.log(value), rows[0].tokens)
