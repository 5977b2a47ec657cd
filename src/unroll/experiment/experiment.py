"""An experiment: one frozen, complete, hashable description of a run, and its text form, run.toml.

`Experiment` is flat, so that Python reads as the command line does; run.toml groups the same names in tables. What
training sees is hashed into `identity`: two experiments with the same identity train the same weights.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from typing import Any, get_args, get_origin, get_type_hints

from unroll.base import plugins, untrusted
from unroll.base.errors import ConfigurationError, did_you_mean
from unroll.experiment.field_help import corpus_name, documented
from unroll.experiment.scheme import LARGEST, Scheme, as_float, parse_training

PRESETS: dict[str, dict[str, Any]] = {"paper": {}, "small": {"hidden": 128, "batches": 2000}}
SEEDS = 2**63
LONGEST_TEXT = 4_096  # characters of a path, or of all patterns
MOST_LAYERS, MOST_UNITS, MOST_ROWS = 1_000, 1_000_000, 1_000_000

Check = tuple[Callable[[Any], bool], str]


def _at_least(low: float) -> Check:
    return lambda v: v >= low, f"at least {low}"


def _up_to(high: int) -> Check:
    """A count that something loops over or makes a table of: bounded before that begins."""
    return lambda v: 1 <= v <= high, f"between 1 and {high:,}"


def _one_of(*names: str) -> Check:
    return lambda v: v in names, f"one of {', '.join(names)}"


def _within(low: float, high: float, words: str) -> Check:
    return lambda v: low <= v < high, words


_RATE: Check = (lambda v: 0 < v <= 1e30, "a positive number, at most 1e30")
_CLIP: Check = (lambda v: 0 < v <= 1e30 or v == math.inf, "a positive number, at most 1e30, or inf for none")
_POINTS = _within(2, 10_001, "between 2 and 10,000")
_SEED = _within(0, SEEDS, "between 0 and 2^63 − 1")


def _setting(table: str, default: Any, check: Check | None = None, trains: bool = True) -> Any:
    """A field of run.toml's `table`; `trains` says whether training sees it, and so whether identity depends on it."""
    return field(default=default, metadata={"table": table, "check": check, "trains": trains})


