"""Read first. A scheme says how a recurrent network is trained with truncated backpropagation through time,
and how tokens are drawn from it.

    scheme   training procedure        sampling procedure
    1        multi-loss                windowed
    2        single-loss               windowed
    3        multi-loss                progressive
    4        conditional multi-loss    progressive

A **training procedure** is a point in a plane: which of a window's k2 positions carry a loss (`loss`, `k3`,
`normalise`) × where the window's first state comes from (`state`, `reset`). Every k1 tokens a new window of k2 tokens
begins: k1 is how often the weights are updated, k2 how far back gradients flow.

A **sampling procedure** is a way of conditioning: which state the next token's distribution is computed from.
`windowed` reads the last k2 tokens from the first state, for every token again; `progressive` runs on. Sampling draws
from that distribution; perplexity scores the true token with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from unroll.base import plugins
from unroll.base.errors import ConfigurationError, did_you_mean
from unroll.experiment.settings import setting
from unroll.experiment.usual_words import answers_usual_words

# The paper's names for three points of the plane: (loss, state).
TRAINING_PROCEDURES = {
    "multi-loss": ("equal", "learned"),
    "single-loss": ("last", "learned"),
    "conditional": ("equal", "carried"),
}
DECAYS = ("linear", "exponential")
POINT = ("loss", "state")  # the two axes
LARGEST = 2**31  # of any count: beyond it numbers on a device wrap round
LONGEST = 1_000_000  # tokens of a window, each of which has a weight
RESETS = "epoch, never, or a probability above 0 and at most 1"


def as_float(number: float) -> float:
    """A number as a float; one too large for any float is infinite."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


@answers_usual_words()
@dataclass(frozen=True)
class Scheme:
    """A training procedure × a sampling procedure, with its k1 and k2.

    >>> Scheme(loss="equal", state="learned", sample="windowed", k1=20, k2=100) == SCHEMES[1]
    True
    >>> SCHEMES[4].training
    'conditional'
    >>> Scheme(k2=4, loss="linear").weights
    (0.25, 0.5, 0.75, 1.0)
    """

    # A field without a sentence is said by `--train`.
    loss: str = setting("scheme", "equal")
    state: str = setting("scheme", "learned")
    sample: str = setting(
        "scheme", "windowed", "Sampling procedure: windowed or progressive.", trains=False, varies=True
    )
    k1: int = setting("scheme", 20, "Tokens between two updates [{default}]. Small k1 uses data best.")
    k2: int = setting("scheme", 100, "Tokens that gradients flow back [{default}]; the length of a window.")
    k3: int | None = setting("scheme", None)
    normalise: bool = setting("scheme", False)
    reset: str | float = setting("scheme", "epoch")

    def __post_init__(self) -> None:
        if type(self.reset) is int:
            object.__setattr__(self, "reset", as_float(self.reset))
        wrong = problems(self)
        if wrong:
            raise ConfigurationError(*wrong)

    @property
    def scored(self) -> int:
        """K: how many trailing positions of a window carry a loss."""
        return self.k3 or int(plugins.load("loss_weights", self.loss).scored(self.k2))

    @property
    def weights(self) -> tuple[float, ...]:
        """The loss weights of the K scored positions, first to last."""
        weights: tuple[float, ...] = plugins.load("loss_weights", self.loss).weights(self.k2, self.scored)
        total = math.fsum(weights)  # exactly rounded: weights that sum to 1 stay what they were
        return tuple(w / total for w in weights) if self.normalise else weights

    @property
    def learns(self) -> bool:
        """Whether the first state is trained with the weights."""
        return bool(plugins.load("state_origins", self.state).LEARNS)

    @property
    def carries(self) -> bool:
        """Whether a window starts where the row's last one left off."""
        return bool(plugins.load("state_origins", self.state).CARRIES)

    @property
    def gap(self) -> int:
        """How many tokens between two windows are run forward only, so that a carried state stays right."""
        return max(0, self.k1 - self.k2) if self.carries else 0

    @property
    def number(self) -> int | None:
        """The paper's number for this scheme, whatever k1 and k2; None for one that the paper does not have."""
        # k3 may say in full what the loss implies; with k2 = 1 all weightings are one, and the name decides.
        full = replace(self, k3=None) if self.k3 == replace(self, k3=None).scored else self
        for number, scheme in SCHEMES.items():
            if replace(scheme, k1=self.k1, k2=self.k2) == full:
                return number
        return None

    @property
    def training(self) -> str:
        """The training procedure in the words of `--train`."""
        decay = self.loss if self.loss in DECAYS else None
        points = {point: name for name, point in TRAINING_PROCEDURES.items()}
        point = ("equal" if decay else self.loss, self.state)
        # The paper has no name for the last position alone from a carried state: it is conditional with k3 = 1.
        points["last", "carried"] = "conditional"
        name = points.get(point, f"loss={self.loss},state={self.state}")
        k3 = self.scored if point == ("last", "carried") else self.k3
        keys = [f"k3={k3}"] if k3 else []
        keys += [f"decay={decay}"] if decay and point in points else []
        keys += ["normalise"] if self.normalise else []
        keys += [f"reset={self.reset}"] if self.carries and self.reset != "epoch" else []
        return ",".join([name, *keys])

    def __str__(self) -> str:
        paper = f" (the paper's scheme {self.number})" if self.number else ""
        return f"{self.training} training, {self.sample} sampling{paper}, k1 = {self.k1}, k2 = {self.k2}"


