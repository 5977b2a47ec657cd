"""A short text of a model as it is in the midst of its training, under its scheme's own procedure.

It goes on from the beginning of the test set, which is read and not repeated: a run's folder holds no text of its
corpus. The same weights give the same text, and nothing of the training's randomness is used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unroll.base.errors import UnrollError
from unroll.corpus.corpus import Corpus
from unroll.experiment.decoding import Decoding
from unroll.experiment.experiment import Experiment
from unroll.model.model import Model
from unroll.sampling.host_loop import Stream, generate

LEAST, MOST = 10, 100  # tokens of a text
SHARE = 100  # between these, one token for so many that an evaluation scores: drawing one by one takes longer
TEMPERATURE = 0.7


def draw(model: Model, experiment: Experiment, corpus: Corpus) -> dict[str, Any] | None:
    """The text, and how it was drawn; None from a model that writes nothing, since it has diverged."""
    k2, procedure = experiment.scheme.k2, experiment.scheme.sample
    test = corpus.test_ids(experiment.split_seed)[: experiment.test_tokens]
    tokens = max(LEAST, min(MOST, len(test) // SHARE))
    stream = Stream(test[:k2].astype(np.int64), tokens, Decoding(TEMPERATURE), experiment.seed)
    try:
        ids = [drawn.ids[0] for drawn in generate(model, [stream], k2, procedure)]
    except UnrollError:
        return None
    text = corpus.vocabulary.decode(np.array(ids))
    return {"procedure": procedure, "temperature": TEMPERATURE, "seed": experiment.seed, "text": text}
