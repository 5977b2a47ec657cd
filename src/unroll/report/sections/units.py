"""Hidden units by how selective they are, and a text coloured by the one that the reader chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unroll.report import blocks
from unroll.report.blocks import Block
from unroll.report.sections import Look, Part

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from unroll.runs.loaded import Run

ABOUT = "the most selective hidden units, on test text; the page then holds that text"
MEASURED = 3_000  # tokens of the test set that selectivity is measured over
SHOWN = 800  # of these are on the page
MOST = 12  # units of a run
TRIED = 48  # tokens read to see how long it takes
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"  # an activation is one of these on the page
MIDDLE = 31  # the digit of 0
WORDS = (
    "Choose a unit: the text is coloured by its activation after each token. A unit is selective if its activation "
    "follows one feature of the text. This part of the page holds text of the corpus."
)
METHOD = (
    "A unit's selectivity is the share of the variance of its activation that one feature explains, corrected for the "
    "number of the feature's categories: the class of the token, that of the next one, the place in the line or in the "
    "word, the indentation, whether brackets or quotes are open; the one that explains most counts. It is measured "
    f"over the first {MEASURED:,} tokens of the test set as the state runs on. What chance may give is the highest "
    "value of any unit when the features are turned against the text, by 19 amounts."
)


def estimate(run: Run) -> float:
    """A step for each token."""
    from unroll.report.rehearsal import seconds_of
    from unroll.runs.hidden_states import states_after
    from unroll.runs.loaded import text_ids

    ids = text_ids(run, None)
    return seconds_of(lambda: states_after(run, ids[:TRIED])) * min(len(ids), MEASURED) / TRIED


def look(run: Run) -> dict[str, Any]:
    """The most selective units, and their activations along the text."""
    from unroll.base.printable import pictured
    from unroll.runs.hidden_states import states_after
    from unroll.runs.loaded import text_ids
    from unroll.runs.scoring import legible
    from unroll.runs.selectivity import ranked

    ids = text_ids(run, None)[:MEASURED]
    symbols = list(legible(run.vocabulary, ids))
    h_TLH = states_after(run, ids).h
    ranking = ranked(h_TLH, symbols)
    units = []
    for each in ranking.units[:MOST]:
        h_T = h_TLH[:SHOWN, each.layer, each.unit]
        largest = float(abs(h_T).max()) or 1.0
        units.append(
            {
                "name": f"layer {each.layer + 1}, unit {each.unit + 1}",
                "selectivity": round(each.selectivity, 3),
                "feature": each.feature,
                "highest": pictured(each.highest),
                "lowest": pictured(each.lowest),
                "largest": float(f"{largest:.3g}"),
                "activation": _digits(h_T / largest),
            }
        )
    return {
        "tokens": [pictured(symbol) for symbol in symbols[:SHOWN]],
        "units": units,
        "chance": round(ranking.chance, 3),
        "of": len(ranking.units),
        "title": run.experiment.title or "text",
    }


def _digits(relative_T: NDArray[np.float32]) -> str:
    """Values from −1 to 1, a letter each."""
    return "".join(DIGITS[MIDDLE + round(float(value) * MIDDLE)] for value in relative_T)


def section(looks: Sequence[Look]) -> Part:
    """Each text once."""
    texts: list[list[str]] = []
    runs = []
    for each in looks:
        tokens = each.seen["tokens"]
        if tokens not in texts:
            texts.append(tokens)
        kept = {name: each.seen[name] for name in ("units", "chance", "of", "title")}
        runs.append({"label": each.label, "text": texts.index(tokens)} | kept)
    block: Block = {"kind": "units", "texts": texts, "runs": runs, "digits": DIGITS, "middle": MIDDLE}
    return Part(
        "units", "units", "What single units follow", WORDS, [block, blocks.folded("How this is computed", METHOD)]
    )
