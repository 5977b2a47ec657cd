"""Looks at runs with their weights, for the sections that a page was asked for.

Runs are read one at a time. A run whose weights or text are not at hand, or that fails in any other way, is left out of
the section concerned, which says so: a page never fails for one run.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unroll.base.durations import duration
from unroll.base.errors import ConfigurationError, UnrollError, counted, did_you_mean
from unroll.experiment.experiment import Experiment
from unroll.report import blocks
from unroll.report.gathering import Gathered
from unroll.report.labels import differing, fits, in_order, in_words, labels
from unroll.report.sections import ALWAYS, ASKED, Look, Part
from unroll.runs.folder import RunFolder

if TYPE_CHECKING:
    from unroll.runs.loaded import Run

MOST = 20  # runs
WORTH_SAYING = 60.0  # seconds
ALL = "all"
LONGEST = 300  # characters of a reason

Found = tuple[str, RunFolder, Experiment]


def asked_sections(words: str) -> tuple[str, ...]:
    """The sections that `--show` names, in the page's order."""
    names = [word.strip() for word in words.split(",") if word.strip()]
    known = (*ASKED, ALL, "curves", *ALWAYS)  # curves and what folders say are on every page
    wrong = [f"--show knows no {name!r}.{did_you_mean(name, known)}" for name in names if name not in known]
    if wrong:
        raise ConfigurationError(*wrong, f"It takes {', '.join(ASKED)}, or all of them: {ALL}.")
    return ASKED if ALL in names else tuple(name for name in ASKED if name in names)


def cheap_parts(gathered: Gathered) -> list[Part]:
    """The sections that read folders alone."""
    parts: list[Part] = []
    for name in ALWAYS:
        try:
            parts += _file(name).section(gathered)
        except Exception as error:  # the page is worth having without it
            parts.append(
                Part(name, name, name.capitalize(), "", [blocks.notice(f"This part is left out. {_reason(error)}")])
            )
    return parts


def computed_parts(
    gathered: Gathered, sections: Sequence[str], most: int, say: Callable[[str], None], device: str = "auto"
) -> list[Part]:
    """The sections that were asked for, over at most so many runs."""
    if not sections or not gathered.folders:
        return []
    found = {each[0]: each for each in gathered.folders}
    chosen = choose([found[name] for name in in_order({name: each[2] for name, each in found.items()})], most)
    experiments = {name: experiment for name, _, experiment in chosen}
    label_of = labels(experiments)
    names = [name for name in differing(list(experiments.values())) if name != "seed"]
    looks: dict[str, list[Look]] = {section: [] for section in sections}
    problems: dict[str, dict[str, list[str]]] = {section: {} for section in sections}
    begun, announced = 0.0, False
    for name, folder, experiment in chosen:
        label = label_of[name]
        try:
            run = _load(folder, device)
        except Exception as error:
            for section in sections:
                problems[section].setdefault(_reason(error, folder.path, experiment.corpus), []).append(label)
            continue
        if not begun:
            begun, announced = time.perf_counter(), announce(run, sections, len(chosen), say)
        for section in sections:
            try:
                seen = _file(section).look(run)
            except Exception as error:
                problems[section].setdefault(_reason(error, folder.path, experiment.corpus), []).append(label)
            else:
                setting = in_words(experiment, names) or "all runs"
                looks[section].append(Look(name, label, setting if fits(setting) else label, seen))
        # What was tried may have been quicker than the work is.
        left = (time.perf_counter() - begun) * (len(chosen) - 1)
        if not announced and left > WORTH_SAYING:
            say(f"The other {len(chosen) - 1:,} runs take about {duration(left)}.")
        announced = True
    parts = []
    for section in sections:
        part = _part(section, looks[section])
        notices = [_left_out(runs, reason) for reason, runs in problems[section].items()]
        if len(chosen) < len(gathered.folders):
            notices.append(
                f"{len(chosen):,} of {len(gathered.folders):,} runs are here, of every setting one first: --most-runs "
                "takes more."
            )
        parts.append(replace(part, blocks=[*map(blocks.notice, notices), *part.blocks]))
    return parts


def choose(folders: Sequence[Found], most: int) -> list[Found]:
    """At most so many runs: of every setting one, then of every setting a second, in the page's order."""
    of_settings: dict[str, int] = {}
    turns = []
    for place, (_, _, experiment) in enumerate(folders):
        setting = repr(replace(experiment, seed=0))
        turns.append((of_settings.get(setting, 0), place))
        of_settings[setting] = of_settings.get(setting, 0) + 1
    kept = sorted(place for _, place in sorted(turns)[:most])
    return [folders[place] for place in kept]


def _part(section: str, looks: list[Look]) -> Part:
    try:
        if looks:
            part: Part = _file(section).section(looks)
            return part
        problem = "No run has anything to show here."
    except Exception as error:
        problem = f"This part is left out. {_reason(error)}"
    return Part(section, section, section.capitalize(), "", [blocks.notice(problem)])


def _left_out(runs: Sequence[str], reason: str) -> str:
    shown = "; ".join(runs[:3]) + (f"; and {len(runs) - 3:,} more" if len(runs) > 3 else "")
    return f"Left out: {shown}. {reason}"


def announce(run: Run, sections: Iterable[str], runs: int, say: Callable[[str], None]) -> bool:
    """Say before the work how long it takes, where that is over a minute. Runs are taken to be like the first."""
    seconds = 0.0
    for section in sections:
        try:
            seconds += _file(section).estimate(run)
        except Exception:  # the look itself says what is wrong
            continue
    if seconds * runs > WORTH_SAYING:
        what = ", ".join(sections)
        length = duration(seconds * runs)
        say(f"Looking into {counted(runs, 'run')} ({what}) takes about {length}; --most-runs N shortens it.")
        return True
    return False


def _load(folder: RunFolder, device: str) -> Run:
    from unroll.runs.loaded import load

    folder.require_own_kind()
    return load(folder.path, device)


def _file(section: str) -> Any:
    return importlib.import_module(f"unroll.report.sections.{section}")


def _reason(error: Exception, *paths: str | Path) -> str:
    """What went wrong in words, without the paths of this machine."""
    words = " ".join(str(error).split("\n")) if isinstance(error, UnrollError) else f"{type(error).__name__}: {error}"
    for path in filter(None, map(str, paths)):
        words = words.replace(str(Path(path).absolute()), Path(path).name).replace(path, Path(path).name)
    return words if len(words) <= LONGEST else words[: LONGEST - 1] + "…"
