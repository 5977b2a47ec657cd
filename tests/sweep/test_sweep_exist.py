"""A cell with `train_all` run twice: what `exist` does with a sweep that is there already."""

from __future__ import annotations

from pathlib import Path

import pytest

from unroll import Corpus, Experiment, grid, train_all
from unroll.base.errors import ConfigurationError, RunError
from unroll.sweep.launchers import Progressed, Report, RunEnded

TEXT = Corpus.from_text("to be or not to be, that is the question. " * 100)
SHARED = {"scheme": 1, "k1": 5, "k2": 10, "hidden": 8, "dense": 16, "rows": 4, "batches": 12, "threads": 1}
TWO = grid(**SHARED, seed=[0, 1])
OTHER = grid(**SHARED, seed=[0, 2])


class Enough(Exception):
    """What a user's own function raises."""


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def sweep(out: Path, asked: list[Experiment] = TWO, **options: object) -> list[dict[str, object]]:
    return train_all(asked, out, [TEXT] * len(asked), most=1, **options)  # type: ignore[arg-type]


def test_by_default_a_sweep_goes_on_and_an_error_in_the_users_function_leaves_it_saved(tmp_path: Path) -> None:
    whole = sweep(tmp_path / "whole")
    ended: list[str] = []

    def leave(report: Report) -> None:
        if isinstance(report, RunEnded):
            ended.append(report.run)
        if isinstance(report, Progressed) and ended:
            raise Enough

    with pytest.raises(Enough):
        sweep(tmp_path / "left", on_event=leave)
    assert len(ended) == 1
    assert sweep(tmp_path / "left") == whole
    assert files(tmp_path / "left")["table.csv"] == files(tmp_path / "whole")["table.csv"]


def test_a_sweep_that_is_there_can_be_refused_or_replaced(tmp_path: Path) -> None:
    sweep(tmp_path / "sweep")
    before = files(tmp_path)
    with pytest.raises(RunError, match='exist="replace" deletes it'):
        sweep(tmp_path / "sweep", exist="error")
    with pytest.raises(RunError, match="holds another sweep"):
        sweep(tmp_path / "sweep", OTHER)
    assert files(tmp_path) == before
    assert {row["seed"] for row in sweep(tmp_path / "sweep", OTHER, exist="replace")} == {0, 2}
    assert len(list((tmp_path / "sweep" / "runs").iterdir())) == 2


@pytest.mark.parametrize("where", ["notes.txt", "runs/notes.txt", "runs/mine/run.toml", "runs/{run}/notes.txt"])
def test_replace_refuses_a_sweep_with_files_of_the_users_and_deletes_nothing(where: str, tmp_path: Path) -> None:
    run = str(sweep(tmp_path / "sweep")[0]["run"])
    mine = tmp_path / "sweep" / where.format(run=run)
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    before = files(tmp_path)
    with pytest.raises(RunError, match=r"no part of a sweep: .*Nothing was deleted"):
        sweep(tmp_path / "sweep", OTHER, exist="replace")
    assert files(tmp_path) == before


@pytest.mark.parametrize("where", ["", "runs", "runs/{run}", "table.csv"])
def test_replace_never_follows_a_link(where: str, tmp_path: Path) -> None:
    run = str(sweep(tmp_path / "sweep")[0]["run"])
    linked = tmp_path / "sweep" / where.format(run=run)
    linked.rename(tmp_path / "moved")
    linked.symlink_to(tmp_path / "moved")
    before = files(tmp_path)
    with pytest.raises(RunError, match="is a link"):
        sweep(tmp_path / "sweep", OTHER, exist="replace")
    assert files(tmp_path) == before


def test_replace_refuses_a_folder_that_is_no_sweep_and_exist_is_one_of_three_words(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match=r"is no sweep\. Choose another folder with out="):
        sweep(tmp_path / "mine", exist="replace")
    with pytest.raises(ConfigurationError, match=r"exist must be one of error, resume, replace\."):
        sweep(tmp_path / "new", exist="overwrite")
    assert files(tmp_path) == {"mine/notes.txt": b"mine"}
