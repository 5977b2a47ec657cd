"""An experiment: one frozen, complete, hashable description of a run, and its text form, run.toml.

`Experiment` is flat, so that Python reads as the command line does; run.toml groups the same names in tables. What
training sees is hashed into `identity`: two experiments with the same identity train the same weights.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import math
import os
import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, get_args

from unroll.base import plugins, untrusted
from unroll.base.errors import ConfigurationError, did_you_mean
from unroll.experiment import provenance, spelled
from unroll.experiment.field_help import corpus_name, documented
from unroll.experiment.scheme import LARGEST, Scheme, as_float, parse_training
from unroll.experiment.settings import (
    Check,
    at_least,
    fits,
    is_list,
    one_of,
    setting,
    settings_of,
    types_of,
    up_to,
    within,
)
from unroll.experiment.usual_words import answers_usual_words, for_toml

# The values of `small` were chosen by measurement: benchmarks/preset_small.py.
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "small": {
        "scheme": Scheme(k1=100),
        "hidden": 128,
        "dense": 128,
        "rows": 16,
        "learning_rate": 0.008,
        "batches": 6000,
    },
}
SEEDS = 2**63
LONGEST_TEXT = 4_096  # characters of a path, or of all patterns
MOST_LAYERS, MOST_UNITS, MOST_ROWS = 1_000, 1_000_000, 1_000_000

RATE: Check = (lambda v: 0 < v <= 1e30, "a positive number, at most 1e30")
TARGET: Check = (lambda v: 1 <= v <= 1e30, "at least 1, and at most 1e30")
CLIP: Check = (lambda v: 0 < v <= 1e30 or v == math.inf, "a positive number, at most 1e30, or inf for none")
DECAY: Check = (lambda v: 0 <= v <= 1e30, "a number from 0 to 1e30")
POINTS = within(2, 10_001, "between 2 and 10,000")
SEED = within(0, SEEDS, "between 0 and 2^63 − 1")
FINITE: Check = (math.isfinite, "a finite number")
SHARE = within(0, 1, "at least 0 and below 1")
UNITS_OR_NONE: Check = (lambda v: 0 <= v <= MOST_UNITS, f"between 0 (none) and {MOST_UNITS:,}")
DIGEST: Check = (lambda v: re.fullmatch("[0-9a-f]{64}", v) is not None, "64 hexadecimal digits")
SEPARATOR: Check = (lambda v: is_separator(v), "one character that is no line end, or tab")


def is_separator(value: Any) -> bool:
    """Whether this can stand between two fields."""
    return isinstance(value, str) and (value == "tab" or (len(value) == 1 and value not in "\r\n\0"))


@answers_usual_words(lambda: {each.name: f"scheme=Scheme({each.name}=…)" for each in fields(Scheme)})
@dataclass(frozen=True)
class Experiment:
    """Everything that decides a run.

    >>> small = Experiment(corpus="stdlib", **PRESETS["small"])
    >>> small.hidden, small.scheme.k1, small.batches
    (128, 100, 6000)
    >>> read_toml(write_toml(small)) == small
    True
    """

    corpus: str = setting("corpus", "", trains=False, key="source")
    title: str = setting("corpus", "", trains=False)  # the corpus's name, with "(reconstruction)" where it is one
    kind: str = setting("corpus", "auto", "Kind of token: {names} [guessed].", varies=False, family="tokens")
    encoding: str = setting("corpus", "utf-8", "Encoding of the text [{default}].", varies=False)
    min_count: int = setting(
        "corpus", 1, "Symbols rarer than this become one unknown symbol [{default}].", at_least(1), varies=False
    )
    separator: str | None = setting(
        "corpus", None, "With --kind ids: what stands between two fields, as in --separator ',' or tab [white space].",
        SEPARATOR, varies=False, newer=True,
    )  # fmt: skip
    # These settings choose files. A run depends on what the files hold (sha256), so they are no part of its identity.
    ext: tuple[str, ...] = setting(
        "corpus", (), "Read only a folder's files that end in EXT; again for more.",
        trains=False, metavar="EXT",
    )  # fmt: skip
    exclude: tuple[str, ...] = setting(
        "corpus", (), "Leave out a folder's files and folders like this: --exclude 'test*'.",
        trains=False, metavar="PATTERN",
    )  # fmt: skip
    ascii: bool = setting("corpus", False, "Drop every byte above 127.", trains=False)
    sha256: str = setting("corpus", "")
    files: int = setting("corpus", 0, trains=False)  # how many there were when it was read; 0: not recorded
    bytes: int = setting("corpus", 0, trains=False)  # of these files
    tokens: int = setting("corpus", 0, trains=False)
    unique: int = setting("corpus", 0, trains=False)
    split_seed: int = setting("corpus", 0, "Seed of the split into train and test set [{default}].", SEED)
    validation: int | None = setting(
        "corpus", None, "Tokens of a validation set, cut between train and test set [none].", at_least(1),
        varies=False, metavar="TOKENS", newer=True,
    )  # fmt: skip
    validation_file: str | None = setting(
        "corpus", None, "Take the validation set from this file.", trains=False, metavar="FILE", newer=True
    )
    test_file: str | None = setting(
        "corpus", None, "Take the test set from this file; all of CORPUS is trained on.",
        trains=False, metavar="FILE", newer=True,
    )  # fmt: skip
    # Which text is trained on, and when training ends, may depend on what these files hold.
    validation_file_sha256: str | None = setting("corpus", None, newer=True)
    validation_file_bytes: int | None = setting("corpus", None, trains=False, newer=True)
    validation_file_tokens: int | None = setting("corpus", None, trains=False, newer=True)
    test_file_sha256: str | None = setting("corpus", None, newer=True)
    test_file_bytes: int | None = setting("corpus", None, trains=False, newer=True)
    test_file_tokens: int | None = setting("corpus", None, trains=False, newer=True)

    scheme: Scheme = field(default_factory=Scheme)

    cell: str = setting("model", "lstm", "Recurrent cell: {names} [{default}].", family="cells", shared=True)
    peepholes: str = setting(
        "model", "paper", "Peepholes of the LSTM: paper, lasagne or off [{default}].",
        one_of("paper", "lasagne", "off"), shared=True,
    )  # fmt: skip
    layers: int = setting("model", 1, "Recurrent layers [{default}].", up_to(MOST_LAYERS), shared=True)
    hidden: int = setting("model", 512, "Units of each recurrent layer [{default}].", up_to(MOST_UNITS), shared=True)
    dense: int = setting(
        "model", 1024, "Units of the dense layer; 0: softmax directly on h [{default}].", UNITS_OR_NONE, shared=True
    )
    dropout: float = setting(
        "model", 0.0, "Dropout on the inputs of the dense and of the output layer [{default}].", SHARE
    )
    forget_bias: float = setting("model", 0.0, "First value of the LSTM's forget bias [{default}].", FINITE)

    optimiser: str = setting(
        "optimiser", "adam", "Optimiser: {names} [{default}]; sgd,momentum=0.9.",
        family="optimisers", keys=True, shared=True,
    )  # fmt: skip
    learning_rate: float = setting("optimiser", 0.001, "Learning rate [{default}].", RATE)
    schedule: str = setting(
        "optimiser", "constant",
        "How the learning rate moves: {names} [{default}], with keys behind a name: step,every=1000,by=0.5.",
        family="schedules", keys=True, newer=True,
    )  # fmt: skip
    warm_up: int = setting(
        "optimiser", 0, "Batches over which the learning rate rises from 0 [{default}].", at_least(0), newer=True
    )
    weight_decay: float = setting("optimiser", 0.0, "Weight decay of all parameters [{default}].", DECAY, newer=True)
    decay: str = setting(
        "optimiser", "l2", "Where weight decay acts: l2, on the gradient, or decoupled from it [{default}].",
        one_of("l2", "decoupled"), shared=True, newer=True,
    )  # fmt: skip
    clip_norm: float = setting(
        "optimiser", math.inf, "Limit of the norm of all gradients of an update; inf for none [{default}].", CLIP,
        newer=True,
    )  # fmt: skip

    batches: int = setting("training", 12800, "Updates of the weights [{default}].", at_least(1))
    # These end a run earlier: its weights depend on them, and on what they look at (see `identity`).
    patience: int | None = setting(
        "training", None, "End after this many evaluations without a better one [never].", at_least(1),
        varies=False, newer=True,
    )  # fmt: skip
    target: float | None = setting(
        "training", None, "End at the first evaluation with this perplexity or a lower one [none].", TARGET,
        varies=False, metavar="PERPLEXITY", newer=True,
    )  # fmt: skip
    minutes: float | None = setting(
        "training", None, "End after this many minutes of training [none]. No clock ends two runs at one batch.",
        RATE, varies=False, newer=True,
    )  # fmt: skip
    rows: int = setting("training", 64, "Windows in a batch [{default}].", up_to(MOST_ROWS), shared=True)
    clip: float = setting(
        "training", 50.0, "Limit of each gate's gradient, elementwise, at each time step [{default}].", CLIP,
        shared=True,
    )  # fmt: skip
    seed: int = setting("training", 0, "Seed of weights, rotation and dropout [{default}].", SEED)
    precision: str = setting(
        "training", "float32",
        "Precision of products: float32, float64; faster: bfloat16, on a GPU also tf32 [{default}].",
        one_of("float32", "float64", "tf32", "bfloat16"), shared=True,
    )  # fmt: skip
    rotation: str = setting(
        "training", "random", "How the train set moves on after an epoch: random or continue [{default}].",
        one_of("random", "continue"),
    )  # fmt: skip
    shuffle: bool = setting("training", False, "Shuffle the windows of an epoch (learned states only).")
    keep_optimiser: bool = setting("training", False, trains=False)
    # Of a run that began from another's weights: which training they are of, and their own hash; how many symbols were
    # added to the vocabulary; and after how many updates the optimiser goes on, where it did not begin anew.
    parent: str | None = setting("training", None, "", DIGEST, newer=True)
    parent_weights: str | None = setting("training", None, "", DIGEST, newer=True)
    added_symbols: int | None = setting("training", None, "", at_least(0), newer=True)
    updates_before: int | None = setting("training", None, "", at_least(1), shared=True, newer=True)

    evaluate: str = setting(
        "evaluation", "own", "Score during training: own, the scheme's procedure, or both [{default}].",
        one_of("own", "both"), trains=False,
    )  # fmt: skip
    evaluate_carried: bool = setting(
        "evaluation", False, "Score carried states too: start from those that training carries.", trains=False
    )
    evaluations: int | None = setting(
        "evaluation", None, "Number of evaluations, spread logarithmically [the paper's grid].", POINTS, trains=False
    )
    # A perplexity of a part of the test set is another number: it has a column.
    test_tokens: int | None = setting(
        "evaluation", None, "Score only the first tokens of the test set, and of a validation set, this many [all].",
        at_least(1), trains=False, column=True,
    )  # fmt: skip

    device: str = setting("machine", "auto", "Device: auto, cpu, cuda or cuda:N [{default}].", trains=False)
    kernel: str = setting(
        "machine", "auto", "How layers run over time: auto, {names} [{default}].", trains=False, family="kernels"
    )
    threads: int | None = setting("machine", None, "CPU threads [all cores].", at_least(1), trains=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "corpus", corpus_name(self.corpus))
        for name in ("validation_file", "test_file"):
            if isinstance(getattr(self, name), os.PathLike):
                object.__setattr__(self, name, os.fspath(getattr(self, name)))
        for each in fields(self):
            if each.type in ("float", "float | None") and type(getattr(self, each.name)) is int:
                object.__setattr__(self, each.name, as_float(getattr(self, each.name)))
        for each, known in settings_of(type(self)):
            if known.keys and known.family and isinstance(value := getattr(self, each.name), str):
                object.__setattr__(self, each.name, spelled.canonical(known.family, value))
        wrong = problems(self)
        if wrong:
            raise ConfigurationError(*wrong)

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str], **changes: Any) -> Experiment:
        """The experiment that a run.toml describes, a run's or one written by hand; `changes` go on top.

        For a new run: device, kernel and threads of a run's own file are chosen anew. Its text must be the recorded
        one, unless `changes` name another corpus. A scheme's fields (k1, k2) may stand among the changes.
        """
        from unroll.experiment import config_file

        written = config_file.read(path)
        for note in written.notes:
            warnings.warn(note, stacklevel=2)
        return config_file.changed(written, changes)

    @cached_property
    def identity(self) -> str:
        """The hash of what training sees: not the sampling procedure, paths, device, kernel or threads."""
        seen = {
            each.name: getattr(self, each.name)
            for each, known in settings_of(type(self))
            # A run of before a setting existed is what it was.
            if known.trains and not (known.newer and getattr(self, each.name) == each.default)
        }
        if self.cell != "lstm":
            seen |= {"peepholes": "off", "forget_bias": 0.0}
        if self.shuffle:
            seen["rotation"] = None
        if not self.weight_decay:
            seen.pop("decay", None)
        if self._watches:  # which numbers it sees, and when
            seen["watched"] = {
                "evaluations": self.evaluations,
                "tokens": self.test_tokens,
                "sample": self.scheme.sample,
            }
        with suppress(LookupError):  # utf8 and utf-8 are one encoding
            seen["encoding"] = codecs.lookup(self.encoding).name
        s = self.scheme
        if self.patience is not None or self.target is not None:
            # Evaluations decide when it ends: which ones there are, and what they score.
            seen["selection"] = [s.sample, self.evaluations, self.test_tokens]
        reset = s.reset if s.carries else None
        seen["scheme"] = {"state": s.state, "reset": reset, "weights": s.weights, "k1": s.k1, "k2": s.k2}
        return hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()

    @property
    def rate_moves(self) -> bool:
        """Whether the learning rate is not one number for all batches."""
        return self.schedule != "constant" or self.warm_up > 1

    @property
    def depends_on_length(self) -> bool:
        """Whether what a batch does depends on how many batches there will be: then a run cannot be made longer."""
        # Where evaluations are counted, the run's length says when they are.
        return self._of_schedule("DEPENDS_ON_LENGTH") or (self._watches and self.evaluations is not None)

    @property
    def _watches(self) -> bool:
        return self._of_schedule("WATCHES")

    def _of_schedule(self, word: str) -> bool:
        if self.schedule == "constant":  # almost always: nothing has to be imported
            return False
        return bool(getattr(plugins.load("schedules", spelled.name_of(self.schedule)), word))

    @property
    def warnings(self) -> list[str]:
        """What is allowed but should be known."""
        notes = []
        if self.scheme.k1 > self.scheme.k2:
            notes.append(
                f"k1 = {self.scheme.k1} is above k2 = {self.scheme.k2}: "
                f"{self.scheme.k1 - self.scheme.k2} of every {self.scheme.k1} tokens are never trained on."
            )
        if self.scheme.carries and self.scheme.reset == "never" and self.rotation == "random":
            notes.append(
                "reset = never with rotation = random: after each epoch the carried state belongs to other text. "
                "Use --rotation continue to read on where each row stopped."
            )
        for name in ("peepholes", "forget_bias"):
            value = getattr(self, name)
            if self.cell != "lstm" and value != getattr(Experiment, name):
                notes.append(f"{name} = {value} does nothing: it is the LSTM's, and the cell is {self.cell}.")
        if self.warm_up > self.batches:
            notes.append(
                f"warm_up = {self.warm_up} is above batches = {self.batches}: the run ends before the learning rate "
                f"has come to {self.learning_rate:g}."
            )
        if self.decay != "l2" and not self.weight_decay:
            notes.append(f"decay = {self.decay} does nothing without a weight decay. Give --weight-decay, as in 0.01.")
        return notes


def problems(experiment: Experiment) -> list[str]:
    """Everything that is wrong with an experiment, in words."""
    wrong: list[str | None] = []
    hints = types_of(type(experiment))
    right = {each.name: getattr(experiment, each.name) for each in fields(experiment)}
    for name, value in list(right.items()):
        if not fits(value, hints[name]):
            wrong.append(f"{name} must be {getattr(hints[name], '__name__', hints[name])}. Got {value!r}.")
            del right[name]
    settings = settings_of(type(experiment))
    for each, known in settings:
        # A default that no plug-in has is auto: it is resolved later.
        if known.family and each.name in right and not right[each.name] == each.default == "auto":
            if known.keys:
                wrong += spelled.problems(known.family, right[each.name], each.name)
            else:
                wrong.append(plugins.problem(known.family, right[each.name], each.name))
    for each, known in settings:
        check, value = known.check, right.get(each.name)
        if check and value is not None and not check[0](value):
            wrong.append(
                f"{each.name} must be {check[1]}. Got {value}. "
                f"Set --{each.name.replace('_', '-')}, or {each.name} under [{known.table}] in run.toml."
            )
        elif check and check is not SEED and type(value) is int and value >= LARGEST:
            wrong.append(f"{each.name} must be below 2^31. Got {value}.")
    for name in ("corpus", "title", "validation_file", "test_file"):
        if right.get(name) is not None and not _is_text(right[name]):
            wrong.append(f"{name} must be text that UTF-8 can write. Got {right[name]!r}. Give the file another name.")
    for name in ("corpus", "encoding", "device", "validation_file", "test_file"):
        if "\0" in (right.get(name) or ""):
            wrong.append(f"{name} must not hold a NUL character. Got {right[name]!r}.")
    for name in ("corpus", "title", "ext", "exclude", "validation_file", "test_file"):
        value = right.get(name) or ""
        if len(value if isinstance(value, str) else " ".join(value)) > LONGEST_TEXT:
            wrong.append(f"{name} must be at most {LONGEST_TEXT:,} characters in all.")
    if right.get("validation") and right.get("validation_file"):
        wrong.append("validation and validation_file are two validation sets. Drop --validation or --validation-file.")
    if right.get("shuffle") and "scheme" in right and experiment.scheme.carries:
        wrong.append("shuffle needs a learned state: a carried state belongs to the text before it. Drop --shuffle.")
    if right.get("evaluate_carried") and "scheme" in right and not experiment.scheme.carries:
        wrong.append("evaluate_carried needs a carried state, as in scheme 4. Drop --evaluate-carried.")
    return [problem for problem in wrong if problem]


def _is_text(text: str) -> bool:
    """Whether UTF-8 can write it. A file's name may hold other bytes: they reach Python as lone surrogates."""
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
    tables: dict[str, dict[str, Any]] = {"corpus": {}, "scheme": {}}  # these come first in run.toml
    for described in (experiment, experiment.scheme):
        for each, known in settings_of(type(described)):
            table, value = tables.setdefault(known.table, {}), getattr(described, each.name)
            if value is not None:
                table[known.key or each.name] = value
    return tables


