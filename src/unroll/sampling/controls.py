"""What may be asked of a text, under our own names and under those that text-generation libraries share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TypedDict

from unroll.base.errors import ConfigurationError
from unroll.experiment.decoding import Decoding

LENGTH = 500
# What must be whole numbers, and what numbers of any kind.
WHOLE = ("num_return_sequences", "length", "max_new_tokens", "top_k", "num_beams", "seed")
NUMBERS = ("temperature", "top_p", "min_p")
TEXTS, BEAMS = 1_000_000, 10_000  # at most: more are a slip of the hand


def whole_number(name: str, value: object) -> str | None:
    """What is wrong with a value that must be one, in words."""
    right = isinstance(value, Integral) and not isinstance(value, bool)
    return None if right else f"{name} must be a whole number. Got {value!r}."


class Controls(TypedDict, total=False):
    """The arguments that `sample` and `stream` take by name."""

    length: int | None
    max_new_tokens: int | None  # another name for length
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    do_sample: bool | None  # False is argmax
    num_beams: int | None
    seed: int
    stop: str | Sequence[str]
    sample: str | None


@dataclass(frozen=True)
class Settings:
    """What was asked, as it was said; None is what was not."""

    prompt: str | None = None
    num_return_sequences: int | None = None
    length: int | None = None
    max_new_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    do_sample: bool | None = None
    num_beams: int | None = None
    seed: int = 0
    stop: str | Sequence[str] = ()
    sample: str | None = None

    @property
    def tokens(self) -> int:
        """The length, under either name."""
        said = self.length if self.length is not None else self.max_new_tokens
        return LENGTH if said is None else said

    @property
    def texts(self) -> int:
        """How many."""
        return 1 if self.num_return_sequences is None else self.num_return_sequences

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def searches(self) -> bool:
        """Whether beams are asked for: one beam is argmax, unless drawing is asked for in so many words."""
        return self.num_beams is not None and not (self.num_beams == 1 and self.do_sample)

    @property
    def decoding(self) -> Decoding:
        """How tokens are drawn; raises where that cannot be."""
        usual = 0.0 if self.do_sample is False else 1.0
        temperature = usual if self.temperature is None else self.temperature
        return Decoding(temperature, self.top_k, self.top_p, self.min_p)

    @property
    def mistaken(self) -> list[str]:
        """What is of another type than it must be."""
        wrong = [whole_number(name, getattr(self, name)) for name in WHOLE if getattr(self, name) is not None]
        for name in NUMBERS:
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
                wrong.append(f"{name} must be a number. Got {value!r}.")
        if self.prompt is not None and not isinstance(self.prompt, str):
            wrong.append(f"The prompt must be text. Got {self.prompt!r}.")
        return [problem for problem in wrong if problem]

    @property
    def problems(self) -> list[str]:
        """What of this cannot be, or cannot be meant together."""
        wrong = []
        if None not in (self.length, self.max_new_tokens) and self.length != self.max_new_tokens:
            wrong.append(
                "length and max_new_tokens are one thing under two names. "
                f"Got {self.length} and {self.max_new_tokens}. Leave one out."
            )
        try:
            _ = self.decoding
        except ConfigurationError as error:
            wrong += error.problems
        if not 1 <= self.texts <= TEXTS:
            words = f"The number of texts (--n, num_return_sequences) must be between 1 and {TEXTS:,}"
            wrong.append(f"{words}. Got {self.texts}.")
        if self.do_sample is False and self.temperature:
            wrong.append(f"do_sample=False is argmax, temperature {self.temperature} draws. Leave one out.")
        if self.do_sample and self.temperature == 0:
            wrong.append("do_sample=True draws, temperature 0 is argmax. Leave one out.")
        return wrong + (self._problems_of_beams() if self.searches else [])

    def _problems_of_beams(self) -> list[str]:
        wrong, beams = [], self.num_beams or 0
        if not 1 <= beams <= BEAMS:
            wrong.append(f"The number of beams (--beams, num_beams) must be between 1 and {BEAMS:,}. Got {beams}.")
        drawing = ("temperature", "top_k", "top_p", "min_p")
        said = [name.replace("_", "-") for name in drawing if getattr(self, name) is not None]
        said += ["do_sample"] if self.do_sample else []
        if said:
            wrong.append(
                f"A beam search draws nothing, so it takes no {', no '.join(said)}. Leave out these or the beams."
            )
        if self.texts > max(1, beams):
            wrong.append(f"{beams} beams end in at most {beams} texts. Got {self.texts}. Ask for fewer, or more beams.")
        return wrong
