"""What other trainers call our settings: `--lr`, `batch_size=`, `seq_length` in a configuration.

The table is read at three doors: an unknown option, an unknown argument in Python, an unknown key of run.toml. A row
answers only where one of the settings that it points to is known at that door.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from unroll.base.errors import did_you_mean
from unroll.base.wording import in_words, shell_words

Described = TypeVar("Described")


@dataclass(frozen=True)
class Row:
    """Words of others, and the setting that they mean."""

    others: str  # words, with spaces between them; dashes and underscores do not matter
    ours: str  # names of settings, with spaces between them: the first that is known at a door
    says: str = ""  # what the setting is, in words; options in them are turned into the door's
    lacks: bool = False  # nothing here is the same: `says` has what to do instead


TABLE = (
    # training
    Row("lr rate base-lr init-lr step-size learn-rate", "learning_rate"),
    Row("optimizer optim opt solver", "optimiser"),
    Row("momentum-decay sgd-momentum", "momentum"),
    Row("wd l2 l2-reg l2-decay weight-regularization weight-penalty", "weight_decay"),
    Row(
        "lr-decay lr-decay-rate lr-schedule lr-scheduler scheduler learning-rate-decay decay-rate decay-lr gamma",
        "schedule",
        "how the learning rate changes on the way.",
    ),
    Row("warmup warmup-steps warmup-iters warmup-ratio num-warmup-steps", "warm_up warmup"),
    Row(
        "grad-clip clip-grad clip-gradient clip-gradients gradient-clip gradient-clipping grad-norm max-grad-norm "
        "clip-grad-norm gradient-clip-val clipping max-norm",
        "clip_norm",
        "it limits the norm of the whole gradient. --clip limits each gate's gradient at each time step.",
    ),
    Row(
        "grad-clip clip-grad clip-gradient clip-gradients gradient-clip gradient-clipping grad-norm max-grad-norm "
        "clip-grad-norm gradient-clip-val clipping clip-norm max-norm",
        "clip",
        "it limits each gate's gradient, elementwise, at each time step; not the norm of all of it.",
    ),
    Row(
        "batch-size batch bs minibatch minibatch-size train-batch-size per-device-train-batch-size num-rows",
        "rows",
        "windows in a batch. --batches is the number of updates.",
    ),
    Row(
        "epochs epoch num-epochs n-epochs max-epochs num-train-epochs nb-epoch total-epochs train-epochs",
        "batches",
        "give --batches, the number of updates. An epoch is about (N / rows − k2) / k1 of them, for a train set "
        "of N tokens: 777 for a million tokens at the defaults.",
        lacks=True,
    ),
    Row(
        "iters iterations max-iters num-iters num-iterations steps max-steps train-steps total-steps updates",
        "batches",
        "updates of the weights.",
    ),
    Row(
        "seq-length seq-len sequence-length sequence-len seqlen bptt bptt-len bptt-length tbptt block-size "
        "context-length context-size ctx-len window window-size window-length unroll unroll-length num-steps "
        "time-steps tbptt-length truncation max-seq-length max-seq-len",
        "k2",
        "tokens that gradients flow back, the length of a window. --k1 is how many tokens pass between two updates; "
        "trainers that cut a text into pieces have both alike.",
    ),
    Row("stride hop hop-length shift window-shift", "k1", "tokens between two updates."),
    Row("early-stopping early-stop stop-patience early-stopping-patience", "patience"),
    Row("val-frac valid-frac val-split validation-split val-size valid-size dev-size val-fraction", "validation"),
    Row("val-data valid-data val-file valid-file dev-file validation-data", "validation_file"),
    Row("test-data", "test_file"),
    Row(
        "init-from init-weights pretrained pretrained-model fine-tune finetune warm-start base-model transfer",
        "from",
        "a run whose weights this one starts from.",
    ),
    Row("resume-from continue continue-from restore restore-from load-checkpoint checkpoint ckpt", "resume"),
    Row("random-seed rng-seed manual-seed torch-seed random-state", "seed"),
    Row("dtype fp16 bf16 amp half mixed-precision float16 precision-type", "precision"),
    Row(
        "eval-every eval-interval eval-val-every eval-freq eval-steps val-every val-interval",
        "evaluations",
        "how many there are, spread over the run; it is not how many batches lie between two.",
    ),
    Row("save-interval save-freq save-steps checkpoint-every checkpoint-interval checkpoint-steps", "save_every"),
    Row("config-file cfg configuration conf yaml", "config"),
    # the model
    Row(
        "rnn-size hidden-size hidden-dim hidden-units hidden-layer-size hid-size num-units num-hidden n-hidden n-hid "
        "units lstm-size lstm-units cell-size state-size layer-size d-model width n-units dim",
        "hidden",
        "units of each recurrent layer.",
    ),
    Row("num-layers n-layers n-layer nb-layers depth rnn-layers", "layers"),
    Row("model model-type rnn-type cell-type rnn rnn-cell arch architecture lstm gru", "cell"),
    Row("drop drop-rate drop-prob dropout-rate dropout-prob dropout-p p-drop", "dropout"),
    Row("keep-prob keep-rate", "dropout", "it is the share that is dropped: 1 less the share that is kept."),
    Row(
        "emsize embed-size embedding-size embedding-dim embed-dim embed emb-size emb-dim n-embd",
        "hidden",
        "symbols enter one-hot, so each has a row of the first layer's weights. --hidden is that layer's width.",
        lacks=True,
    ),
    # the corpus
    Row(
        "data data-dir data-path data-file dataset input input-file text text-file train-file train-data train-path",
        "corpus source",
    ),
    Row("tokenizer tokeniser token-type token-level level tokens tokenization", "kind"),
    Row("min-freq min-frequency vocab-min-freq threshold", "min_count"),
    Row("delimiter sep", "separator"),
    # sampling
    Row("temp", "temperature"),
    Row("k", "top_k"),
    Row("p nucleus", "top_p"),
    Row("num-samples n-samples samples num-texts count num-return-sequences num-return", "n num_return_sequences"),
    Row(
        "max-length max-len max-new-tokens max-tokens tokens num-tokens n-tokens num-chars n-chars len size "
        "sample-length gen-length generate-length",
        "length",
        "tokens to draw.",
    ),
    Row("prime prime-text start start-text start-string context input-text seed-text seed-string text", "prompt"),
    Row("beam beam-size beam-width num-beams", "beams num_beams"),
    Row("eos stop-string stop-strings stop-sequence until", "stop"),
    # everywhere
    Row("gpu gpus gpu-id gpuid use-gpu cuda use-cuda no-cuda cpu accelerator", "device", "auto, cpu, cuda or cuda:N."),
    Row("num-threads n-threads workers num-workers n-jobs jobs num-cpus cores", "threads"),
    Row("backend implementation", "kernel"),
    Row(
        "output output-dir out-dir save save-dir save-path checkpoint-dir ckpt-dir log-dir run-dir model-dir",
        "out",
    ),
    Row("silent no-progress", "quiet"),
)


def for_shell(word: str, known: Mapping[str, str]) -> str:
    """What to say of an unknown option. `known` has the command's settings, each as a user writes it; "" is nothing.

    >>> for_shell("--batch-size", {"rows": "--rows"})
    '--batch-size is --rows here: windows in a batch. --batches is the number of updates.'
    """
    return _answer(word, known)


def for_python(word: str, known: Mapping[str, str]) -> str:
    """What to say of an unknown argument; `known` as for a shell.

    >>> for_python("epochs", {"batches": "batches"})[:80]
    'There is no epochs here: give batches=, the number of updates. An epoch is about'
    """
    with shell_words(False):
        return in_words(_answer(word, known))


def for_toml(word: str, known: Mapping[str, str]) -> str:
    """What to say of an unknown key of run.toml; `known` as for a shell.

    >>> for_toml("lr", {"learning_rate": "learning_rate under [optimiser]"})
    'lr is learning_rate under [optimiser] here.'
    """
    return re.sub(r"--([a-z][a-z0-9-]*)", lambda said: said[1].replace("-", "_"), _answer(word, known))


def _answer(word: str, known: Mapping[str, str]) -> str:
    bare = _bare(word)
    for name, written in known.items():  # our own word, spelt or placed otherwise
        if _bare(name) == bare:
            return f"It is written {written}."
    for row in TABLE:
        ours = next((name for name in row.ours.split() if name in known), None)
        if ours is None or bare not in map(_bare, row.others.split()):
            continue
        if row.lacks:
            return f"There is no {word} here: {row.says}"
        return f"{word} is {known[ours]} here{f': {row.says}' if row.says else '.'}"
    return ""


def _bare(word: str) -> str:
    return word.lower().replace("-", "").replace("_", "")


def unknown_argument(word: str, known: Mapping[str, str]) -> str:
    """How a message on an unknown argument goes on: with the one that is meant, or a near spelling."""
    meant = for_python(word, known)
    return f" {meant}" if meant else did_you_mean(word, known)


def answers_usual_words(
    elsewhere: Callable[[], Mapping[str, str]] = dict,
) -> Callable[[type[Described]], type[Described]]:
    """Make a dataclass answer an argument that it does not have with the one that is meant, as a TypeError.

    `elsewhere` has settings that belong to another class, each as a user writes it.
    """

    def decorated(described: type[Described]) -> type[Described]:
        plain: Callable[..., None] = vars(described)["__init__"]
        own = {each.name: each.name for each in fields(described)}  # type: ignore[arg-type]

        @functools.wraps(plain)
        def init(self: Any, *values: Any, **named: Any) -> None:
            unknown = [name for name in named if name not in own]
            if unknown:
                raise TypeError(_unknown(described.__name__, unknown, {**own, **elsewhere()}))
            plain(self, *values, **named)

        setattr(described, "__init__", init)  # noqa: B010 (a plain assignment is one that mypy refuses)
        return described

    return decorated


def _unknown(name: str, words: Iterable[str], known: Mapping[str, str]) -> str:
    return " ".join(f"{name} has no field {word!r}.{unknown_argument(word, known)}" for word in words)
