"""A run can end before its last batch, for a reason: the path that a new stop condition takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import check_identical

from unroll import Corpus, Experiment, Scheme
from unroll.corpus.synthetic import Markov
from unroll.runs.folder import RunFolder
from unroll.training.bookkeeping import Bookkeeping
from unroll.training.events import Event
from unroll.training.loop import train_fleet

ENDS, BATCHES, REASON = 2, 6, "Its perplexity was low enough."


@pytest.fixture
def condition(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run of a fleet ends after batch 2."""
    usual = Bookkeeping.evaluate_due

    def evaluate_due(books: Bookkeeping) -> Iterator[Event]:
        yield from usual(books)
        if books.learner.count == ENDS and not books.done[0]:
            yield books._end(0, ENDS, REASON)

    monkeypatch.setattr(Bookkeeping, "evaluate_due", evaluate_due)


@pytest.mark.parametrize("kernel", ["auto", "stacked"])
def test_a_run_that_ends_early_keeps_its_weights_and_its_slot_while_the_others_go_on(
    kernel: str, condition: None, tmp_path: Path
) -> None:
    scheme = Scheme(k1=5, k2=10)
    runs = [
        Experiment(scheme=scheme, hidden=8, dense=12, rows=4, batches=BATCHES, seed=seed, kernel=kernel, threads=1)
        for seed in (0, 1)
    ]
    text = Corpus.from_text(Markov().text(3000))
    outs = [tmp_path / "early", tmp_path / "whole"]
    slots = [event.learner.weights(0) for event in train_fleet(runs, [text, text], outs)]
    early, whole = map(RunFolder, outs)
    assert {key: early.status[key] for key in ("state", "batch", "reason")} == {
        "state": "stopped", "batch": ENDS, "reason": REASON,
    }  # fmt: skip
    assert [line["batch"] for line in early.metrics][-1] == ENDS
    assert (whole.status["state"], whole.status["batch"]) == ("finished", BATCHES)
    check_identical(slots[-1], early.weights()[0])
