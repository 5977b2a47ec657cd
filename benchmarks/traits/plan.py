"""The trainings: the same few on real texts and on the copy source, which answer all questions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path

from unroll import Corpus, Experiment, Scheme
from unroll.corpus.synthetic import Copy
from unroll.engines import devices

# A window that starts from zeros is one whose carried state was reset just before.
TRAININGS = {
    "multi-loss": Scheme(loss="equal", state="learned", sample="windowed"),
    "single-loss": Scheme(loss="last", state="learned", sample="windowed"),
    "conditional": Scheme(loss="equal", state="carried", sample="progressive"),
    "zero start": Scheme(loss="equal", state="carried", reset=1.0, sample="windowed"),
}
OF_SCHEMES = ("multi-loss", "single-loss", "conditional")
COPY = "copy"
SYMBOLS, NOISE = 8, 8
ROW = 20  # windows in a row of the copy source's texts


@dataclass(frozen=True)
class Settings:
    """Everything that a record depends on."""

    precision: str = "float32"
    batches: int = 12800
    corpora: tuple[str, ...] = ("english", "music")
    hidden: int = 512
    k2: int = 100
    copy_hidden: int = 128
    copy_k2: tuple[int, ...] = (20, 100)
    copy_tokens: int = 2_000_000
    copy_rows: int = 128  # of the test text
    seeds: tuple[int, ...] = (0, 1, 2)
    rows: int = 64
    dense: int = 1024
    places: int = 256

    @property
    def reach(self) -> int:
        """How far positions and distances go."""
        return 3 * self.k2


@dataclass(frozen=True)
class Job:
    """One training."""

    corpus: str
    training: str
    seed: int
    k2: int
    hidden: int

    @property
    def scheme(self) -> Scheme:
        """k1 is two fifths of k2: the paper's 40 for its 100."""
        asked = TRAININGS[self.training]
        k1 = max(1, 2 * self.k2 // 5)
        return Scheme(asked.loss, asked.state, asked.sample, k1, self.k2, reset=asked.reset)

    def experiment(self, settings: Settings, corpus: Corpus, device: str) -> Experiment:
        """The complete experiment."""
        asked = Experiment(
            scheme=self.scheme,
            hidden=self.hidden,
            dense=settings.dense,
            rows=settings.rows,
            seed=self.seed,
            batches=settings.batches,
            precision=settings.precision,
            device=device,
            # Answers come from another text, so the perplexity curve of the copy source may be rough.
            test_tokens=ROW * self.k2 if self.corpus == COPY else None,
        )
        return devices.resolve(corpus.described_in(asked))


def jobs(settings: Settings) -> list[Job]:
    """Every training that is needed. The texts alone ask where a first state comes from."""
    s = settings
    texts = [Job(*run, s.k2, s.hidden) for run in product(s.corpora, TRAININGS, s.seeds)]
    return texts + [Job(COPY, *run, k2, s.copy_hidden) for k2 in s.copy_k2 for run in product(OF_SCHEMES, s.seeds)]


def copy_source(k2: int, longest: int | None = None) -> Copy:
    """Gaps from 1 on; by default the farthest symbol stands one and a half windows before its answer."""
    return Copy(SYMBOLS, NOISE, (1, max(2, 3 * k2 // 2 - 2) if longest is None else longest))


def copy_text(k2: int, tokens: int) -> str:
    """The copy source's train text: stretches of short gaps, of middling ones, and of all, in turn.

    Few gaps of a uniform 1.5·k2 are short. With k2 = 60 and γ = 64, multi-loss on those alone had not begun to copy
    after 2,500 batches; on this mixture it had after 600. Which stretch it is says nothing about the symbols.
    """
    stretch = ROW * k2
    longest = (max(2, k2 // 10), max(2, k2 // 2), None)
    parts = (copy_source(k2, longest[i % 3]).text(stretch, seed=1 + i) for i in range(-(-tokens // stretch)))
    return "".join(parts)[:tokens]


def corpora(settings: Settings, data: Path) -> dict[tuple[str, int], Corpus]:
    """The texts to train on, by name and k2."""
    texts = {(name, settings.k2): Corpus.open(str(data / f"{name}.txt")) for name in settings.corpora}
    return texts | {
        (COPY, k2): Corpus.from_text(copy_text(k2, settings.copy_tokens), f"copy source for k2 = {k2}")
        for k2 in settings.copy_k2
    }
