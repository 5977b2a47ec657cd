"""`unroll sample`: text drawn from a run, shown as it is drawn."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from unroll.base import plugins
from unroll.base.errors import InputError
from unroll.base.printable import one_line
from unroll.cli import options
from unroll.cli.options import Threads, option
from unroll.cli.screen import DIM, end_with_the_reader, give, on_a_terminal, print_json, say, show, warn, write

TAIL = 60  # characters that are shown of what a text goes on from

if TYPE_CHECKING:
    from unroll.runs.loaded import Run
    from unroll.sampling.api import Checked, Request, Sample


def sample(
    run: Annotated[Path, typer.Argument(help="A run's folder.", metavar="RUN")],
    prompt: Annotated[str | None, option("What to go on from [k2 tokens of the test set].")] = None,
    prompt_file: Annotated[Path | None, option("The same, from a file.")] = None,
    length: Annotated[int, typer.Option(help="Tokens to draw.")] = 500,
    n: Annotated[int, typer.Option("--n", "-n", help="Texts to draw; the seed of each is one above the last's.")] = 1,
    beams: Annotated[int | None, option("Search for the likeliest text with this many beams; draw nothing.")] = None,
    stop: Annotated[list[str] | None, option("End the text before this; again for more.", metavar="STRING")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same text.")] = 0,
    sample: Annotated[str | None, option("windowed or progressive [the scheme's own].")] = None,
    side_by_side: Annotated[
        bool, typer.Option("--side-by-side", help="Both procedures from one prompt and seed, in two columns.")
    ] = False,
    weights: options.Weights = "last",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    threads: Threads = None,
    out: Annotated[Path | None, option("Write to this file; a run of notes writes music to a .mid.")] = None,
    tempo: Annotated[float, typer.Option(help="Of music: beats a minute.")] = 100.0,
    note_length: Annotated[float, typer.Option(help="Of music: beats a note.")] = 0.5,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    **drawing: Any,
) -> None:
    """Draw text from a run.

    \b
    unroll sample runs/first --prompt "def main" --length 200 --temperature 0.7
    unroll sample runs/first --sample progressive --seed 7 --n 3 --stop "\\n\\n"
    unroll sample runs/first --prompt "class " --side-by-side
    unroll sample runs/bach --prompt "C4 E4 G4" --out tune.mid --tempo 90

    Windowed: every token from the k2 before it, as robust as it gets. Progressive: the state runs on; faster.
    Controls apply in the order CONTROLS. In --stop, \\n is a line's end and \\t a tab.
    """
    from unroll.cli import side_by_side as columns
    from unroll.corpus.music import writing
    from unroll.engines.devices import use_threads
    from unroll.runs.loaded import load
    from unroll.sampling.api import answer, requested
    from unroll.sampling.controls import Settings

    problems = _problems(prompt, prompt_file, out, n, side_by_side, sample, beams)
    problems += writing.out_of_range(tempo, note_length)
    use_threads(threads)
    loaded = load(run, device, weights)
    if out and _is_music(out) and loaded.vocabulary.kind != "notes":
        problems.append(f"--out {out} is for notes; this run's tokens are {loaded.vocabulary.kind}.")
    text, unread = _prompt(loaded, prompt, prompt_file)
    settings = Settings(
        text,
        n,
        length=length,
        num_beams=beams,
        seed=seed,
        stop=[_unescaped(string) for string in stop or []],
        sample=sample,
        drawing=drawing,
    )
    asked = requested(loaded, settings, problems + unread)
    _tell(loaded, sample, side_by_side)
    _tell_of_stops(loaded, settings.stops)
    _tell_of_controls(loaded, asked.requests)
    end_with_the_reader()
    if not json and out is None and (side_by_side or beams is not None):
        _show_start(loaded, asked, 0)
    if side_by_side:
        columns.show_both(loaded, settings, json)
    elif json or out or beams is not None or _whole_bytes(loaded):
        output_samples(loaded, answer(loaded, settings, asked), out, json, tempo, note_length)
    else:
        _stream(loaded, asked)


def command() -> Any:
    """The command with an option for each control of the draw, as their files say: made when it is called."""
    return _command(plugins.state())


@lru_cache(1)
def _command(_state: int) -> Any:
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command("sample")(_with_options(sample))
    return typer.main.get_command(app)


def _with_options(function: Callable[..., None]) -> Callable[..., None]:
    """A command's function whose `**drawing` are options of their own, after the number of texts."""
    from unroll.experiment.decoding import controls

    hints = get_type_hints(function, include_extras=True)
    parameters = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not parameter.VAR_KEYWORD:
            parameters.append(parameter.replace(annotation=hints[parameter.name]))
        if parameter.name == "n":
            parameters += [_parameter(name, control) for name, control in controls().items()]

    def with_options(**said: Any) -> None:
        function(**said)

    with_options.__doc__ = inspect.getdoc(function)
    order = ", ".join(name.replace("_", "-") for name in controls())
    with_options.__doc__ = (with_options.__doc__ or "").replace("CONTROLS", order)
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_options


def _parameter(name: str, control: Any) -> inspect.Parameter:
    annotation = Annotated[control.TYPE | None, option(control.HELP, f"--{name.replace('_', '-')}")]
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=annotation)