@dataclass(frozen=True)
class Experiment:
    """Everything that decides a run.

    >>> small = Experiment(corpus="stdlib", scheme=Scheme(k1=40), **PRESETS["small"])
    >>> small.hidden, small.scheme.k1, small.batches
    (128, 40, 2000)
    >>> read_toml(write_toml(small)) == small
    True
    """

    corpus: str = _setting("corpus", "", trains=False)
    title: str = _setting("corpus", "", trains=False)  # the corpus's name, with "(reconstruction)" where it is one
    kind: str = _setting("corpus", "auto")
    encoding: str = _setting("corpus", "utf-8")
    min_count: int = _setting("corpus", 1, _at_least(1))
    ext: tuple[str, ...] = _setting("corpus", (), trains=False)  # of a folder's files; their content is what counts
    exclude: tuple[str, ...] = _setting("corpus", (), trains=False)
    ascii: bool = _setting("corpus", False, trains=False)
    sha256: str = _setting("corpus", "")
    files: int = _setting("corpus", 0, trains=False)  # how many there were when it was read; 0: not recorded
    bytes: int = _setting("corpus", 0, trains=False)  # of these files
    tokens: int = _setting("corpus", 0, trains=False)
    unique: int = _setting("corpus", 0, trains=False)
    split_seed: int = _setting("corpus", 0, _SEED)

    scheme: Scheme = field(default_factory=Scheme, metadata={"table": "scheme"})

    cell: str = _setting("model", "lstm")
    peepholes: str = _setting("model", "paper", _one_of("paper", "lasagne", "off"))
    layers: int = _setting("model", 1, _up_to(MOST_LAYERS))
    hidden: int = _setting("model", 512, _up_to(MOST_UNITS))
    dense: int = _setting("model", 1024, _up_to(MOST_UNITS))
    dropout: float = _setting("model", 0.0, _within(0, 1, "at least 0 and below 1"))
    forget_bias: float = _setting("model", 0.0, (math.isfinite, "a finite number"))

    optimiser: str = _setting("optimiser", "adam")
    learning_rate: float = _setting("optimiser", 0.001, _RATE)

    batches: int = _setting("training", 12800, _at_least(1))
    rows: int = _setting("training", 64, _up_to(MOST_ROWS))
    clip: float = _setting("training", 50.0, _CLIP)
    seed: int = _setting("training", 0, _SEED)
    precision: str = _setting("training", "float32", _one_of("float32", "float64", "tf32", "bfloat16"))
    rotation: str = _setting("training", "random", _one_of("random", "continue"))
    shuffle: bool = _setting("training", False)

    evaluate: str = _setting("evaluation", "own", _one_of("own", "both"), trains=False)
    # For a carried state: also from the states that training carries, beside the zeros that a text starts from.
    evaluate_carried: bool = _setting("evaluation", False, trains=False)
    evaluations: int | None = _setting("evaluation", None, _POINTS, trains=False)  # None: the paper's grid
    test_tokens: int | None = _setting("evaluation", None, _at_least(1), trains=False)

    device: str = _setting("machine", "auto", trains=False)
    kernel: str = _setting("machine", "auto", trains=False)
    threads: int | None = _setting("machine", None, _at_least(1), trains=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "corpus", corpus_name(self.corpus))
        for setting in fields(self):
            if setting.type == "float" and type(getattr(self, setting.name)) is int:
                object.__setattr__(self, setting.name, as_float(getattr(self, setting.name)))
        wrong = problems(self)
        if wrong:
            raise ConfigurationError(*wrong)

    @cached_property
    def identity(self) -> str:
        """The hash of what training sees: not the sampling procedure, paths, device, kernel or threads."""
        seen = {f.name: getattr(self, f.name) for f in fields(self) if f.metadata.get("trains")}
        if self.cell != "lstm":
            seen |= {"peepholes": "off", "forget_bias": 0.0}
        if self.shuffle:
            seen["rotation"] = None
        with suppress(LookupError):  # utf8 and utf-8 are one encoding
            seen["encoding"] = codecs.lookup(self.encoding).name
        s = self.scheme
        reset = s.reset if s.carries else None
        seen["scheme"] = {"state": s.state, "reset": reset, "weights": s.weights, "k1": s.k1, "k2": s.k2}
        return hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()

    @property
    def warnings(self) -> list[str]:
        """What is allowed but should be known."""
        found = []
        if self.scheme.k1 > self.scheme.k2:
            found.append(
                f"k1 = {self.scheme.k1} is above k2 = {self.scheme.k2}: "
                f"{self.scheme.k1 - self.scheme.k2} of every {self.scheme.k1} tokens are never trained on."
            )
        if self.scheme.carries and self.scheme.reset == "never" and self.rotation == "random":
            found.append(
                "reset = never with rotation = random: after each epoch the carried state belongs to other text. "
                "Use --rotation continue to read on where each row stopped."
            )
        for name in ("peepholes", "forget_bias"):
            value = getattr(self, name)
            if self.cell != "lstm" and value != getattr(Experiment, name):
                found.append(f"{name} = {value} does nothing: it is the LSTM's, and the cell is {self.cell}.")
        return found


@cache
def _hints(described: type) -> dict[str, Any]:
    """The types of a class's fields: they are looked at for every experiment, and slow to find."""
    return get_type_hints(described)


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a field's type; True is no number here, though it is one to Python."""
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(isinstance(item, str) for item in value)
    return isinstance(value, hint) and (type(value) is not bool or hint is bool)


