"""What `help(unroll.Experiment)` says of each field: the sentence that its option has on the command line."""

from __future__ import annotations

import os
from dataclasses import MISSING, Field, fields
from typing import Any

from unroll.base import plugins
from unroll.base.errors import ConfigurationError
from unroll.base.wording import in_words, shell_words

# Fields that are no option of their own: facts that a training records, and the parts of a scheme.
WORDS = {
    "corpus": "The text: a path, a folder, or a name that `unroll data list` shows.",
    "title": "The corpus's name, recorded when it is read.",
    "ext": 'Read only a folder\'s files that end in one of these: (".py", ".txt").',
    "exclude": 'Leave out a folder\'s files and folders like these: ("test*",).',
    "sha256": "The hash of the bytes that were read, recorded: another text is refused on resume.",
    "files": "How many files were read, recorded.",
    "bytes": "How many bytes were read, recorded.",
    "tokens": "How many tokens the corpus has, recorded.",
    "unique": "How many different tokens it has, recorded.",
    "keep_optimiser": "Keep at the end what a longer run needs, in optimiser.safetensors: the run can be extended.",
    "parent": "The identity of the training whose weights this one began from, recorded.",
    "parent_weights": "The hash of those weights, recorded.",
    "added_symbols": "How many symbols were added to the parent's vocabulary, recorded.",
    "updates_before": "How many updates the optimiser had made where it went on, recorded; None where it began anew.",
    **{
        f"{role}_file_{fact}": f"{said} of the {role} file, recorded."
        for role in ("validation", "test")
        for fact, said in (("sha256", "The hash"), ("bytes", "How many bytes"), ("tokens", "How many tokens"))
    },
    "scheme": "How to train and to sample, with k1 and k2: a Scheme; SCHEMES holds the paper's.",
    "loss": "Which positions of a window carry a loss, and how much: equal, last, linear, exponential.",
    "state": "Where a window's first state comes from: learned, carried or zero.",
    "k3": "How many last positions carry a loss; None is as many as the loss says.",
    "normalise": "Whether the weights of the loss sum to 1.",
    "reset": "When a carried state is reset: epoch, never, or a probability for each window.",
}


def documented(described: type) -> str:
    """The docstring of a class of settings, with a line for each field."""
    lines = [f"    {_declared(each)}{_sentence(each)}" for each in fields(described)]
    return "\n".join([(described.__doc__ or "").rstrip(), "", "    Fields:", "", *lines, ""])


def corpus_name(corpus: Any) -> Any:
    """A corpus as an experiment names it: a path is text as well, and an open corpus is given to the training."""
    if isinstance(corpus, os.PathLike):
        return os.fspath(corpus)
    if hasattr(corpus, "vocabulary") and hasattr(corpus, "ids"):
        raise ConfigurationError(
            "corpus must be a path or a name, as text. Got a Corpus. An open one goes to the training itself: "
            "unroll.train(experiment, out, corpus=…), or unroll.train_all(experiments, out, corpora=[…])."
        )
    return corpus


def _declared(each: Field[Any]) -> str:
    default = "" if each.default is MISSING else f" = {each.default!r}"
    return f"{each.name}: {each.type if isinstance(each.type, str) else each.type.__name__}{default}"


def _sentence(each: Field[Any]) -> str:
    known = each.metadata.get("setting")
    said = WORDS.get(each.name) or getattr(known, "help", "")
    if not said:
        return ""
    family = getattr(known, "family", None)
    # The default stands before the sentence already.
    words = said.replace(" [{default}]", "").format(names=", ".join(plugins.built_in(family)) if family else "")
    with shell_words(False):
        return f"\n        {in_words(words)}"
