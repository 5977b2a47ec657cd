"""What may be asked of a text, under our own names and under those that text-generation libraries share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

from unroll.base.errors import ConfigurationError
from unroll.experiment import decoding as draws
from unroll.experiment.decoding import Decoding
from unroll.experiment.usual_words import unknown_argument

LENGTH = 500
WHOLE = ("num_return_sequences", "length", "max_new_tokens", "num_beams", "seed")  # what must be whole numbers
TEXTS, BEAMS = 1_000_000, 10_000  # at most: more are a slip of the hand


def whole_number(name: str, value: object) -> str | None:
    """What is wrong with a value that must be one, in words."""
    right = isinstance(value, Integral) and not isinstance(value, bool)
    return None if right else f"{name} must be a whole number. Got {value!r}."


@dataclass(frozen=True)
class Settings:
    """What was asked, as it was said; None is what was not."""

    prompt: str | None = None
    num_return_sequences: int | None = None
    length: int | None = None
    max_new_tokens: int | None = None  # another name for length
    do_sample: bool | None = None  # False is argmax
    num_beams: int | None = None
    seed: int = 0
    stop: str | Sequence[str] = ()
    sample: str | None = None
    drawing: Mapping[str, Any] = field(default_factory=dict)  # what controls of the draw were said, by field

    @classmethod
    def of(cls, prompt: str | None, texts: int | None, arguments: Mapping[str, Any]) -> Settings:
        """Settings from arguments by name, those of the draw among them; a TypeError for a name that none has."""
        drawing = {name: value for name, value in arguments.items() if name in draws.controls()}
        others = {name: value for name, value in arguments.items() if name not in drawing}
        known = [name for name in cls.__dataclass_fields__ if name not in ("prompt", "num_return_sequences", "drawing")]
        for name in others:
            if name not in known:
                all_known = {known_name: known_name for known_name in ("prompt", "num_return_sequences", *known)}
                words = unknown_argument(name, {**all_known, **{control: control for control in draws.controls()}})
                raise TypeError(f"sample takes no argument {name!r}.{words}")
        return cls(prompt, texts, **others, drawing=drawing)

    @property
    def said(self) -> dict[str, Any]:
        """The controls of the draw that were said."""
        return {name: value for name, value in self.drawing.items() if value is not None}

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
        """Whether beams are asked for: one beam is argmax, unless drawing is asked for explicitly."""
        return self.num_beams is not None and not (self.num_beams == 1 and self.do_sample)

    @property
    def decoding(self) -> Decoding:
        """How tokens are drawn; raises where that cannot be."""
        return Decoding(**{**({"temperature": 0.0} if self.do_sample is False else {}), **self.said})

    @property
    def mistaken(self) -> list[str]:
        """What is of another type than it must be."""
        wrong = [whole_number(name, getattr(self, name)) for name in WHOLE if getattr(self, name) is not None]
        for name, value in self.said.items():
            if draws.controls()[name].TYPE is int:
                wrong.append(whole_number(name, value))
            elif isinstance(value, bool) or not isinstance(value, Real):
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
        temperature = self.said.get("temperature")
        if self.do_sample is False and temperature:
            wrong.append(f"do_sample=False is argmax, temperature {temperature} draws. Leave one out.")
        if self.do_sample and temperature == 0:
            wrong.append("do_sample=True draws, temperature 0 is argmax. Leave one out.")
        return wrong + (self._problems_of_beams() if self.searches else [])

    def _problems_of_beams(self) -> list[str]:
        wrong, beams = [], self.num_beams or 0
        if not 1 <= beams <= BEAMS:
            wrong.append(f"The number of beams (--beams, num_beams) must be between 1 and {BEAMS:,}. Got {beams}.")
        said = [name.replace("_", "-") for name in draws.controls() if name in self.said]
        said += ["do_sample"] if self.do_sample else []
        if said:
            wrong.append(
                f"A beam search draws nothing, so it takes no {', no '.join(said)}. Leave out these or the beams."
            )
        if self.texts > max(1, beams):
            wrong.append(f"{beams} beams end in at most {beams} texts. Got {self.texts}. Ask for fewer, or more beams.")
        return wrong
