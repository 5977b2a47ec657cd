"""A new run from a written configuration: a run's run.toml, or a few lines of one, with options on top.

What a run's own run.toml came to is decided anew: device, kernel and threads always; kind, title, hash and counts of
the text where another text is given; the weights that a run began from, which no configuration holds. Without another
text the hash stands: a text that has changed is refused.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from unroll.base import untrusted
from unroll.base.errors import ConfigurationError
from unroll.experiment import corpus_place, provenance
from unroll.experiment.experiment import Experiment, from_options, read_toml, scheme_options
from unroll.experiment.scheme import Scheme
from unroll.experiment.usual_words import unknown_argument

LARGEST = 64 * untrusted.KILOBYTE
OF_THE_MACHINE = ("device", "kernel", "threads")
OF_THE_START = ("parent", "parent_weights", "added_symbols", "updates_before")  # of a run that began from another
FILES = {
    part: tuple(f"{part}_file{fact}" for fact in ("", "_sha256", "_bytes", "_tokens"))
    for part in ("validation", "test")
}
OF_THE_TEXT = (
    "title", "kind", "sha256", "files", "bytes", "tokens", "unique",
    *(name for names in FILES.values() for name in names),
)  # fmt: skip


# What a set that is given by an option takes the place of.
INSTEAD = {
    "validation": FILES["validation"],
    "validation_file": ("validation", *FILES["validation"]),
    "test_file": FILES["test"],
}


@dataclass(frozen=True)
class Written:
    """What a configuration says, for a run that is yet to be."""

    where: str
    experiment: Experiment
    notes: tuple[str, ...]  # plug-ins that are not those that the file was written with

    def options(self, anew: bool, given: Collection[str] = ()) -> dict[str, Any]:
        """Its settings but the scheme's; without what belongs to its text, where a text is given `anew`.

        Nor has it what a set that is `given` by an option takes the place of.
        """
        e = self.experiment
        dropped = {"scheme", *(OF_THE_TEXT if anew and e.sha256 else ())}
        for option, instead in INSTEAD.items():
            dropped.update(instead if option in given else ())
        return {f.name: getattr(e, f.name) for f in fields(e) if f.name not in dropped}

    def scheme(self, number: Any = None, train: str | None = None, sample: str | None = None) -> dict[str, Any]:
        """The fields of its scheme, or of the one that `--scheme`, `--train` and `--sample` say, with its k1 and k2."""
        own = self.experiment.scheme
        if number is None and train is None:
            return {**_fields(own), **({} if sample is None else {"sample": sample})}
        return {"k1": own.k1, "k2": own.k2, **scheme_options(number, train, sample)}


def read(path: str | os.PathLike[str]) -> Written:
    """Read a run.toml, or the one in a run's folder; an error names every key that is wrong."""
    if not isinstance(path, str | os.PathLike):
        raise ConfigurationError(f"A configuration is read from its path. Got {path!r}.")
    file = Path(path)
    try:
        if file.is_dir():  # a run's, which may come from a stranger
            file = file / "run.toml"
            content = untrusted.read(file, LARGEST)
        else:
            with file.open("rb") as opened:
                content = untrusted.up_to(opened, LARGEST + 1)
        text = content.decode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(
            f"The configuration {file} cannot be read: {reason}. Give a run.toml or a run's folder."
        ) from None
    if len(content) > LARGEST:
        raise ConfigurationError(f"The configuration {file} has more than {LARGEST:,} bytes: it is no run.toml.")
    experiment = corpus_place.whole(read_toml(text, str(file)), file.parent)
    notes = provenance.changes(text, experiment) if experiment.sha256 else []
    if experiment.sha256:
        anew = {name: getattr(Experiment, name) for name in OF_THE_MACHINE}
        experiment = replace(experiment, **anew)
    if experiment.parent is not None:
        notes.append(f"{file} is of a run that began from another's weights: this one does not. --from RUN does.")
        nothing: dict[str, Any] = dict.fromkeys(OF_THE_START)
        experiment = replace(experiment, **nothing)
    return Written(str(file), experiment, tuple(notes))


def changed(written: Written, changes: Mapping[str, Any]) -> Experiment:
    """The experiment with changes by name, a scheme's own fields among them."""
    settings = dict(changes)
    names = {f.name: f.name for f in (*fields(Experiment), *fields(Scheme))}
    for name in settings:
        if name not in names:
            raise TypeError(f"Experiment has no field {name!r}.{unknown_argument(name, names)}")
    scheme = settings.pop("scheme", None)
    if isinstance(scheme, Scheme):
        base = _fields(scheme)
    else:
        base = dict(scheme) if isinstance(scheme, Mapping) else written.scheme(scheme)
    beside = {f.name: settings.pop(f.name) for f in fields(Scheme) if f.name in settings}
    return from_options({**written.options("corpus" in settings, settings), **settings}, {**base, **beside})


def _fields(scheme: Scheme) -> dict[str, Any]:
    return {f.name: getattr(scheme, f.name) for f in fields(scheme)}