def differences(before: Experiment, now: Experiment) -> list[str]:
    """What a run may not change on the way, in words: all that decides what it computes, and what it is scored on.

    Where its text lies and what it computes on may change, and it may get longer.
    """
    settings = settings_of(type(before))
    free = {known.key or each.name for each, known in settings if known.table == "corpus" and not known.trains}
    free |= {"batches", "keep_optimiser"}
    old, new = ({**tables, "machine": {}} for tables in (to_tables(before), to_tables(now)))
    wrong = [
        f"{name} was {old[table].get(name)}, is {new[table].get(name)}"
        for table in old
        for name in dict.fromkeys((*old[table], *new[table]))
        if name not in free and old[table].get(name) != new[table].get(name)
    ]
    if now.batches < before.batches:
        wrong.append(f"batches may only be raised: it was {before.batches:,}, is {now.batches:,}")
    if now.batches > before.batches and now.depends_on_length:
        wrong.append(
            f"batches was {before.batches:,}, is {now.batches:,}, and the schedule {now.schedule} "
            "would have had another learning rate from the first batch on"
        )
    return wrong


def write_toml(experiment: Experiment) -> str:
    """run.toml."""
    tables = {**to_tables(experiment), **provenance.tables(experiment)}.items()
    texts = (f"[{name}]\n" + "\n".join(_line(*item) for item in table.items()) for name, table in tables)
    return "\n\n".join(texts) + "\n"


