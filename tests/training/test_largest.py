"""Between two evaluations the largest loss of a batch and the largest gradient norm are kept."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers import tiny, tiny_corpus

from unroll.engines.choice import engine_of
from unroll.engines.judged_update import JudgedUpdate
from unroll.experiment.scheme import Scheme
from unroll.runs.checkpoints import Checkpoint
from unroll.runs.folder import RunFolder
from unroll.training.learner import LARGEST, Learner, Since
from unroll.training.loop import train_fleet

BATCHES = 9
LEARNED, CARRIED = (tiny(scheme=Scheme(state=state, k1=4, k2=8), batches=BATCHES) for state in ("learned", "carried"))


def learner_of(kernel: str, symbols: int = 7) -> Learner:
    """Two runs whose vocabularies differ, so that the smaller one is padded."""
    corpora = [tiny_corpus(symbols=symbols), tiny_corpus(symbols=7)]
    return Learner([LEARNED, CARRIED], corpora, engine_of(torch.device("cpu"), kernel))


@pytest.mark.parametrize("kernel", ["reference", "host", "compiled"])
def test_the_largest_loss_and_norm_are_those_of_all_batches(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    every, at_once = learner_of("reference"), learner_of(kernel)
    seen: list[torch.Tensor] = []
    truth = type(every.update).norm_M

    def exactly(update: JudgedUpdate, gradients: dict[str, torch.Tensor]) -> torch.Tensor:
        of_runs = [torch.cat([g[m].flatten().double() for g in gradients.values()]) for m in range(2)]
        seen.append(torch.stack([g.square().sum().sqrt() for g in of_runs]))
        return truth(update, gradients)

    monkeypatch.setattr(type(every.update), "norm_M", exactly)
    losses = []
    for _ in range(BATCHES):
        every.step()
        losses.append(every.take_losses([0, 1]))
    monkeypatch.undo()
    for _ in range(BATCHES):
        at_once.step()
    for m, since in enumerate(at_once.take([0, 1])):
        assert since.largest_loss == pytest.approx(max(step[m] or 0.0 for step in losses), rel=1e-5)
        assert since.largest_gradient_norm == pytest.approx(max(float(norm_M[m]) for norm_M in seen), rel=1e-4)
    assert at_once.take([0, 1]) == [Since(None, None, None)] * 2, "they begin anew"


@pytest.mark.parametrize("kernel", ["reference", "host", "compiled"])
def test_a_padded_run_records_what_it_records_alone(kernel: str) -> None:
    beside, engine = learner_of(kernel, symbols=5), engine_of(torch.device("cpu"), kernel)
    alone = Learner([LEARNED], [tiny_corpus(symbols=5)], engine)
    for _ in range(BATCHES):
        beside.step()
        alone.step()
    assert beside.take([0]) == alone.take([0])


def test_a_run_that_is_killed_and_goes_on_records_the_same(tmp_path: Path) -> None:
    whole = lines_of(tmp_path / "whole", until=None)
    broken = lines_of(tmp_path / "broken", until=6)  # evaluated at 5 and 7
    assert [line["largest_gradient_norm"] for line in broken] == [line["largest_gradient_norm"] for line in whole]
    assert [line["largest_loss"] for line in broken] == [line["largest_loss"] for line in whole]


def test_what_an_older_checkpoint_does_not_say_is_null_and_nothing_else_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = lines_of(tmp_path / "whole", until=None)
    read = RunFolder.good_checkpoints

    def older(folder: RunFolder, *arguments: object, **options: object) -> list[Checkpoint]:
        held = [*read(folder, *arguments, **options)]  # type: ignore[arg-type]
        for checkpoint in held:
            del checkpoint.tensors[LARGEST]  # type: ignore[attr-defined]
        return held

    monkeypatch.setattr(RunFolder, "good_checkpoints", older)
    broken = lines_of(tmp_path / "broken", until=6)
    unknown = [line["batch"] for line in broken if line["largest_loss"] is None]
    assert unknown == [7], "the batches before the kill are not known"
    assert [line["loss"] for line in broken] == [line["loss"] for line in whole]


def lines_of(folder: Path, until: int | None) -> list[dict[str, object]]:
    """The metrics of a run that is left at a batch, as a kill leaves it, and resumed."""
    events = train_fleet([CARRIED], [tiny_corpus()], [folder], save_every=2)
    for event in events:
        if until and event.learner.count == until:
            break
    events.close()
    if until:
        for _ in train_fleet([CARRIED], [tiny_corpus()], [folder], resume=True):
            pass
    return [dict(line) for line in RunFolder(folder).metrics]
