"""What each run writes under both procedures, with what it copies from its training data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from unroll.model.conditioning import PROCEDURES
from unroll.report import blocks
from unroll.report.blocks import Block
from unroll.report.sections import Look, Part

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unroll.runs.loaded import Run

ABOUT = "a text of each run under both procedures, and what it copies"
TOKENS = 500
TEMPERATURE = 0.7
SEED = 0
COPIED_FROM = 20  # tokens: a stretch this long that stands in the training data is marked
MOST_SORTED = 50_000_000  # tokens of a corpus that copies are looked for in: sorting more takes minutes
TRIED = 24  # tokens drawn to see how long it takes
WORDS = (
    f"{TOKENS} tokens under each procedure. Marked is every stretch of {COPIED_FROM} tokens and more that stands in "
    "the training data word for word. Natural text repeats itself: the table has the same figures for test text."
)
METHOD = (
    f"Drawn at temperature {TEMPERATURE:g} with seed {SEED}, going on from the same k2 tokens of the test set, which "
    "are not shown. Test text is cut into stretches as long as a sample: the longest copy is that of the middle one of "
    "them. Copied stretches are text of the corpus."
)


def estimate(run: Run) -> float:
    """What a few tokens of each procedure take; sorting a large corpus's suffixes for the first time comes on top."""
    from unroll.report.rehearsal import seconds_of
    from unroll.runs.loaded import text_ids

    text_ids(run, None)
    return sum(seconds_of(partial(_drawn, run, procedure, TRIED)) for procedure in PROCEDURES) * TOKENS / TRIED


def look(run: Run) -> dict[str, Any]:
    """A text under each procedure in pieces, copied and not; and how much is copied, beside the test set."""
    from unroll.runs.memorisation import memorised

    drawn = {procedure: _drawn(run, procedure, TOKENS) for procedure in PROCEDURES}
    procedures: dict[str, Any] = {}
    if run.corpus.tokens > MOST_SORTED:
        nothing = {"longest": None, "copied": None}
        for procedure, ids in drawn.items():
            procedures[procedure] = {"pieces": _pieces(run, ids, np.zeros(len(ids), np.int64))} | nothing
        return {"procedures": procedures, "own": run.experiment.scheme.sample, "test": nothing}
    found = memorised(run, list(drawn.values()))
    for (procedure, ids), memory in zip(drawn.items(), found, strict=True):
        procedures[procedure] = {
            "pieces": _pieces(run, ids, memory.matches.lengths),
            "longest": memory.matches.longest,
            "copied": memory.matches.covered(COPIED_FROM),
        }
    test = {"longest": found[0].test_longest, "copied": found[0].test_covered(COPIED_FROM)}
    return {"procedures": procedures, "own": run.experiment.scheme.sample, "test": test}


def _drawn(run: Run, procedure: str, tokens: int) -> NDArray[np.int64]:
    from unroll.experiment.decoding import Decoding
    from unroll.sampling.api import Request, sample_all

    request = Request(length=tokens, decoding=Decoding(temperature=TEMPERATURE), seed=SEED)
    (sample,) = sample_all(run, [request], procedure)
    return np.array(sample.tokens, np.int64)


def _pieces(run: Run, ids: NDArray[np.int64], lengths_N: NDArray[np.int64]) -> list[list[Any]]:
    """The text as [text, tokens of the longest match in it, or 0 where nothing is copied]."""
    from unroll.base.printable import printable
    from unroll.runs.scoring import legible

    until = 0
    inside = []
    for place, length in enumerate(lengths_N.tolist()):
        until = max(until, place + length if length >= COPIED_FROM else 0)
        inside.append(place < until)
    every = zip(legible(run.vocabulary, ids), inside, lengths_N.tolist(), strict=True)
    pieces: list[list[Any]] = []
    for copied, together in groupby(every, key=lambda each: each[1]):
        texts, _, lengths = zip(*together, strict=True)
        pieces.append([printable("".join(texts)), max(lengths) if copied else 0])
    return pieces


def section(looks: Sequence[Look]) -> Part:
    """The texts of a run that the reader chooses, and a table of all."""
    runs = [{"label": each.label} | {name: each.seen[name] for name in ("procedures", "own")} for each in looks]
    block: Block = {"kind": "samples", "runs": runs, "least": COPIED_FROM}
    columns = ["run", *(f"{what}, {name}" for name in PROCEDURES for what in ("longest copy", "copied"))]
    columns += ["longest copy, test text", "copied, test text"]
    rows = [[each.label, *_numbers(each.seen)] for each in looks]
    table = blocks.table("What each run copies", columns, rows)
    return Part(
        "samples",
        "samples",
        "What the runs write, and what of it they copy",
        WORDS,
        [block, table, blocks.folded("How this is computed", METHOD)],
    )


def _numbers(seen: dict[str, Any]) -> list[Any]:
    """Of each procedure and of test text: tokens of the longest copy, and the share that copies cover."""
    every = [*(seen["procedures"][name] for name in PROCEDURES), seen["test"]]
    return [
        value
        for each in every
        for value in (each["longest"], None if each["copied"] is None else f"{100 * each['copied']:.1f}\u00a0%")
    ]
