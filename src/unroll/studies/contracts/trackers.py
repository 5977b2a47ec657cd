"""Rules of trackers. They track a made-up run in a folder of its own, which is deleted after it.

The tool behind a tracker is really told: a project, an experiment or a folder of it shows a run called `made-up`.
"""

from __future__ import annotations

import copy
import io
import os
import random
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from unroll.corpus.corpus import Corpus
from unroll.runs.folder import RunFolder
from unroll.runs.tracker_files import EVENTS, SECRET
from unroll.studies.contracts import NotHere, cases, require
from unroll.training import trackers
from unroll.training.trackers import Following, Tracked

STATES = ("finished", "stopped", "interrupted", "failed")
# As metrics.jsonl has them: with what JSON cannot write, and with a validation set.
LINES: tuple[dict[str, Any], ...] = (
    {"batch": 1, "sequences": 4, "loss": 2.5, "perplexity": {"windowed": 9.5}, "seconds": 0.1, "fleet": 1},
    {"batch": 2, "sequences": 8, "loss": None, "perplexity": {"windowed": None}, "seconds": 0.2, "fleet": 1},
    {
        "batch": 9, "sequences": 36, "loss": 1e-30, "perplexity": {"windowed": 1e300, "progressive": 8},
        "validation": {"windowed": 7.25}, "learning_rate": 0.001, "seconds": 0.9, "fleet": 1,
    },
)  # fmt: skip


def it_says_in_words_why_it_cannot_be_used(name: str) -> None:
    """`why_not` gives None, or a sentence."""
    reason = trackers.load(name).why_not()
    require(reason is None or (isinstance(reason, str) and len(reason) > 1), f"why_not gave {reason!r}.")


def it_takes_every_line_and_every_end(name: str) -> None:
    """It begins with no lines or some, takes others, also those without a finite number, and ends in every state."""
    for state in STATES:
        with _made_up(name) as run:
            _whole(name, run, 0, state)


def it_begins_again_where_a_run_goes_on(name: str) -> None:
    """After an interruption, after no end at all, and with fewer lines than before, it begins again with the run."""
    with _made_up(name) as run:
        _whole(name, run, 0, "interrupted")
        trackers.load(name).begin(run, LINES)  # killed: nobody calls its end
        _whole(name, run, 1, "finished")
        _whole(name, run, len(LINES), "finished")


def it_follows_runs_side_by_side(name: str) -> None:
    """The runs of a fleet are told in turns."""
    with _made_up(name) as one, _made_up(name) as other:
        both: list[Following] = [trackers.load(name).begin(run, ()) for run in (one, other)]
        for line in LINES:
            for following in both:
                following.add(line)
        for following in both:
            following.end("finished")


def it_leaves_the_runs_files_as_they_are(name: str) -> None:
    """In the run's folder nothing changes but what the run itself gives it: event files and a key."""
    with _made_up(name) as run:
        before = _files(run.folder.path)
        _whole(name, run, 1, "finished")
        after = _files(run.folder.path)
        ours = {path for path in after if path.split(os.sep)[0] in (EVENTS, SECRET)}
        changed = sorted(p for p in before.keys() | after.keys() if p not in ours and before.get(p) != after.get(p))
        require(not changed, f"It changed {', '.join(changed)} in the run's folder.")


def it_leaves_the_process_as_it_is(name: str) -> None:
    """It prints nothing, changes no line, no signal handler, no working directory and no random generator."""
    with _made_up(name) as run:
        said, lines, before = io.StringIO(), copy.deepcopy(LINES), _process()
        with redirect_stdout(said), redirect_stderr(said):
            _whole(name, run, 1, "finished")
        require(not said.getvalue(), f"It printed {said.getvalue()[:100]!r}.")
        require(lines == LINES, "It changed the lines that it was given.")
        require(before == _process(), "It changed the working directory, a signal handler or the random generator.")


def _whole(name: str, run: Tracked, standing: int, state: str) -> None:
    """A run from begin to end."""
    following = trackers.load(name).begin(run, LINES[:standing])
    for line in LINES[standing:]:
        following.add(line)
    following.end(state)


@contextmanager
def _made_up(name: str) -> Iterator[Tracked]:
    """A run that nobody trains."""
    if (reason := trackers.load(name).why_not()) is not None:
        raise NotHere(reason)
    text = Corpus.from_text("abcdefgh " * 40)
    with tempfile.TemporaryDirectory() as folder:
        experiment = text.described_in(cases.experiment())
        yield Tracked(RunFolder.create(Path(folder) / "made-up", experiment, text.vocabulary), experiment)


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _process() -> tuple[object, ...]:
    return os.getcwd(), signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), random.getstate()
