"""What a text goes on from: words that were given, a file, or a stretch of the test set."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from unroll.base import randomness, untrusted
from unroll.base.errors import ConfigurationError
from unroll.corpus.music import reading
from unroll.corpus.tokens import reads_bytes
from unroll.runs.loaded import Run

LARGEST = 1 << 26  # bytes of a prompt's file


def prompt_ids(run: Run, prompt: str) -> np.ndarray[Any, Any]:
    """A prompt's ids; notes may be given by name (C4 E4 G4), by number, or as a MIDI file."""
    if run.vocabulary.kind == "words" and f" {prompt.split(' ')[0]}" in run.vocabulary.symbols:
        # A word has the space before it: at the start of a prompt it is meant as it stands inside a text.
        return run.vocabulary.encode(f" {prompt}")
    if run.vocabulary.kind != "notes":
        return run.vocabulary.encode(prompt)
    is_file = prompt.lower().endswith(reading.SUFFIXES) and os.path.isfile(prompt)
    pitches = reading.read_notes(prompt) if is_file else reading.parse_notes(prompt)
    return run.vocabulary.encode(" ".join(str(pitch) for pitch in pitches))


def seed_sequence(run: Run, seed: int) -> np.ndarray[Any, Any]:
    """k2 tokens of the test set at a seeded offset, as the paper bootstraps its samples."""
    test, k2 = run.corpus.test_ids(run.experiment.split_seed), run.experiment.scheme.k2
    offset = randomness.below(seed, "seed sequence", 0, len(test) - k2 + 1)
    return test[offset : offset + k2]


def prompt_from(run: Run, path: Path) -> str:
    """A prompt as a file holds it, its last line end too, read as the run's corpus was."""
    if run.vocabulary.kind == "notes" and path.suffix.lower() in reading.SUFFIXES:
        return str(path)
    try:
        with path.open("rb") as file:  # which may be a named pipe: a shell's <(command)
            content = untrusted.up_to(file, LARGEST + 1)
    except OSError as error:
        raise ConfigurationError(f"--prompt-file {path} cannot be read: {error.strerror}.") from None
    if len(content) > LARGEST:
        raise ConfigurationError(f"--prompt-file {path} has more than {LARGEST:,} bytes. Give a shorter one.")
    if not content:
        raise ConfigurationError(
            f"--prompt-file {path} is empty. Leave it out to start from a stretch of the test set."
        )
    if reads_bytes(run.vocabulary.kind):
        return content.decode("utf-8", "surrogateescape")
    encoding = run.experiment.encoding
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"--prompt-file {path} is not {encoding}: see its byte {error.start:,}.") from None
