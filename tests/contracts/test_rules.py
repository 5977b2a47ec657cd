"""Every plug-in of Unroll, and every file of `tests/dropped_in`, keeps to its family's rules; a breach is named."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from commands import unroll
from dropping import FOLDER, dropped_in
from helpers import marks
from standing_in import standing_in

from unroll.base import plugins
from unroll.model.cells import RecurrentCell, gru
from unroll.model.conditioning import windowed
from unroll.model.optimisers import rmsprop
from unroll.sampling.decoding import top_k
from unroll.studies import contracts

BUILT_IN = [
    # The contract test of launchers trains in processes as well, and faster.
    pytest.param(family, name, marks=pytest.mark.slow if name == "processes" else marks(family, name))
    for family in plugins.FAMILIES
    for name in plugins.built_in(family)
]
DROPPED = [
    (family, path.stem.replace("_", "-"))
    for family in plugins.FAMILIES
    for path in sorted((FOLDER / family).glob("*.py"))
]


@pytest.mark.parametrize(("family", "name"), BUILT_IN)
def test_a_plugin_of_unroll_keeps_to_its_familys_rules(family: str, name: str) -> None:
    with standing_in():  # wandb and mlflow
        outcomes = list(contracts.check(family, name))
    assert [outcome for outcome in outcomes if outcome.broken] == []
    assert len(outcomes) == len(contracts.rules(family)) >= 4
    for_gpus = family == "kernels" and name in ("fused", "persistent")
    assert any(outcome.not_here for outcome in outcomes) == for_gpus


@pytest.mark.parametrize(("family", "name"), DROPPED)
def test_a_dropped_in_file_keeps_to_its_familys_rules(family: str, name: str) -> None:
    with dropped_in(family):
        assert [outcome for outcome in contracts.check(family, name) if outcome.broken] == []


def test_a_file_is_dropped_in_for_every_family() -> None:
    assert {family for family, _ in DROPPED} == set(plugins.FAMILIES)


class Forgetful(RecurrentCell):
    """A GRU whose backward leaves out the update gate."""

    GATES, STATES = 3, ("h",)

    def __init__(self, peepholes: str) -> None:
        super().__init__(peepholes)
        self._right = gru.Cell(peepholes)

    def forward(self, *given: Any) -> Any:
        return self._right.forward(*given)

    def backward(self, *given: Any) -> Any:
        d_sums, d_pre_h, d_state = self._right.backward(*given)
        H = d_sums.shape[-1] // 3
        return d_sums.index_fill(-1, torch.arange(H, 2 * H), 0.0), d_pre_h, d_state


class InPlace:
    """Windowed, but its memory is changed by reading."""

    FORGETS = False

    def begin(self, model: Any, k2: int, rows: int, first: Any = None) -> list:
        return [windowed.begin(model, k2, rows, first)]

    def read(self, model: Any, memory: list, ids_B: torch.Tensor) -> Any:
        h_BH, memory[0] = windowed.read(model, memory[0], ids_B)
        return h_BH, memory

    def hidden(self, *given: Any) -> Any:
        return windowed.hidden(*given)


def all_fleets_but_one(jobs: Any, library: Any) -> Iterator[Any]:
    from unroll.sweep import launchers

    for job in jobs[:-1]:
        yield from launchers.work(job, library)


class Chatty:
    """A tracker that prints."""

    def __init__(self, run: Any, lines: Any) -> None: ...

    def add(self, line: Any) -> None:
        print(f"batch {line['batch']}")

    def end(self, state: str) -> None: ...


class Careless(Chatty):
    """A tracker that keeps a file of its own in the run's folder."""

    def __init__(self, run: Any, lines: Any) -> None:
        (run.folder.path / "here.txt").touch()

    def add(self, line: Any) -> None: ...