def problems(experiment: Experiment) -> list[str]:
    """Everything that is wrong with an experiment, in words."""
    found: list[str | None] = []
    hints = _hints(Experiment)
    right = {f.name: getattr(experiment, f.name) for f in fields(experiment)}
    for name, value in list(right.items()):
        if not fits(value, hints[name]):
            found.append(f"{name} must be {getattr(hints[name], '__name__', hints[name])}. Got {value!r}.")
            del right[name]
    for name, package in (("kind", "tokens"), ("cell", "cells"), ("optimiser", "optimisers"), ("kernel", "kernels")):
        if name in right and not (right[name] == "auto" and name in ("kind", "kernel")):
            found.append(plugins.problem(package, right[name], name))
    for setting in fields(experiment):
        check, value = setting.metadata.get("check"), right.get(setting.name)
        if check and value is not None and not check[0](value):
            table, option = setting.metadata["table"], setting.name.replace("_", "-")
            found.append(
                f"{setting.name} must be {check[1]}. Got {value}. "
                f"Set --{option}, or {setting.name} under [{table}] in run.toml."
            )
        elif check and check is not _SEED and type(value) is int and value >= LARGEST:
            found.append(f"{setting.name} must be below 2^31. Got {value}.")
    for name in ("corpus", "title"):
        if name in right and not _is_text(right[name]):
            found.append(f"{name} must be text that UTF-8 can write. Got {right[name]!r}. Give the file another name.")
    for name in ("corpus", "encoding", "device"):
        if name in right and "\0" in right[name]:
            found.append(f"{name} must not hold a NUL character. Got {right[name]!r}.")
    for name in ("corpus", "title", "ext", "exclude"):
        value = right.get(name, "")
        if len(value if isinstance(value, str) else " ".join(value)) > LONGEST_TEXT:
            found.append(f"{name} must be at most {LONGEST_TEXT:,} characters in all.")
    if right.get("shuffle") and "scheme" in right and experiment.scheme.carries:
        found.append("shuffle needs a learned state: a carried state belongs to the text before it. Drop --shuffle.")
    if right.get("evaluate_carried") and "scheme" in right and not experiment.scheme.carries:
        found.append("evaluate_carried needs a carried state, as in scheme 4. Drop --evaluate-carried.")
    return [problem for problem in found if problem]


