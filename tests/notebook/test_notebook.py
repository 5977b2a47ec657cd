"""A real notebook, executed by a real kernel: what its cells show."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from browser import Browser
from nbclient import NotebookClient

from unroll.corpus.synthetic import Markov

pytestmark = pytest.mark.slow

EXPERIMENT = 'unroll.Experiment(corpus="book.txt", scheme=scheme, hidden=16, dense=32, rows=8, batches=60, threads=1)'
CELLS = {
    "begin": "import matplotlib.pyplot\nimport unroll\nscheme = unroll.Scheme(k1=12, k2=10)",
    "train": f'run = unroll.train({EXPERIMENT}, out="runs/first")',
    "card": "run",
    "plot": "run.plot();",
    "twice": f'run = unroll.train({EXPERIMENT}, out="runs/first")',
    "resume": f'unroll.train({EXPERIMENT}, out="runs/first", exist="resume")',
    "silent": f'_ = unroll.train({EXPERIMENT}, out="runs/silent", progress=False)',
    "interrupt": (
        "import signal\n"
        "def stop(event):\n"
        "    if event.batch == 30:\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        f'unroll.train({EXPERIMENT}, out="runs/stopped", on_event=stop)'
    ),
    "go on": 'run = unroll.resume("runs/stopped")\nrun',
    "sweep": (
        'many = unroll.grid(corpus="book.txt", scheme=[1, 2], k1=5, k2=10, hidden=8, dense=16, rows=8, batches=20)\n'
        'rows = unroll.train_all(many, out="sweeps/first", most=1)\n'
        "[row['state'] for row in rows]"
    ),
}
RAISES = ("twice", "interrupt")


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What each cell put out, when the notebook was run from top to bottom."""
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "book.txt").write_text("The king. The end.\n" + Markov().text(20_000))
    kernel = folder / "jupyter" / "kernels" / "here"
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "here", "language": "python"}))
    notebook = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
    for name, source in CELLS.items():
        cell = nbformat.v4.new_code_cell(source)  # type: ignore[no-untyped-call]
        cell.metadata["tags"] = ["raises-exception"] if name in RAISES else []
        notebook.cells.append(cell)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(folder / "jupyter"))
        patch.setenv("JUPYTER_PLATFORM_DIRS", "1")
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        patch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")  # whatever tests before this have set
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        client = NotebookClient(
            notebook,
            kernel_name="here",
            timeout=300,
            resources={"metadata": {"path": str(folder)}},
            iopub_timeout=60,
            raise_on_iopub_timeout=True,  # a busy machine is late with a picture, not without one
        )
        client.execute()
    nbformat.validate(notebook)
    return {name: cell.outputs for name, cell in zip(CELLS, notebook.cells, strict=True)}


def data(output: dict[str, Any]) -> dict[str, Any]:
    assert output["output_type"] in ("display_data", "execute_result"), output
    return dict(output["data"])


def test_training_shows_one_panel_with_its_notes_its_end_and_its_curve(outputs: dict[str, list[Any]]) -> None:
    (panel,) = outputs["train"]
    shown = data(panel)
    assert "note: k1 = 12 is above k2 = 10" in shown["text/html"]
    assert "finished after 60 batches" in shown["text/html"]
    assert "width:100.0%" in shown["text/html"]
    assert shown["text/html"].count("<svg") == 1
    assert shown["text/plain"].splitlines()[-1].startswith("finished after 60 batches")


def test_a_run_at_the_end_of_a_cell_is_its_card_and_elsewhere_its_line(outputs: dict[str, list[Any]]) -> None:
    for cell in ("card", "resume"):
        shown = data(outputs[cell][-1])
        assert shown["text/plain"].startswith("<Run 'runs/first': book, ")
        assert "\n" not in shown["text/plain"]
        assert "<svg" in shown["text/html"]
        assert "a windowed sample" in shown["text/html"]


def test_plot_shows_a_picture(outputs: dict[str, list[Any]]) -> None:
    (picture,) = outputs["plot"]
    assert len(data(picture)["image/png"]) > 5000


def test_a_cell_run_twice_is_refused_with_what_can_be_said(outputs: dict[str, list[Any]]) -> None:
    (error,) = outputs["twice"]
    assert error["ename"] == "RunError"
    assert 'exist="resume"' in error["evalue"]
    assert "--" not in error["evalue"]


def test_with_exist_resume_a_cell_run_twice_shows_the_finished_run_and_trains_nothing(
    outputs: dict[str, list[Any]],
) -> None:
    assert len(outputs["resume"]) == 1


def test_progress_false_is_silent(outputs: dict[str, list[Any]]) -> None:
    assert outputs["silent"] == []


def test_a_kernel_that_is_interrupted_saves_and_the_next_cell_goes_on(outputs: dict[str, list[Any]]) -> None:
    panel, error = outputs["interrupt"]
    assert "finished" not in data(panel)["text/plain"]
    assert error["ename"] == "Interrupted"
    assert "Go on with: unroll.resume('runs/stopped')" in error["evalue"]
    assert "finished after 60 batches" in data(outputs["go on"][-1])["text/plain"]


def test_a_sweep_shows_one_panel(outputs: dict[str, list[Any]]) -> None:
    panel, states = outputs["sweep"]
    assert "2 / 2 runs over: 2 finished" in data(panel)["text/html"]
    assert data(states)["text/plain"] == "['finished', 'finished']"


def test_a_browser_shows_the_outputs_without_complaint(outputs: dict[str, list[Any]], tmp_path: Path) -> None:
    pieces = [data(output)["text/html"] for cell in ("train", "card", "sweep") for output in outputs[cell][:1]]
    page = tmp_path / "outputs.html"
    page.write_text('<!doctype html><meta charset="utf-8">' + "<hr>".join(pieces), "utf-8")
    with Browser(tmp_path / "profile") as browser:
        browser.view(700, 900)
        browser.open(page)
        assert browser.ask("document.querySelectorAll('svg').length") == 2
        assert browser.ask("document.body.innerText").count("finished") == 3
        assert browser.troubles == []
        assert set(browser.fetched) == {page.absolute().as_uri()}
