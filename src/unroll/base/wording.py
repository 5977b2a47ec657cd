"""Messages name a setting in the words of the door that its reader came through: `--k2` at a shell, `k2=` in Python.

Messages are written once, with the options of the command line. The command line opens `shell_words` around all that
it does; everywhere else `in_words` turns options into arguments. It looks only for what can be an option: text inside
quotes, paths and whole commands in backticks stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_at_a_shell = False  # whether this process answers somebody at a shell

# Values that are words: another word behind an option goes on with the sentence.
WORDS = {
    "device": r"cpu|cuda(:\d+)?",
    "encoding": r"latin-1|utf-8|utf-16(-le|-be)?|cp\d+",
    "ext": r"\.\w+",
    "kernel": r"compiled|fused|host|persistent|reference|stacked",
    "kind": r"bytes|chars|ids|notes|words",
    "launcher": r"local|processes",
    "rotation": r"continue|random",
    "start": r"carried|first",
    "track": r"mlflow|tensorboard|wandb",
    "unknown": r"refuse|skip",
    "weights": r"best|last",
}
NUMBER = re.compile(r"\d+(\.\d+)?")
# Options that are called otherwise in Python.
NAMES = {"n": "num_return_sequences", "beams": "num_beams"}
# Options that commands alone have.
ONLY_COMMANDS = {"data", "from", "json", "plan", "prompt-file", "resume", "seeds"}
# The names of training procedures, as the fields of a Scheme.
PROCEDURES = {"multi-loss": "", "single-loss": 'loss="last"', "conditional": 'state="carried"'}
PHRASES = {
    "`unroll train --out`": "`unroll.train(…, out=…)`",
    "`unroll train --from`": "`unroll.train_from`",
    "`unroll sweep --out`": "`unroll.train_all(…, out=…)`",
}
_BEFORE = r"(?<![\w'\"/\\-])"  # no option begins inside a word, a quotation or a path
_COMMAND = re.compile(r"(`unroll [^`]*`)")
_BOTH_NAMES = re.compile(r"\(--[a-z-]+, (\w+)\)")
_PROCEDURE = re.compile(_BEFORE + r"--train ([a-z]+(?:-[a-z]+)?)((?:,\w+=\w+(?:\.\w+)?)*)")
_OPTION = re.compile(_BEFORE + r"--([a-z][a-z0-9]*(?:-[a-z0-9]+)*)(?![\w'\"/=-])(?: (\.?[\w-]+(?:[.:]\d+)?|(?=')))?")


@contextmanager
def shell_words(shell: bool = True) -> Iterator[None]:
    """Leave the options of messages as the command line has them."""
    global _at_a_shell
    before, _at_a_shell = _at_a_shell, shell
    try:
        yield
    finally:
        _at_a_shell = before


def at_a_shell() -> bool:
    """Whether messages are for somebody at a shell."""
    return _at_a_shell


def in_words(message: str) -> str:
    """A message in the words of the door: unchanged for a shell, with arguments for Python.

    >>> in_words("k2 must be at least 1. Got 0. Set --k2, or k2 under [scheme] in run.toml.")
    'k2 must be at least 1. Got 0. Set k2=, or k2 under [scheme] in run.toml.'
    >>> in_words("Bytes of any kind can be trained on with --kind bytes.")
    'Bytes of any kind can be trained on with kind="bytes".'
    """
    if _at_a_shell or "--" not in message:
        return message
    for shell, python in PHRASES.items():
        message = message.replace(shell, python)
    pieces = _COMMAND.split(message)  # every other one is a command
    return "".join(piece if n % 2 else _with_arguments(piece) for n, piece in enumerate(pieces))


def go_on(path: str | Path) -> str:
    """How to go on with a run, in the words of the door."""
    return f"unroll train --resume {path}" if _at_a_shell else f"unroll.resume({str(path)!r})"


def go_on_with_text(path: str | Path) -> str:
    """How to go on with a run whose text lies elsewhere now, in the words of the door."""
    if _at_a_shell:
        return f"If it lies elsewhere now, say where: unroll train CORPUS --resume {path}"
    return f"If it lies elsewhere now, open it and give it: unroll.resume({str(path)!r}, corpus=…)"


def go_on_with_sweep(path: str | Path) -> str:
    """How to go on with a sweep, in the words of the door."""
    return f"unroll sweep --resume {path}" if _at_a_shell else f"unroll.train_all(…, out={str(path)!r})"


def _with_arguments(text: str) -> str:
    text = _BOTH_NAMES.sub(r"(\1=)", text)
    return _OPTION.sub(_argument, _PROCEDURE.sub(_fields, text))


def _fields(said: re.Match[str]) -> str:
    """`conditional,reset=0.1` as fields of a Scheme."""
    if said[1] not in PROCEDURES:
        return said[0]
    return ", ".join(word for word in (PROCEDURES[said[1]], *said[2].split(",")) if word)


def _argument(said: re.Match[str]) -> str:
    option, word = said[1], said[2]
    if option in ONLY_COMMANDS:
        return said[0]
    name = NAMES.get(option, option.replace("-", "_"))
    if word is None:
        return f"{name}="
    if not word or NUMBER.fullmatch(word):  # what follows is a quotation, or a number
        return f"{name}={word}"
    return f'{name}="{word}"' if re.fullmatch(WORDS.get(option, r"(?!)"), word) else f"{name}= {word}"
