"""A folder that holds a train, a validation and a test file, as many corpora are handed around.

    train.txt valid.txt test.txt      ptb.train.txt ptb.dev.txt ptb.test.txt      wiki.train.tokens wiki.test.tokens

It is recognised by the files' names where they are nearly all that the folder holds, and refused where that is not
clear. Source code is no corpus of parts: train.py and test.py are files like others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unroll.base.errors import CorpusError
from unroll.corpus.chosen_files import Choice, listed
from unroll.corpus.datasets import DATASETS
from unroll.corpus.fetching import fetching
from unroll.corpus.folder_choice import CLEAR
from unroll.corpus.folders import Entry
from unroll.corpus.parts import PartFiles
from unroll.experiment.experiment import Experiment

TRAIN = "train"
WORDS = {
    TRAIN: ("train", "training"),
    "validation": ("valid", "val", "validation", "dev"),
    "test": ("test", "testing"),
}
CODE = {
    ".c", ".cc", ".cfg", ".cpp", ".cu", ".go", ".h", ".hpp", ".ini", ".ipynb", ".java", ".jl", ".js", ".json", ".lua",
    ".m", ".pl", ".py", ".r", ".rb", ".rs", ".sh", ".toml", ".ts", ".yaml", ".yml",
}  # fmt: skip
_ROLES = {word: role for role, words in WORDS.items() for word in words}
_NAME = re.compile(
    rf"(?:(?P<before>.+)[._-])?(?P<word>{'|'.join(sorted(_ROLES, key=len, reverse=True))})"
    r"(?P<ending>(?:\.[a-z0-9]{1,10}){0,2})",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class SplitFolder:
    """The files of a folder in parts, and what to say of them first."""

    train: str
    files: PartFiles
    note: str


@dataclass(frozen=True)
class _Named:
    """A file whose name says what it is for."""

    entry: Entry
    role: str
    before: str
    ending: str


def recognise(source: str, choice: Choice) -> SplitFolder | None:
    """The parts of a folder, None where it is an ordinary one; a CorpusError where neither is clear.

    A person who chooses files with --ext or --exclude means one text.
    """
    if choice.ext or choice.exclude or not _is_folder(source):
        return None
    entries = [entry for entry in listed(source, choice)[0] if entry.regular and entry.size]
    inside = os.path.join(source, "")
    groups: dict[str, list[_Named]] = {}
    for entry in entries:
        named = _named(entry) if os.path.dirname(entry.path) == os.path.dirname(inside) else None
        if named is not None:
            groups.setdefault(named.before, []).append(named)
    split = [
        group for group in groups.values() if len({named.role for named in group} | {TRAIN}) > 1 and _trains(group)
    ]
    if not split:
        return None
    parts = [named for group in split for named in group]
    size, whole = (sum(entry.size for entry in some) for some in ([named.entry for named in parts], entries))
    if size <= (1 - CLEAR) * whole:
        return None
    roles = [named.role for named in parts]
    twice = next((role for role in dict.fromkeys(roles) if roles.count(role) > 1), None)
    if twice is not None:
        names = " and ".join(named.entry.name for named in parts if named.role == twice)
        raise _unclear(source, f"{names} may each be its {twice} set")
    if len({named.ending for named in parts}) > 1:
        raise _unclear(source, f"{_names(parts)} are of different sorts")
    if size < CLEAR * whole:
        others = sorted((entry for entry in entries if entry not in [p.entry for p in parts]), key=lambda e: -e.size)
        raise _unclear(source, f"beside {_names(parts)} it holds {others[0].name}")
    by_role = {named.role: named.entry for named in parts}
    paths = {role: entry.path for role, entry in by_role.items() if role != TRAIN}
    files = PartFiles(paths.get("validation"), paths.get("test"))
    return SplitFolder(by_role[TRAIN].path, files, _note(source, by_role))


def title_of(path: str) -> str | None:
    """What a corpus is called whose train file this is: by what stands before the word, else by its folder."""
    named = _NAME.fullmatch(os.path.basename(path))
    if named is None or _ROLES[named["word"].lower()] != TRAIN:
        return None
    return named["before"] or os.path.basename(os.path.dirname(os.path.realpath(path))) or None


def _is_folder(source: str) -> bool:
    if source in DATASETS or source in fetching.PAPER:
        return False
    try:
        return os.path.isdir(source)
    except ValueError:
        return False


def _named(entry: Entry) -> _Named | None:
    said = _NAME.fullmatch(entry.name)
    if said is None or any(f".{part}" in CODE for part in said["ending"].lower().split(".")):
        return None
    return _Named(entry, _ROLES[said["word"].lower()], (said["before"] or "").lower(), said["ending"].lower())


def _trains(group: Sequence[_Named]) -> bool:
    return any(named.role == TRAIN for named in group)


def _names(parts: Sequence[_Named]) -> str:
    return " and ".join(named.entry.name for named in parts)


def _unclear(source: str, why: str) -> CorpusError:
    return CorpusError(
        f"{source} is not clearly a corpus in parts: {why}. Name the train file as CORPUS, the others with "
        "--validation-file and --test-file; or say with --ext or --exclude which files are one text."
    )


def _note(source: str, by_role: dict[str, Entry]) -> str:
    said = ", ".join(f"{role} {by_role[role].name}" for role in WORDS if role in by_role)
    rest = "" if "test" in by_role else " The test set is cut from the train file."
    ending = os.path.splitext(by_role[TRAIN].name)[1]
    one = f" --ext {ending} reads them as one text." if ending else ""
    return f"{source} is a corpus in parts: {said}.{rest}{one}"


def opened(
    source: str, choice: Choice, files: PartFiles, own_validation: bool
) -> tuple[str, PartFiles, tuple[str, ...]]:
    """What to train on, the files of the other parts, and what to say first; files that are named go before its own."""
    split = recognise(source, choice)
    if split is None:
        return source, files, ()
    validation = files.validation or (split.files.validation if own_validation else None)
    return split.train, PartFiles(validation, files.test or split.files.test), (split.note,)


def moved(experiment: Experiment, places: Mapping[str, str]) -> Experiment:
    """The experiment of a run whose files lie in these places now; one for the corpus may be a folder in parts."""
    e, now = experiment, dict(places)
    if (e.validation_file or e.test_file) and os.path.isdir(now.get("corpus", "")):
        split = recognise(now["corpus"], Choice(e.ext, e.exclude, e.ascii, e.encoding))
        if split is not None:
            own = {"validation_file": split.files.validation, "test_file": split.files.test}
            held = {name: path for name, path in own.items() if path and getattr(e, name)}
            now = {**held, **now, "corpus": split.train}
    changed: dict[str, Any] = now
    return replace(experiment, **changed)
