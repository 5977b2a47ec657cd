"""The paper's words as numbers, where more than one claim uses them.

All were fixed before any record of the paper's grid existed. Known at that time were 24 runs in float32 (schemes 1 and
4, k1 = 40, four corpora, three seeds: results/parity). They gave the noise between seeds (TIE) and the wild first
batches (WARM_UP, and BUMP of C9), and no other number. A word means the same number in every claim; a number that one
claim alone needs stands beside that claim.
"""

from __future__ import annotations

# "Very close", "almost equal", "same optimum", "no clear difference": within 10 %. The definition of *unstable* says
# that above 1.1 × is another behaviour; so up to there it is the same one.
CLOSE = 1.10

# What can be seen at all in the paper's plots: a line about half a millimetre thick on a panel of four centimetres
# that spans one and a half decades of perplexity covers 5 %. It measures "very slightly", "hardly" and "observable".
VISIBLE = 1.05

# The smallest difference that counts, were all known exactly: means over five k1 that lie closer than half a per cent
# are the same. Seeds differ by more; whether they let a difference be seen is for `certainty` to say.
TIE = 1.005

# "Much", "greatly": at least a factor of two.
MUCH = 2.0

# Evaluation points lie this factor apart: "slower" and "faster" are at least one point on the paper's own grid.
STEP = 12800 ** (1 / 39)

# Before this batch no run is called unstable. Adam's first steps throw the perplexity of nearly every run, under every
# scheme, far above its minimum (up to 22 × at batch 5). By the letter of the definition everything would be unstable,
# and the word would say nothing. The paper speaks of "around 200 batches" and sees its first bump near batch 16.
WARM_UP = 100

# "Initially" and "on the long term" are the left and the right half of the paper's logarithmic axis of batches.
HALF_WAY = 12800**0.5

# "In all plots", "on every data set": each line is one training, so one plot of eight may differ.
ALL_BUT_ONE = 1

CORPUS_NAMES = {"english": "English", "finnish": "Finnish", "linux": "Linux", "music": "Music"}


def percent(ratio: float) -> str:
    """Say a ratio as a difference: 1.034 is `3.4 %`."""
    return f"{100 * (ratio - 1):.1f} %"


def times(ratio: float) -> str:
    """Say a ratio: `1.005 ×`, `13.2 ×`."""
    return f"{ratio:.3f} ×" if 0.5 < ratio < 2 else f"{ratio:.3g} ×"


def listed(values: dict[str, str]) -> str:
    """Say values by data set: `English 3.4 %, Music 12.0 %`."""
    return ", ".join(f"{CORPUS_NAMES.get(name, name)} {value}" for name, value in values.items())