def _line(name: str, value: Any) -> str:
    if isinstance(value, float):
        return f"{name} = {value!r}"
    # A TOML basic string is a JSON string, but for surrogate pairs and a bare DEL, which TOML does not know.
    return f"{name} = {json.dumps(value, ensure_ascii=False)}".replace("\x7f", "\\u007f")


def read_toml(text: str, where: str = "run.toml") -> Experiment:
    """The experiment that run.toml describes; an error names every unknown table, unknown key and wrong type."""
    try:
        document = untrusted.parse_toml(text)
    except ValueError as error:
        raise ConfigurationError(f"{where} is not valid TOML: {error}.") from None
    return from_tables(document, where)


def from_tables(document: Mapping[str, Any], where: str) -> Experiment:
    """The same, from the document's tables."""
    known: dict[str, dict[str, tuple[str, Any]]] = {}
    for described in (Experiment, Scheme):
        for each, about in settings_of(described):
            entry = each.name, types_of(described)[each.name]
            known.setdefault(about.table, {})[about.key or each.name] = entry
    written = {key: f"{key} under [{table}]" for table, keys in known.items() for key in keys}

    wrong: list[str] = []
    values: dict[str, dict[str, Any]] = {"scheme": {}, "rest": {}}
    for table, content in provenance.without(document, where).items():
        if table not in known or not isinstance(content, dict):
            wrong.append(f"{where} has no place for {table!r}.{did_you_mean(table, known)}")
            continue
        for key, value in content.items():
            if key not in known[table]:
                meant = for_toml(key, written)
                words = f" {meant}" if meant else did_you_mean(key, known[table])
                wrong.append(f"[{table}] in {where} has no key {key!r}.{words}")
                continue
            name, hint = known[table][key]
            value = tuple(value) if is_list(hint) and isinstance(value, list) else value
            value = as_float(value) if float in (hint, *get_args(hint)) and type(value) is int else value
            if fits(value, hint):
                values["scheme" if table == "scheme" else "rest"][name] = value
            else:
                expected = getattr(hint, "__name__", str(hint))
                wrong.append(f"{key} under [{table}] in {where} must be {expected}. Got {value!r}.")
    if wrong:
        raise ConfigurationError(*wrong)
    return from_options(values["rest"], values["scheme"])


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