def output_samples(
    run: Run, samples: list[Sample], out: Path | None, json: bool, tempo: float = 100.0, note_length: float = 0.5
) -> None:
    """Finished texts: into a file, as JSON, or on the screen."""
    if out:
        _write(run, samples, out, tempo, note_length)
        say(f"{sum(len(s.tokens) for s in samples):,} tokens into {out}")
    if json:
        print_json({"samples": [asdict(s) for s in samples]})
    elif not out:
        for place, found in enumerate(samples):
            _head(f"seed {found.seed}" if samples[0].seed != samples[-1].seed else f"number {place + 1}", len(samples))
            give(found.text + "\n")


def _stream(run: Run, asked: Checked) -> None:
    """Texts one under the other: the first that is not finished is shown as it is drawn, later ones wait for it."""
    from unroll.sampling.api import stream_all

    requests, before = asked.requests, list[int]()
    if requests[0].prompt and len(requests) == 1 and on_a_terminal():
        write((requests[0].prompt, DIM))
        before = asked.prompts[0][-1:].tolist()
    _head(f"seed {requests[0].seed}", len(requests))
    _show_start(run, asked, 0)
    texts, ended, current = [""] * len(requests), set[int](), 0
    for place, token in stream_all(run, asked, before):
        texts[place] += token.text
        if place == current:
            give(token.text)
        if token.last:
            ended.add(place)
        while current in ended:
            show()
            current += 1
            if current < len(requests):
                _head(f"seed {requests[current].seed}", len(requests))
                _show_start(run, asked, current)
                give(texts[current])


def _show_start(run: Run, asked: Checked, place: int) -> None:
    """A text without a prompt goes on from a stretch of the test set: who looks on sees how that ended."""
    if asked.requests[place].prompt is not None or not on_a_terminal():
        return
    before = "goes on from the test set: …"
    room = max(0, min(TAIL, shutil.get_terminal_size().columns - len(before)))
    read = one_line(run.vocabulary.decode(asked.prompts[place][-TAIL:]))
    say((before + read[len(read) - min(room, len(read)) :], DIM))


def _whole_bytes(run: Run) -> bool:
    """Whether bytes go where nobody looks: shown as they are drawn, those that are no text would be lost."""
    from unroll.corpus.tokens import reads_bytes

    return reads_bytes(run.vocabulary.kind) and not on_a_terminal()


def _head(name: str, texts: int) -> None:
    """A line above each of several texts."""
    if texts > 1:
        show((f"--- {name}", DIM))


def _problems(
    prompt: str | None,
    prompt_file: Path | None,
    out: Path | None,
    n: int,
    side_by_side: bool,
    sample: str | None,
    beams: int | None,
) -> list[str]:
    """What can be checked without the run."""
    wrong = []
    if prompt is not None and prompt_file is not None:
        wrong.append("--prompt and --prompt-file both give the prompt. Leave one out.")
    if out and out.exists():
        wrong.append(f"{out} exists. Choose another file with --out.")
    if out and not out.absolute().parent.is_dir():
        wrong.append(f"{out.absolute().parent} is no folder. Choose another file with --out.")
    if side_by_side and (n != 1 or sample is not None or beams is not None or out is not None):
        wrong.append("--side-by-side draws one text under each procedure: leave out --n, --sample, --beams and --out.")
    return wrong


def _prompt(run: Run, prompt: str | None, path: Path | None) -> tuple[str | None, list[str]]:
    """The prompt under either option, and why its file cannot be read."""
    from unroll.sampling.prompts import prompt_from

    if path is None:
        return prompt, []
    try:
        return prompt_from(run, path), []
    except InputError as error:
        return None, list(error.problems)


def _unescaped(stop: str) -> str:
    """A shell makes it hard to type a line's end."""
    return stop.replace("\\n", "\n").replace("\\t", "\t")


def _tell(run: Run, sample: str | None, side_by_side: bool) -> None:
    """What should be known of this run before its text is read."""
    for note in run.notes:
        warn(note)
    own = run.experiment.scheme.sample
    if sample is not None and sample != own and not side_by_side:
        warn(f"sampled {sample}; this run's scheme is sampled {own}.")


def _tell_of_stops(run: Run, stops: tuple[str, ...]) -> None:
    """A string that a run on characters cannot write would end nothing, without a word."""
    if run.vocabulary.kind != "chars":
        return
    for stop in stops:
        if missing := [symbol for symbol in dict.fromkeys(stop) if symbol not in run.vocabulary.symbols]:
            warn(f"the stop {stop!r} ends no text: this run never writes {missing[0]!r}.")


def _tell_of_controls(run: Run, requests: Sequence[Request]) -> None:
    """A control that the device's own loop does not know costs its speed."""
    from unroll.sampling.host_loop import unknown_to_devices

    unknown = [] if run.model.engine.looks_cost_nothing else unknown_to_devices(requests)
    if unknown:
        warn(f"the host draws each token, which takes longer: {run.model.device} does not know {', '.join(unknown)}.")


def _is_music(path: Path) -> bool:
    from unroll.corpus.music.reading import PLAIN_SUFFIXES

    return path.suffix.lower() in PLAIN_SUFFIXES


def _write(run: Run, samples: list[Sample], out: Path, tempo: float, note_length: float) -> None:
    """A file that a person can use: text, bytes, or music where notes go to a .mid; several texts under each other."""
    from unroll.base import atomic_files
    from unroll.corpus.music import writing
    from unroll.corpus.tokens import reads_bytes

    text = "\n".join(s.text for s in samples)
    if _is_music(out):
        pieces = [[int(note) for note in line.split()] for line in text.split("\n") if line.strip()]
        writing.write_midi(pieces, out, tempo, note_length)
        return
    atomic_files.write(
        out, text.encode("utf-8", "surrogateescape" if reads_bytes(run.vocabulary.kind) else "surrogatepass")
    )
