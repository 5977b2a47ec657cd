"""Pictures: any name and any number is drawn or refused in words, and a picture that fails never fails a run."""

from __future__ import annotations

import errno
import math
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib
import pytest
from bench_cases import a_record
from commands import tiny_run, unroll
from helpers import tiny, tiny_corpus
from made_up import records
from terminals import HOSTILE

import unroll as package
from unroll.base import picture_files
from unroll.base.errors import SaveError
from unroll.report import drift_picture
from unroll.runs import curve
from unroll.runs.drift import Bin, Drift
from unroll.runs.folder import RunFolder
from unroll.runs.perplexities import Perplexity
from unroll.studies.benchmark import picture as bench_picture
from unroll.studies.paper import pictures

NAMES = {
    "a formula that is none": "price $x^$.txt",
    "formulas": r"$\frac{1}{2}$ $$ $ \$ $\frac{$",
    "TeX": r"\input{/etc/passwd} %&#_^~{}\\",
    "hostile": HOSTILE,
    "no UTF-8": "\udcff\ud800",
    "no glyphs": "日本語 عربى 🎈 \uffff \U0010ffff",
    "one long word": "x" * 10_000,
    "long": "word and word " * 700,
    "lines": "a\n" * 500,
    "nothing": "",
}
every_name = pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)


def a_run(folder: Path, name: str = "a run", points: Any = ((64, 3.0), (640, 2.0)), **status: Any) -> Any:
    """What a curve is drawn from."""
    experiment = SimpleNamespace(title=name, cell="lstm", layers=1, hidden=8, rows=4, scheme=package.Scheme())
    lines = [{"sequences": x, "perplexity": {"windowed": y, "progressive": y}} for x, y in points]
    return SimpleNamespace(path=folder, experiment=experiment, metrics=lines, status={"state": "finished"} | status)


def a_drift(nats: float = 1.0) -> Drift:
    bins = tuple(Bin(2**n, 2 ** (n + 1) - 1, 99, nats, 0.1, 0.01, 0.002) for n in range(6))
    return Drift(8, 64, 9, Perplexity(nats, 99), bins)


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG")


@every_name
def test_a_curve_of_any_name_is_drawn_and_the_name_leaves_it_room(name: str, tmp_path: Path) -> None:
    folder = a_run(tmp_path, name)
    assert curve.problem_saving(folder) is None
    assert [path.name for path in tmp_path.iterdir()] == [curve.NAME]
    assert is_png(tmp_path / curve.NAME)
    heights: list[float] = []

    def drawn() -> Any:
        figure = curve.draw(folder)
        figure.draw_without_rendering()
        heights.append(figure.axes[0].get_position().height)
        return figure

    picture_files.save(drawn, tmp_path / "again.png")
    assert heights[0] > 0.5


@pytest.mark.parametrize("suffix", drift_picture.SUFFIXES)
def test_runs_of_any_name_are_drawn(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"drift{suffix}"
    drift_picture.save({name: a_drift(1.0 + n) for n, name in enumerate(NAMES.values())}, path)
    content = path.read_bytes()
    assert content
    assert suffix != ".svg" or not set(content.decode()) & set(HOSTILE) - set("\n") - set(map(chr, range(32, 127)))


@pytest.mark.parametrize("name", ["price $x^$", HOSTILE, "x" * 10_000], ids=["formula", "hostile", "long"])
def test_records_with_any_words_in_them_are_drawn(name: str, tmp_path: Path) -> None:
    record = a_record(machine={"processor": name, "torch": name, "unroll": name})
    rows = tuple(replace(row, precision=name) for row in record.rows[:4])
    bench_picture.save(replace(record, rows=rows), tmp_path / "bench.png")
    settings = {"centre": asdict(rows[0].shape), "fleet": 21}
    bench_picture.save(replace(record, mode="scaling", settings=settings, rows=rows), tmp_path / "scaling.png")
    figure = records(figures=["datasets"])["datasets"]
    curves = tuple(replace(c, train=name, title=name) for c in figure.curves[:4])
    pictures.save(replace(figure, curves=curves), tmp_path)
    assert all(is_png(tmp_path / f"{drawn}.png") for drawn in ("bench", "scaling", "datasets"))


NUMBERS = (math.nan, math.inf, -math.inf, 0, -1, 1e308, 5e-324, 1, None, 10**400, "x", [1], {}, True)


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: repr(number)[:9])
def test_any_number_is_drawn_left_out_or_refused_in_words(number: Any, tmp_path: Path) -> None:
    for points in ([(64, number), (640, 3.0)], [(number, 3.0)]):
        problem = curve.problem_saving(a_run(tmp_path, points=points))
        assert problem is None or ("could not be drawn (" in problem and "\n" not in problem)


@pytest.mark.parametrize("points", [(), ((64, 3.0),), ((64, math.nan), (128, math.nan)), ((64, 2.0), (64, 2.0))])
def test_few_points_or_none_are_a_picture(points: Any, tmp_path: Path) -> None:
    assert curve.problem_saving(a_run(tmp_path, points=points)) is None
    assert is_png(tmp_path / curve.NAME)


def test_the_users_own_settings_read_no_formula_into_a_name(tmp_path: Path) -> None:
    with matplotlib.rc_context({"text.usetex": True, "axes.formatter.use_mathtext": True}):
        assert curve.problem_saving(a_run(tmp_path, "price $x^$ \\input{a}")) is None


