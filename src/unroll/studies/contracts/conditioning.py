"""Rules of sampling procedures.

Shapes: M runs, N tokens of a text, B or R rows, H hidden.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from unroll.experiment.decoding import Decoding
from unroll.model import conditioning
from unroll.model.model import Model
from unroll.model.network import States
from unroll.sampling.host_loop import Stream, generate
from unroll.studies.contracts import cases, require

K2, N, R = 6, 40, 3


def sampling_and_perplexity_condition_alike(name: str) -> None:
    """`hidden` gives the h that `read` gives, token by token, for every token after the first k2, in order."""
    for cell in ("lstm", "gru"):
        model, ids_N = _model(cell), cases.ids(N)
        for first in (None, _rows_of_first(model)):
            hidden_NRH = _hidden(model, name, ids_N.unsqueeze(0), first)[0]
            rows = 1 if first is None else R
            wanted = (N - K2, rows, 5)
            require(tuple(hidden_NRH.shape) == wanted, f"hidden gave {list(hidden_NRH.shape)}; it must give {wanted}.")
            read_NRH = _read(model, name, ids_N, first)[K2 - 1 : -1]
            cases.require_close(hidden_NRH, read_NRH, f"hidden beside read, {rows} rows, {cell},", 1e-12)


def a_long_text_is_read_in_chunks_as_in_one(name: str) -> None:
    """The chunks of `hidden` put together are one pass, however long the text."""
    model, ids_N = _model(), cases.ids(700)
    whole = _hidden(model, name, ids_N.unsqueeze(0))[0]
    cases.require_close(whole, _read(model, name, ids_N)[K2 - 1 : -1], "hidden of 700 tokens", 1e-12)


def a_run_is_conditioned_in_a_fleet_as_alone(name: str) -> None:
    """`hidden` takes M runs, with a text each, and gives each what it gives it alone."""
    runs, ids_MN = [cases.experiment(k2=K2, seed=seed) for seed in range(3)], cases.ids(3, 20)
    together = _hidden(cases.model(runs), name, ids_MN)
    for m, run in enumerate(runs):
        alone = _hidden(cases.model([run]), name, ids_MN[m : m + 1])
        cases.require_close(together[m], alone[0], f"Run {m}", 1e-12)


def memories_are_values(name: str) -> None:
    """`read` leaves the memory that it was given as it was: rows are copied by sharing them."""
    model, ids_N = _model(), cases.ids(N)
    procedure = conditioning.load(name)
    with torch.inference_mode():
        memory = procedure.begin(model, K2, 1)
        for token in ids_N[: K2 + 2]:
            _, memory = procedure.read(model, memory, token.reshape(1))
        once = procedure.read(model, memory, ids_N[:1])[0].clone()
        for token in ids_N[:4]:
            procedure.read(model, memory, token.reshape(1))
        again = procedure.read(model, memory, ids_N[:1])[0]
    require(torch.equal(once, again), "Reading twice from one memory gave two predictions.")


def the_same_seed_draws_the_same_tokens(name: str) -> None:
    """The same seed draws the same tokens, another seed others."""
    model, prompts = _model(), cases.ids(1, 4)
    first, second, other = (_drawn(model, name, prompts, [seed]) for seed in (5, 5, 6))
    require(first == second, "One seed drew two texts.")
    require(first != other, "Two seeds drew one text.")


def a_row_depends_on_its_own_prompt_and_seed_alone(name: str) -> None:
    """A text drawn among others is the text drawn alone."""
    model, prompts = _model(), cases.ids(3, 9)
    together = _drawn(model, name, prompts, [5, 6, 7])
    for b in range(3):
        alone = _drawn(model, name, prompts[b : b + 1], [5 + b])
        require([step[b] for step in together] == [step[0] for step in alone], f"Row {b} drew other tokens.")


def it_forgets_if_it_says_so(name: str) -> None:
    """With FORGETS = True a prediction depends on no token before the last k2."""
    if not conditioning.forgets(name):
        return
    model, end = _model(), cases.ids(K2, seed=9)
    texts = [torch.cat((cases.ids(before, seed=before), end)) for before in (0, 3, 11)]
    ends = [_read(model, name, text)[-1] for text in texts]
    for h in ends[1:]:
        cases.require_close(h, ends[0], "What is predicted after the same k2 tokens", 1e-12)


def _model(cell: str = "lstm") -> Model:
    return cases.model([cases.experiment(cell=cell, layers=2, k2=K2)], scale=1.0)


def _rows_of_first(model: Model) -> States:
    """A different first state for every row."""
    return tuple(
        tuple(cases.tensor(1, R, s.shape[-1], seed=10 * layer + n) for n, s in enumerate(state))
        for layer, state in enumerate(model.first_state(1))
    )


def _hidden(model: Model, name: str, ids_MN: Tensor, first: States | None = None) -> Tensor:
    with torch.inference_mode():
        return torch.cat(list(conditioning.load(name).hidden(model, ids_MN, K2, first)), dim=1)


def _read(model: Model, name: str, ids_N: Tensor, first: States | None = None) -> Tensor:
    """h after every token, read one at a time: [N, R, H]."""
    rows, procedure = first[0][0].shape[1] if first else 1, conditioning.load(name)
    memory, h_NRH = procedure.begin(model, K2, rows, first), []
    with torch.inference_mode():
        for token in ids_N:
            h_BH, memory = procedure.read(model, memory, token.expand(rows))
            h_NRH.append(h_BH)
    return torch.stack(h_NRH)


def _drawn(model: Model, name: str, prompts: Tensor, seeds: Sequence[int]) -> list[list[int]]:
    streams = [
        Stream(prompt.numpy(), 25, Decoding(temperature=1.5), seed) for prompt, seed in zip(prompts, seeds, strict=True)
    ]
    return [step.ids for step in generate(model, streams, K2, name)]
