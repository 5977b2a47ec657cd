"""Sampling: tokens drawn one after the other from a trained model, under either way of conditioning."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from unroll import randomness, samplers
from unroll.decoding import Decoding, draw
from unroll.model import Model


@dataclass(frozen=True)
class Drawn:
    """One token a row, and what the model itself gave it."""

    ids: list[int]
    logprobs: list[float]  # under the model's own distribution, before temperature and truncation


def generate(
    model: Model, prompts_BN: Tensor, k2: int, procedure: str, decoding: Decoding, seeds: list[int]
) -> Iterator[Drawn]:
    """Draw without end; row b depends on its own prompt and seed alone."""
    sampler = samplers.load(procedure)
    with torch.inference_mode():
        memory = sampler.begin(model, k2, len(prompts_BN))
        # A window holds k2 tokens: of a longer prompt only the last k2 could matter to it.
        start = max(0, prompts_BN.shape[1] - k2) if samplers.forgets(procedure) else 0
        for ids_B in prompts_BN[:, start:].T:
            h_BH, memory = sampler.read(model, memory, ids_B)
    step = 0
    while True:
        with torch.inference_mode():
            logits_BV = model.head(h_BH.view(1, 1, *h_BH.shape))[0, 0]
            uniform = [float(randomness.uniform(seed, "sample", step, 1)[0]) for seed in seeds]
            probabilities = decoding.distribution(logits_BV)
            ids_B = draw(probabilities, torch.tensor(uniform, dtype=torch.float64, device=model.device))
            logprobs = torch.log_softmax(logits_BV.double(), -1).gather(1, ids_B.unsqueeze(1)).squeeze(1)
            drawn = Drawn(ids_B.tolist(), logprobs.tolist())
        yield drawn
        with torch.inference_mode():
            h_BH, memory = sampler.read(model, memory, ids_B)
        step += 1