BAD: list[tuple[str, str, object, str]] = [
    ("cells", "forgetful", SimpleNamespace(Cell=Forgetful), "The gradient of pre_x"),
    ("loss_weights", "nothing", SimpleNamespace(scored=lambda k2: k2, weights=lambda k2, k3: (0.0,) * k3), "all 0"),
    ("state_origins", "both", SimpleNamespace(LEARNS=True, CARRIES=True), "learned or carried, not both"),
    ("conditioning", "in-place", InPlace(), "Reading twice from one memory"),
    (
        "tokens",
        "halves",
        SimpleNamespace(
            counts=lambda pieces: dict.fromkeys(pieces, 1),
            encode=lambda pieces, symbols: (torch.tensor([symbols.index(piece)]).numpy() for piece in pieces),
            decode=lambda ids, symbols: "".join(symbols[i] for i in ids),
        ),
        "In pieces of 1",
    ),
    (
        "optimisers",
        "whole-tensor",
        SimpleNamespace(MOMENTS=(), update=lambda g, moments, rate, count: (g / (1 + g.norm()) * rate, ())),
        "moved otherwise among others",
    ),
    (
        "schedules",
        "secretly-long",
        SimpleNamespace(
            DEPENDS_ON_LENGTH=False, WATCHES=False, factor=lambda batch, batches, history: 1 - batch / (batches + 1)
        ),
        "has another factor in a run of",
    ),
    (
        "decoding",
        "never-best",
        SimpleNamespace(
            **{name: getattr(top_k, name) for name in ("PLACE", "TYPE", "DEFAULT", "HELP", "ALLOWED", "allowed")},
            apply=lambda logits, value: logits.masked_fill(logits == logits.amax(-1, keepdim=True), -torch.inf),
        ),
        "ruled out the likeliest",
    ),
    (
        "kernels",
        "doubled",
        SimpleNamespace(
            supports=lambda network, device: None,
            run=lambda *given: (lambda h, at: (2 * h, at))(*plugins.load("kernels", "reference").run(*given)),
        ),
        "h (1 layers, M = 1, T = 1) is off by",
    ),
    ("launchers", "lazy", SimpleNamespace(run=all_fleets_but_one), "has not ended"),
    ("trackers", "chatty", SimpleNamespace(why_not=lambda: None, begin=Chatty), "It printed 'batch 2"),
    ("trackers", "careless", SimpleNamespace(why_not=lambda: None, begin=Careless), "It changed here.txt in the run's"),
]


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(plugins, "_registered", {})


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(("family", "name", "plugin", "words"), BAD, ids=[name for _, name, *_ in BAD])
def test_what_breaks_a_rule_is_named_with_how(family: str, name: str, plugin: object, words: str) -> None:
    plugins.register(family, name, plugin)
    result = unroll("check", family, name)
    assert result.code == 1
    assert words in result.out
    assert "BROKEN    " in result.out
    assert f"{name} " in result.err


@pytest.mark.usefixtures("registered")
def test_an_optimiser_that_changes_its_moments_in_place_is_named() -> None:
    def update(gradient: torch.Tensor, moments: Any, rate: torch.Tensor, count: Any) -> Any:
        amount, (square,) = rmsprop.update(gradient, moments, rate, count)
        moments[0].copy_(square)
        return amount, moments

    plugins.register("optimisers", "in-place", SimpleNamespace(MOMENTS=("square",), update=update))
    broken = [outcome.broken for outcome in contracts.check("optimisers", "in-place") if outcome.broken]
    assert "update changed what it was given." in broken


def test_the_command_prints_a_line_a_rule_and_ends_with_0() -> None:
    result = unroll("check", "loss-weights", "linear")
    assert result.code == 0
    assert len(result.out.splitlines()) == len(contracts.rules("loss_weights"))
    assert all(line.startswith("kept      ") for line in result.out.splitlines())
    assert "keeps to all rules" in result.err


def test_a_kernel_for_another_device_says_why_it_is_not_checked_here() -> None:
    result = unroll("check", "kernels", "fused")
    assert result.code == 0
    assert "not here  " in result.out


@pytest.mark.parametrize(
    ("family", "name", "words"),
    [("cell", "lstm", "Did you mean cells?"), ("cells", "lstmm", "Did you mean lstm?")],
)
def test_an_unknown_family_or_name_is_refused_in_words(family: str, name: str, words: str) -> None:
    result = unroll("check", family, name)
    assert result.code == 2
    assert words in result.err
