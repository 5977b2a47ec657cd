"""The paper's table: milliseconds for one training batch and for one sampled token, on a K40c with k1 = 40."""

from __future__ import annotations

from unroll.paper.figures import ARCHITECTURES

DEVICE = "K40c"
# By scheme, in the order of ARCHITECTURES: (a training batch, a sampled token).
MILLISECONDS = {
    1: ((60.5, 7.0), (138.8, 21.7), (106.5, 13.7), (267.4, 43.3)),
    2: ((46.5, 7.0), (114.6, 21.7), (93.1, 13.7), (245.8, 43.3)),
    3: ((60.5, 0.7), (138.8, 1.2), (106.5, 1.1), (267.5, 2.2)),
    4: ((60.6, 0.7), (138.9, 1.2), (106.6, 1.1), (267.6, 2.2)),
}


def facts() -> dict[str, object]:
    """For the page."""
    return {"device": DEVICE, "shapes": ARCHITECTURES, "ms": MILLISECONDS}
