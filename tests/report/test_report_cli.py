"""`unroll report`: any mixture of folders in, one page out; a folder that cannot be reported on is named in words."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from commands import TINY, tiny_run, unroll
from report_cases import data_of, records, write_all

from unroll.runs.folder import RunFolder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("one"), "--evaluate", "both")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    corpus = folder / "corpus.txt"
    corpus.write_text("abcdefgh" * 300)
    options = ["--scheme", "2,4", "--seeds", 2, "--batches", 4, *TINY[2:]]
    result = unroll("sweep", corpus, "--k1", "5,10", *options, "--most", 2, "--quiet", "--out", folder / "sweep")
    assert result.code == 0, result.err
    return folder / "sweep"


def made(out: Path, *folders: Path) -> str:
    result = unroll("report", *folders, "--out", out)
    assert result.code == 0, result.err
    return out.read_text()


def test_a_run_that_was_scored_under_both_procedures_is_two_curves(run: Path, tmp_path: Path) -> None:
    data = data_of(made(tmp_path / "page.html", run))
    assert [(c["scheme"], c["sample"], c["name"]) for c in data["curves"]] == [
        (3, "progressive", "run"),
        (1, "windowed", "run"),
    ]
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    shown = data["curves"][1]
    assert data["grids"][shown["grid"]] == [line["batch"] for line in metrics]
    assert shown["windowed"] == pytest.approx([line["perplexity"]["windowed"] for line in metrics], rel=1e-5)
    assert shown["variant"] == {"dense": 12, "batches": 12, "rows": 4}


def test_a_sweep_is_one_panel_with_colours_for_what_varies_and_seeds_as_bands(sweep: Path, tmp_path: Path) -> None:
    (figure,) = data_of(made(tmp_path / "page.html", sweep))["figures"]
    (panel,) = figure["panels"]
    assert figure["groups"] == ["scheme 2: single-loss, windowed", "scheme 4: conditional, progressive"]
    assert figure["lines"] == ["5", "10"]
    assert [(s["group"], s["line"], len(s["curves"])) for s in panel["series"]] == [
        (0, 0, 2), (0, 1, 2), (1, 0, 2), (1, 1, 2),
    ]  # fmt: skip


def test_runs_sweeps_and_records_share_a_page(run: Path, sweep: Path, tmp_path: Path) -> None:
    paper = write_all(tmp_path / "paper", records(extras=False))
    data = data_of(made(tmp_path / "page.html", run, sweep, paper))
    names = [figure["name"] for figure in data["figures"]]
    assert names == ["architectures-1", "architectures-2", "schemes", "datasets", "k2", "curves"]
    assert {curve["name"].split("/")[0] for curve in data["curves"]} >= {"run", "sweep", "schemes, datasets"}
    assert len(data["times"]) == 32
    assert [verdict["claim"] for verdict in data["verdicts"]] == [f"C{i}" for i in range(1, 18)]


def test_the_folder_of_the_records_itself_is_enough(tmp_path: Path) -> None:
    paper = write_all(tmp_path / "paper", records(extras=False))
    assert made(tmp_path / "a.html", paper / "records") == made(tmp_path / "b.html", paper)


def test_a_folder_of_runs_is_enough(run: Path, sweep: Path, tmp_path: Path) -> None:
    page_file = made(tmp_path / "page.html", sweep / "runs")
    assert {curve["name"].split("/")[0] for curve in data_of(page_file)["curves"]} == {"runs"}
    assert len(data_of(page_file)["curves"]) == 8


def test_the_same_folders_give_the_same_bytes_whatever_their_order(run: Path, sweep: Path, tmp_path: Path) -> None:
    one = made(tmp_path / "one.html", run, sweep)
    assert one == made(tmp_path / "two.html", sweep, run, run)


def test_no_path_of_the_machine_stands_on_the_page(sweep: Path, tmp_path: Path) -> None:
    assert str(sweep.parent) not in made(tmp_path / "page.html", sweep)


def test_a_run_that_stopped_says_where_and_why(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "stopped"
    copy.mkdir()
    for name in ("run.toml", "vocabulary.json", "metrics.jsonl"):
        (copy / name).write_bytes((run / name).read_bytes())
    status = RunFolder(run).status
    reason = "At batch 12 the loss is not finite."
    (copy / "status.json").write_text(json.dumps(status | {"state": "stopped", "batch": 11, "reason": reason}))
    shown = data_of(made(tmp_path / "page.html", copy))["curves"][0]
    assert (shown["state"], shown["stopped_at"], shown["reason"]) == ("stopped", 12, reason)


def test_a_run_that_has_not_begun_has_a_row_and_no_curve(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "new"
    copy.mkdir()
    for name in ("run.toml", "vocabulary.json"):
        (copy / name).write_bytes((run / name).read_bytes())
    data = data_of(made(tmp_path / "page.html", copy))
    assert data["figures"] == []
    assert data["notes"] == ["Not finished: new."]
    assert [curve["state"] for curve in data["curves"]] == ["new"]


def test_runs_that_could_not_be_trained_are_named(sweep: Path, tmp_path: Path) -> None:
    folder = tmp_path / "failed"
    (folder / "runs").mkdir(parents=True)
    (folder / "sweep.json").write_bytes((sweep / "sweep.json").read_bytes())
    (folder / "failures.json").write_text(json.dumps({"some-run": {"reason": "too short"}}))
    result = unroll("report", folder, sweep, "--out", tmp_path / "page.html")
    assert result.code == 0, result.err
    assert data_of((tmp_path / "page.html").read_text())["notes"] == ["failed/some-run could not be trained: too short"]


def _empty(folder: Path) -> str:
    return "is no run and holds none"


def _missing(folder: Path) -> str:
    folder.rmdir()
    return "does not exist"


def _file(folder: Path) -> str:
    folder.rmdir()
    folder.write_text("text")
    return "is a file"


def _no_records(folder: Path) -> str:
    (folder / "records").mkdir()
    return "holds no record of a figure"


def _damaged_record(folder: Path) -> str:
    (folder / "records").mkdir()
    (folder / "records" / "schemes.json").write_text('{"format": 1}')
    return "schemes.json is damaged"


def _damaged_run(folder: Path) -> str:
    (folder / "run.toml").write_text("k1 = ")
    return "is not valid TOML"


def _damaged_metrics(folder: Path) -> str:
    (folder / "run.toml").write_text('[corpus]\nsource = "text"\n')
    (folder / "status.json").write_text('{"state": "interrupted", "batch": 1}')
    (folder / "metrics.jsonl").write_text('{"batch": 1}\n')
    return "metrics.jsonl is damaged"


def _numbers_that_are_none(folder: Path) -> str:
    _damaged_metrics(folder)
    line = {"batch": 1, "sequences": 64, "loss": "low", "perplexity": {"windowed": 3}, "seconds": 1, "fleet": 1}
    (folder / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    return "metrics.jsonl is damaged"


def _new_sweep(folder: Path) -> str:
    (folder / "sweep.json").write_text("{}")
    return "no run has begun"


@pytest.mark.parametrize(
    "spoil",
    [
        _empty, _missing, _file, _no_records, _damaged_record, _damaged_run, _damaged_metrics, _numbers_that_are_none,
        _new_sweep,
    ],
)  # fmt: skip
def test_what_cannot_be_reported_on_is_named_in_words_and_nothing_is_written(spoil: object, tmp_path: Path) -> None:
    folder = tmp_path / "given"
    folder.mkdir()
    assert callable(spoil)
    words = spoil(folder)
    result = unroll("report", folder, "--out", tmp_path / "page.html")
    assert result.code == 2
    assert words in result.err
    assert not (tmp_path / "page.html").exists()


def test_every_bad_folder_is_named_at_once(run: Path, tmp_path: Path) -> None:
    result = unroll("report", tmp_path / "a", run, tmp_path / "b", "--out", tmp_path / "page.html")
    assert result.code == 2
    assert [line.split("/")[-1].split()[0] for line in result.err.splitlines()] == ["a", "b"]


def test_records_of_two_scales_do_not_share_a_page(tmp_path: Path) -> None:
    small = write_all(tmp_path / "small", records(extras=False, scale=0.01)[:1])
    full = write_all(tmp_path / "full", records(extras=False)[:1])
    result = unroll("report", small, full, "--out", tmp_path / "page.html")
    assert result.code == 2
    assert "scales 0.01 and 1 cannot share a page" in result.err


def test_the_page_must_have_a_place_to_go(run: Path, tmp_path: Path) -> None:
    text = tmp_path / "mine.txt"
    text.write_text("a text of mine")
    no_folder = (tmp_path / "no" / "page.html", "There is no folder")
    for out, words in ((tmp_path, "is a folder"), no_folder, (text, "must end in .html")):
        result = unroll("report", run, "--out", out)
        assert result.code == 2
        assert words in result.err
    assert text.read_text() == "a text of mine"


def test_reporting_imports_no_torch(run: Path, tmp_path: Path) -> None:
    script = f"""
import sys
from unroll.__main__ import main
sys.argv = ["unroll", "report", {str(run)!r}, "--out", {str(tmp_path / "page.html")!r}]
try:
    main()
finally:
    assert not {{"torch", "matplotlib"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    assert (tmp_path / "page.html").exists()