def test_axes_show_numbers_and_no_formulas(tmp_path: Path) -> None:
    folder = a_run(tmp_path, points=[(64 * 4**n, 30.0 / (n + 1)) for n in range(9)])
    shown: list[str] = []

    def drawn() -> Any:
        figure = curve.draw(folder)
        figure.canvas.draw()
        shown.extend(
            text.get_text() for axis in (figure.axes[0].xaxis, figure.axes[0].yaxis) for text in axis.get_ticklabels()
        )
        return figure

    picture_files.save(drawn, tmp_path / "a.png")
    assert {"100", "1k", "1M", "10"} <= set(shown)
    assert not any(set("$\\{") & set(text) for text in shown)


FAULTS: tuple[BaseException, ...] = (
    OSError(errno.ENOSPC, "No space left on device"),
    ValueError(f"x^\n  ^\n{HOSTILE}"),
    MemoryError(),
    RecursionError("deep"),
    ImportError("no matplotlib"),
    RuntimeError(HOSTILE),
    ZeroDivisionError(),
)


def failing(fault: BaseException) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise fault

    return fail


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_a_picture_that_is_asked_for_and_fails_is_an_error_in_words(
    fault: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", failing(fault))
    with pytest.raises(SaveError, match=rf"drift\.png could not be drawn \({type(fault).__name__}") as caught:
        drift_picture.save({"a": a_drift()}, tmp_path / "drift.png")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
@pytest.mark.parametrize(
    "where", ["matplotlib.figure.Figure.savefig", "unroll.runs.curve.draw", "unroll.base.atomic_files.write"]
)
def test_whatever_goes_wrong_with_a_curve_is_a_note(
    fault: Exception, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, failing(fault))
    note = curve.problem_saving(a_run(tmp_path))
    assert note is not None
    assert note.startswith("The run is saved, but has no picture of its curve. ")
    assert list(tmp_path.iterdir()) == []


def test_a_picture_that_fails_never_fails_a_run_of_pythons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", failing(MemoryError()))
    run = package.train(tiny(), tmp_path / "run", tiny_corpus())
    assert run.status["state"] == "finished"
    (note,) = run.notes
    assert "perplexity.png could not be drawn (MemoryError)." in note
    assert not (run.path / curve.NAME).exists()


def test_the_command_says_once_that_a_picture_failed_and_ends_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "corpus.txt").write_text("to be or not to be " * 200)
    with monkeypatch.context() as broken:
        broken.setattr("matplotlib.figure.Figure.savefig", failing(ValueError(HOSTILE)))
        trained = unroll("train", tmp_path / "corpus.txt", "--out", tmp_path / "run", *SMALL)
        again = unroll("train", "--resume", tmp_path / "run")
        quiet = unroll("train", tmp_path / "corpus.txt", "--out", tmp_path / "quiet", *SMALL, "--quiet", "--json")
    for result in (trained, again, quiet):
        assert result.code == 0
        assert result.err.count("has no picture of its curve") == 1
        assert "Curve: " not in result.err
    assert RunFolder(tmp_path / "run").status["state"] == "finished"
    assert f"Curve: {tmp_path / 'run' / curve.NAME}." in unroll("train", "--resume", tmp_path / "run").err
    assert is_png(tmp_path / "run" / curve.NAME)


SMALL = ("--batches", 3, "--k1", 5, "--k2", 10, "--hidden", 8, "--dense", 12, "--rows", 4, "--threads", 1)


def test_a_corpus_named_like_a_formula_is_trained_on_and_resumed(tmp_path: Path) -> None:
    corpus = tmp_path / "price $x^$.txt"
    corpus.write_text("to be or not to be " * 200)
    result = unroll("train", corpus, "--out", tmp_path / "run", *SMALL)
    assert (result.code, is_png(tmp_path / "run" / curve.NAME)) == (0, True), result.err
    (tmp_path / "run" / curve.NAME).unlink()
    assert unroll("train", "--resume", tmp_path / "run").code == 0
    assert is_png(tmp_path / "run" / curve.NAME)
    assert unroll("drift", tmp_path / "run", "--starts", 4, "--out", tmp_path / "a $x^$.png").code == 0


def test_ctrl_c_while_a_picture_is_drawn_is_no_failed_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", failing(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        package.train(tiny(), tmp_path / "run", tiny_corpus())
    assert RunFolder(tmp_path / "run").status["state"] == "finished"


def test_a_link_in_the_pictures_place_is_not_followed(tmp_path: Path) -> None:
    run, victim = tiny_run(tmp_path), tmp_path / "victim"
    victim.write_text("precious")
    (run / curve.NAME).unlink()
    (run / curve.NAME).symlink_to(victim)
    curve.problem_saving(RunFolder(run))
    assert victim.read_text() == "precious"
    (run / curve.NAME).unlink()
    (run / curve.NAME).symlink_to(tmp_path / "nowhere")
    assert unroll("train", "--resume", run).code == 0
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_in_the_pictures_place_is_told_of(tmp_path: Path) -> None:
    (tmp_path / curve.NAME).mkdir()
    problem = curve.problem_saving(a_run(tmp_path))
    assert problem is not None
    assert "Could not save" in problem


def test_numbers_are_printed_before_a_picture_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tiny_run(tmp_path)
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", failing(ValueError("no")))
    result = unroll("drift", run, "--tokens", 20, "--starts", 4, "--out", tmp_path / "a.png")
    assert (result.code, "tokens since reset" in result.out) == (1, True)
    assert result.err.endswith("a.png could not be drawn (ValueError: no).\n")


def test_every_picture_is_saved_in_one_place() -> None:
    source = Path(package.__file__).parent
    for path in (*source.rglob("*.py"), *(source.parent.parent / "benchmarks").rglob("*.py")):
        text = path.read_text("utf-8")
        # The one of benchmarks/parity.py has no words but its own.
        assert "savefig(" not in text or path.name in ("picture_files.py", "parity.py"), path
        assert not re.search(r"(?<!no_)wrap=True", text), f"{path}: matplotlib measures a wrapped text as a formula"