def parse_training(text: str) -> dict[str, Any]:
    """The fields of a Scheme that `NAME[,key=value…]` sets, or `loss=NAME,state=NAME[,key=value…]` for any point.

    >>> parse_training("conditional,k3=10,reset=0.1")
    {'loss': 'equal', 'state': 'carried', 'k3': 10, 'reset': 0.1}
    >>> parse_training("loss=linear,state=learned")
    {'loss': 'linear', 'state': 'learned'}
    """
    name, *keys = text.split(",")
    named = name in TRAINING_PROCEDURES
    if not named and name.partition("=")[0] not in POINT:
        raise ConfigurationError(
            f"A training procedure is one of {', '.join(TRAINING_PROCEDURES)}, with keys behind it as in "
            f"conditional,k3=10,reset=0.1; or any point of the plane, as in loss=linear,state=carried. "
            f"Got {name!r}.{did_you_mean(name, TRAINING_PROCEDURES)}"
        )
    loss, state = TRAINING_PROCEDURES[name if named else "multi-loss"]
    keys = keys if named else [name, *keys]
    fields: dict[str, Any] = {"loss": loss, "state": state}
    wrong = []
    for item in keys:
        key, _, value = item.partition("=")
        try:
            if not item:
                wrong.append(f"--train has a comma with no key behind it: {text!r}.")
            elif [other.partition("=")[0] for other in keys].count(key) > 1:
                wrong.append(f"--train names {key} more than once.")
            elif key == "k3":
                fields["k3"] = int(value)
            elif key in POINT and not named:
                fields[key] = value
            elif key in POINT:
                wrong.append(f"{name} already says the {key}: for another one write loss=NAME,state=NAME.")
            elif key == "decay" and not named:
                wrong.append(f"decay is a loss: where a point is named, write loss={value}.")
            elif key == "decay" and value in DECAYS:
                # Single-loss scores one position, decayed or not: its K must survive the change of weighting.
                fields.update(loss=value, **({"k3": fields.get("k3", 1)} if name == "single-loss" else {}))
            elif key == "normalise" and value in ("", "true", "false"):
                fields["normalise"] = value != "false"
            elif key == "reset":
                fields["reset"] = value if value in ("epoch", "never") else float(value)
            elif key == "decay":
                wrong.append(f"decay must be linear or exponential. Got {value!r}.{did_you_mean(value, DECAYS)}")
            elif key == "normalise":
                wrong.append(f"normalise stands alone, or is true or false. Got {value!r}.")
            else:
                known = ("k3", "decay" if named else "loss", "normalise", "reset")
                wrong.append(f"--train knows the keys {', '.join(known)}. Got {item!r}.{did_you_mean(key, known)}")
        except ValueError:
            wrong.append(f"{key} must be {'an integer' if key == 'k3' else RESETS}. Got {value!r}.")
    if wrong:
        raise ConfigurationError(*dict.fromkeys(wrong))
    return fields


def problems(scheme: Scheme) -> list[str]:
    """Everything that is wrong with a scheme, in words."""
    wrong = [
        plugins.problem("loss_weights", scheme.loss, "loss"),
        plugins.problem("state_origins", scheme.state, "state"),
        plugins.problem("conditioning", scheme.sample, "sample"),
    ]
    if scheme.sample == "windowed-naive":
        wrong.append("windowed-naive is windowed, computed as the paper did: train for windowed, sample with it.")
    for name in ("k1", "k2"):
        value = getattr(scheme, name)
        if not isinstance(value, int) or value < 1:
            wrong.append(f"{name} must be at least 1. Got {value}. Set --{name}, or {name} under [scheme] in run.toml.")
        elif value >= LARGEST:
            wrong.append(f"{name} must be below 2^31. Got {value}. Set --{name}, or {name} under [scheme] in run.toml.")
        elif name == "k2" and value > LONGEST:
            wrong.append(f"k2 must be at most {LONGEST:,}. Got {value}. Set --k2, or k2 under [scheme] in run.toml.")
    if scheme.k3 is not None and not (isinstance(scheme.k3, int) and 1 <= scheme.k3 <= max(scheme.k2, 1)):
        wrong.append(
            f"k3 must be between 1 and k2 = {scheme.k2}. Got {scheme.k3}. Set it as in --train multi-loss,k3=10."
        )
    if isinstance(scheme.reset, str):
        if scheme.reset not in ("epoch", "never"):
            wrong.append(f"reset must be {RESETS}. Got {scheme.reset!r}.")
    elif not (isinstance(scheme.reset, float | int) and 0 < scheme.reset <= 1):
        wrong.append(f"reset must be {RESETS}. Got {scheme.reset}.")
    if not any(wrong[:2]) and scheme.reset != "epoch" and not scheme.carries:
        wrong.append(f"reset = {scheme.reset} needs a carried state. Use --train conditional,reset={scheme.reset}.")
    return [problem for problem in wrong if problem]


SCHEMES = {
    1: Scheme(loss="equal", state="learned", sample="windowed"),
    2: Scheme(loss="last", state="learned", sample="windowed"),
    3: Scheme(loss="equal", state="learned", sample="progressive"),
    4: Scheme(loss="equal", state="carried", sample="progressive"),
}