def _is_text(text: str) -> bool:
    """A file's name need not be: bytes of it that are no UTF-8 reach Python as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def from_options(options: Mapping[str, Any], scheme: Mapping[str, Any]) -> Experiment:
    """An experiment from options by name, gathering the problems of the scheme and of everything else at once."""
    wrong: list[str] = []
    built: dict[str, Any] = {}
    try:
        built["scheme"] = Scheme(**scheme)
    except ConfigurationError as error:
        wrong += error.problems
    try:
        experiment = Experiment(**options, **built)
    except ConfigurationError as error:
        raise ConfigurationError(*wrong, *error.problems) from None
    if wrong:
        raise ConfigurationError(*wrong)
    return experiment


def to_tables(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """Every setting in its table, as run.toml and JSON have it; None is left out, since TOML has no word for it."""
    tables: dict[str, dict[str, Any]] = {}
    for setting in fields(experiment):
        value = getattr(experiment, setting.name)
        own = {"source" if setting.name == "corpus" else setting.name: value}
        if isinstance(value, Scheme):
            own = {f.name: getattr(value, f.name) for f in fields(value)}
        table = tables.setdefault(setting.metadata["table"], {})
        table |= {name: v for name, v in own.items() if v is not None}
    return tables


def differences(before: Experiment, now: Experiment) -> list[str]:
    """What a run may not change on the way, in words: all that decides what it computes, and what it is scored on.

    Where its text lies and what it computes on may change, and it may get longer.
    """
    free = {f.name for f in fields(Experiment) if f.metadata["table"] == "corpus" and not f.metadata["trains"]}
    free |= {"source", "batches"}
    old, new = ({**tables, "machine": {}} for tables in (to_tables(before), to_tables(now)))
    wrong = [
        f"{name} was {old[table].get(name)}, is {new[table].get(name)}"
        for table in old
        for name in dict.fromkeys((*old[table], *new[table]))
        if name not in free and old[table].get(name) != new[table].get(name)
    ]
    if now.batches < before.batches:
        wrong.append(f"batches may only be raised: it was {before.batches:,}, is {now.batches:,}")
    return wrong


def write_toml(experiment: Experiment) -> str:
    """run.toml."""
    tables = to_tables(experiment).items()
    return "\n\n".join(f"[{t}]\n" + "\n".join(_line(*item) for item in own.items()) for t, own in tables) + "\n"


def _line(name: str, value: Any) -> str:
    if isinstance(value, float):
        return f"{name} = {value!r}"
    # A TOML basic string is a JSON string, but for surrogate pairs and a bare DEL, which TOML does not know.
    return f"{name} = {json.dumps(value, ensure_ascii=False)}".replace("\x7f", "\\u007f")


def read_toml(text: str, where: str = "run.toml") -> Experiment:
    """The experiment that run.toml describes; unknown tables and keys and wrong types are all told at once."""
    try:
        document = untrusted.parse_toml(text)
    except ValueError as error:
        raise ConfigurationError(f"{where} is not valid TOML: {error}.") from None
    return from_tables(document, where)


def from_tables(document: Mapping[str, Any], where: str) -> Experiment:
    """The same, from the document's tables."""
    known: dict[str, dict[str, tuple[str, Any]]] = {}
    hints = _hints(Experiment)
    for setting in fields(Experiment):
        name = "source" if setting.name == "corpus" else setting.name
        known.setdefault(setting.metadata["table"], {})[name] = (setting.name, hints[setting.name])
    known["scheme"] = {name: (name, hint) for name, hint in _hints(Scheme).items()}

    wrong: list[str] = []
    found: dict[str, dict[str, Any]] = {"scheme": {}, "rest": {}}
    for table, content in document.items():
        if table not in known or not isinstance(content, dict):
            wrong.append(f"{where} has no place for {table!r}.{did_you_mean(table, known)}")
            continue
        for key, value in content.items():
            if key not in known[table]:
                wrong.append(f"[{table}] in {where} has no key {key!r}.{did_you_mean(key, known[table])}")
                continue
            name, hint = known[table][key]
            value = tuple(value) if get_origin(hint) is tuple and isinstance(value, list) else value
            value = as_float(value) if float in (hint, *get_args(hint)) and type(value) is int else value
            if fits(value, hint):
                found["scheme" if table == "scheme" else "rest"][name] = value
            else:
                expected = getattr(hint, "__name__", str(hint))
                wrong.append(f"{key} under [{table}] in {where} must be {expected}. Got {value!r}.")
    if wrong:
        raise ConfigurationError(*wrong)
    return from_options(found["rest"], found["scheme"])


def scheme_options(number: int | None, train: str | None, sample: str | None) -> dict[str, Any]:
    """The scheme's fields, from `--scheme` or from `--train` and `--sample`."""
    from unroll.experiment.scheme import SCHEMES

    if number is not None and (train is not None or sample is not None):
        raise ConfigurationError("--scheme already says how to train and to sample: drop it, or --train and --sample.")
    if number is not None and number not in SCHEMES:
        raise ConfigurationError(f"--scheme must be 1, 2, 3 or 4. Got {number}.")
    chosen = SCHEMES[number or 1]
    options = {"loss": chosen.loss, "state": chosen.state, "sample": chosen.sample}
    if train is not None:
        options |= parse_training(train)
    if sample is not None:
        options["sample"] = sample
    elif train is not None and _carries(options["state"]):
        # A model that never learned a first state has none to start windows from: what suits it runs on.
        options["sample"] = "progressive"
    return options


def _carries(state: str) -> bool:
    """Whether a window starts where the row's last one left off; an unknown name is refused elsewhere."""
    known = plugins.problem("state_origins", state, "state") is None
    return known and bool(plugins.load("state_origins", state).CARRIES)


Experiment.__doc__ = documented(Experiment)
Scheme.__doc__ = documented(Scheme)
