"""A stretch of the test set, coloured by how surprising each token was to each run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unroll.report.blocks import Block
from unroll.report.sections import Look, Part

if TYPE_CHECKING:
    from unroll.runs.loaded import Run

ABOUT = "test text coloured by surprise; the page then holds that text"
TOKENS = 1_000
ALTERNATIVES = 3
STEPS = 10  # to a bit: how exactly a surprise is kept
MOST_BITS = 40.0
WORDS = (
    f"The first {TOKENS:,} tokens of the test set, read under each scheme's own procedure from its first state on. "
    "Choose two runs; a token shows what both thought. This part of the page holds text of the corpus."
)


def estimate(run: Run) -> float:
    """A window for each token, at most."""
    from unroll.report.rehearsal import seconds_of_windows

    return seconds_of_windows(run, TOKENS)


def look(run: Run) -> dict[str, Any]:
    """The text's tokens, the bits of each after the first, and what was likeliest in its place."""
    from unroll.base.printable import pictured
    from unroll.runs import scoring
    from unroll.runs.loaded import procedure_of, text_ids

    ids = text_ids(run, None)[:TOKENS]
    names = scoring.legible_names(run.vocabulary)
    bits: list[int] = []
    likeliest: list[int] = []
    used: dict[int, int] = {}
    for chunk in scoring.scored_chunks(run, ids, None, ALTERNATIVES):
        bits += [round(STEPS * min(nats / math.log(2), MOST_BITS)) for nats in chunk.nats_n.tolist()]
        for indices, odds in zip(chunk.likeliest_nA.tolist(), chunk.probabilities_nA.tolist(), strict=True):
            for index, share in zip(indices, odds, strict=True):
                likeliest += [used.setdefault(index, len(used)), round(1000 * share)]
    return {
        "tokens": [pictured(text) for text in scoring.legible(run.vocabulary, ids)],
        "procedure": procedure_of(run, None),
        "bits": bits,
        "likeliest": likeliest,
        "alternatives": min(ALTERNATIVES, len(names)),
        "names": [pictured(names[index]) for index in used],
        "title": run.experiment.title or "text",
    }


def section(looks: Sequence[Look]) -> Part:
    """Each text once; runs that read the same text can be compared token by token."""
    texts: list[list[str]] = []
    runs = []
    for each in looks:
        tokens = each.seen["tokens"]
        if tokens not in texts:
            texts.append(tokens)
        kept = {name: each.seen[name] for name in ("procedure", "bits", "likeliest", "alternatives", "names", "title")}
        runs.append({"label": each.label, "text": texts.index(tokens)} | kept)
    block: Block = {"kind": "texts", "texts": texts, "runs": runs, "steps": STEPS}
    return Part("text", "text", "Test text, coloured by surprise", WORDS, [block])
