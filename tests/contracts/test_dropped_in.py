"""One new file is a new option: it is used from the command line by its name, and recorded under it."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import TINY, unroll

from unroll import Scheme
from unroll.base import plugins
from unroll.base.errors import ConfigurationError
from unroll.corpus.synthetic import Markov
from unroll.experiment.scheme import parse_training
from unroll.runs.folder import RunFolder

MIDDLE = '''"""Only the middle position of a window carries a loss."""


def scored(k2: int) -> int:
    return k2 - k2 // 2


def weights(k2: int, k3: int) -> tuple[float, ...]:
    return (1.0, *[0.0] * (k3 - 1))
'''
ZEROS = '''"""Every window starts from zeros, which nobody trains."""

LEARNS = False
CARRIES = False
'''


@pytest.fixture
def dropped(tmp_path: Path) -> Iterator[None]:
    """A loss weighting and a state origin, as files beside ours."""
    folders = {"loss_weights": ("middle.py", MIDDLE), "state_origins": ("zeros.py", ZEROS)}
    paths = []
    for family, (name, content) in folders.items():
        folder = tmp_path / family
        folder.mkdir()
        (folder / name).write_text(content)
        paths.append((importlib.import_module(f"unroll.experiment.{family}").__path__, str(folder)))
    for path, folder in paths:
        path.append(folder)
    plugins.refresh()
    yield
    for path, folder in paths:
        path.remove(folder)
    plugins.refresh()


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text(Markov().text(3000))
    return path


@pytest.mark.usefixtures("dropped")
def test_a_loss_weighting_and_a_state_origin_are_named_and_recorded_as_what_they_are(
    corpus: Path, tmp_path: Path
) -> None:
    procedure = "loss=middle,state=zeros"
    result = unroll("train", corpus, "--train", procedure, "--batches", 3, *TINY, "--out", tmp_path / "run")
    assert result.code == 0, result.err
    assert f"{procedure} training" in result.err
    scheme = RunFolder(tmp_path / "run").experiment.scheme
    assert (scheme.loss, scheme.state, scheme.scored, scheme.training) == ("middle", "zeros", 5, procedure)
    assert unroll("eval", tmp_path / "run").code == 0
    swept = unroll("sweep", corpus, "--train", procedure, "--batches", 3, *TINY, "--out", tmp_path / "sweep")
    assert swept.code == 0, swept.err
    with open(tmp_path / "sweep" / "table.csv") as file:
        assert {row["training"] for row in csv.DictReader(file)} == {procedure}
    (name,) = (path.name for path in (tmp_path / "sweep" / "runs").iterdir())
    assert "conditional" not in name
    assert "middle" in name


@pytest.mark.parametrize(
    ("words", "training"),
    [
        ("loss=equal,state=learned", "multi-loss"),
        ("state=learned,loss=last", "single-loss"),
        ("state=carried", "conditional"),
        ("loss=linear,state=carried,k3=4,reset=0.1", "conditional,k3=4,decay=linear,reset=0.1"),
        ("loss=exponential,normalise", "multi-loss,decay=exponential,normalise"),
        ("loss=last,state=carried", "conditional,k3=1"),
    ],
)
def test_any_point_of_the_plane_can_be_said_and_keeps_the_papers_name_where_it_has_one(
    words: str, training: str
) -> None:
    assert Scheme(**parse_training(words)).training == training


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("loss=lienar,state=learned", "Did you mean linear?"),
        ("loss=equal,state=carreid", "Did you mean carried?"),
        ("multi-loss,loss=linear", "multi-loss already says the loss"),
        ("loss=equal,decay=linear", "write loss=linear"),
        ("loss=equal,loss=last", "names loss more than once"),
        ("loss=equal,stat=learned", "knows the keys"),
        ("los=equal", "or any point of the plane"),
    ],
)
def test_a_point_that_is_none_is_refused_in_words(words: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match="(?s)" + said.replace("?", r"\?")):
        Scheme(**parse_training(words))
