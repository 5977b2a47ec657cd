"""A text to score, read as the run's own corpus was; and its score as one JSON object."""

from __future__ import annotations

import json
import math
import os
import sys
from array import array
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unroll.base.errors import CorpusError

if TYPE_CHECKING:
    from unroll.corpus.corpus import Corpus
    from unroll.corpus.tokens import Ids
    from unroll.runs.loaded import Run
    from unroll.runs.scoring import Surprisal, Total

ALTERNATIVES = 5
PART = 4096  # log-probabilities written at a time


def read(run: Run, file: str) -> Corpus:
    """Read the text as the run's own corpus was read."""
    from unroll.corpus.corpus import Corpus
    from unroll.runs.loaded import read_as

    path = Path(file)
    if file != "-" and path.is_dir():
        raise CorpusError(f"{file} is a folder; a text to score is one file. For a folder use unroll eval --corpus.")
    if file != "-" and not path.exists():
        raise CorpusError(f"No such file: {file}. To read standard input write -.")
    if file != "-" and path.is_file():
        if not path.stat().st_size:
            raise CorpusError(f"{file} is empty: there is nothing to score.")
        # A path in full is never taken for the data set of that name.
        return read_as(run, os.path.abspath(file))
    name = "standard input" if file == "-" else file
    content = sys.stdin.buffer.read() if file == "-" else path.read_bytes()
    if not content:
        raise CorpusError(f"{name} is empty: there is nothing to score.")
    e = run.experiment
    return Corpus.from_bytes(content, name, e.kind, e.encoding, e.ascii, e.separator)


class Scoring:
    """One text under one run: its tokens as they are scored, and their total."""

    def __init__(self, run: Run, text: Corpus, sample: str | None, name: str, unknown: str = "refuse") -> None:
        import numpy as np

        from unroll.runs.known_text import known_text
        from unroll.runs.loaded import procedure_of
        from unroll.runs.scoring import legible

        self.run, self.text, self.name = run, text, name
        self.procedure = procedure_of(run, sample)
        self.read = known_text(run.vocabulary, text.ids, text.vocabulary, unknown)
        self.ids: Ids = self.read.ids
        self.first = next(legible(text.vocabulary, self.read.own_ids[:1]), "")
        self.logprobs = array("d")
        known = set(run.vocabulary.symbols)
        foreign = [i for i, symbol in enumerate(text.vocabulary.symbols) if symbol not in known]
        self.unknown = int(np.isin(self.read.own_ids, foreign).sum()) if foreign else 0

    def rehearse(self, tokens: int) -> None:
        """Score the first tokens for the clock alone."""
        from unroll.runs.scoring import scored_chunks

        for _ in scored_chunks(self.run, self.ids[:tokens], self.procedure):
            pass

    def each(self) -> Iterator[Surprisal]:
        """Every token but the first."""
        from unroll.runs.scoring import each_surprisal, legible, legible_names

        texts = legible(self.text.vocabulary, self.read.own_ids)
        names = legible_names(self.run.vocabulary)
        for token in each_surprisal(self.run, self.ids, texts, names, ALTERNATIVES, self.procedure):
            self.logprobs.append(token.logprob)
            yield token

    @cached_property
    def total(self) -> Total:
        """The whole text's total; it is scored now unless `each` has scored it."""
        from unroll.runs.scoring import Total, predicted_bytes, scored_chunks

        if not self.logprobs:
            for chunk in scored_chunks(self.run, self.ids, self.procedure):
                self.logprobs.frombytes((-chunk.nats_n).tobytes())
        nats = 0.0 - math.fsum(self.logprobs)
        return Total(nats, len(self.logprobs), predicted_bytes(self.text.vocabulary, self.read.own_ids))

    @property
    def heading(self) -> dict[str, str]:
        """The text, the run and the procedure, in words."""
        skipped = f", {self.read.tokens_skipped:,} more left out" if self.read.skipped else ""
        return {
            "text": f"{self.name}: {len(self.ids):,} tokens ({self.run.vocabulary.kind}){skipped}",
            "run": f"{self.run.path}: {self.run.experiment.title or 'text'}, {self.run.experiment.scheme}",
            "procedure": self.procedure,
        }

    def as_json(self, tokens: bool) -> Iterator[str]:
        """One JSON object, in pieces."""
        yield f'{{"procedure": {json.dumps(self.procedure)}, "first": {json.dumps(self.first)}, '
        if tokens:
            yield '"surprisals": ['
            for index, token in enumerate(self.each()):
                yield (", " if index else "") + json.dumps(_fields(token))
            yield "], "
        total = self.total
        yield '"logprobs": ['
        for begin in range(0, len(self.logprobs), PART):
            part = json.dumps(self.logprobs[begin : begin + PART].tolist())
            yield (", " if begin else "") + part[1:-1]
        facts = {
            "tokens": total.tokens,
            "bytes": total.bytes,
            "unknown": self.unknown,
            "skipped": self.read.tokens_skipped,
        }
        names = ("log_probability", "perplexity", "bits_per_token", "bits_per_byte")
        yield "], " + json.dumps(facts | {name: _number(getattr(total, name)) for name in names})[1:]


def _fields(token: Surprisal) -> dict[str, Any]:
    likeliest = [{"text": a.symbol, "probability": a.probability} for a in token.alternatives]
    facts = {"text": token.symbol, "bits": token.bits, "logprob": token.logprob, "rank": token.rank}
    return facts | {"alternatives": likeliest}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
