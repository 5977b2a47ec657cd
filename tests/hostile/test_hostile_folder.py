"""A run folder from a stranger: no code from data, and every problem in words."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import killing
import pytest
from bomb import Bomb
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import unroll
from unroll.base.errors import ConfigurationError, InputError, RunError
from unroll.runs.folder import RunFolder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stranger")
    killing.train("multi-loss", folder)
    return killing.outs(folder, "multi-loss")[0]


class Replaced:
    """A file with other content for a while."""

    def __init__(self, path: Path, content: str | bytes) -> None:
        self.path, self.content = path, content.encode() if isinstance(content, str) else content

    def __enter__(self) -> None:
        self.before = self.path.read_bytes()
        self.path.write_bytes(self.content)

    def __exit__(self, *error: object) -> None:
        self.path.write_bytes(self.before)


@pytest.mark.parametrize("name", ["model.pt", "model.pth", "model.ckpt", "model.pkl", "model.bin"])
def test_a_pickle_given_as_a_run_is_not_opened(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    with pytest.raises(RunError, match=f"{name} is a pickle, which can run code when it is opened; it is not loaded"):
        unroll.load(tmp_path / name)
    assert not (tmp_path / "exploded").exists()


def test_a_pickle_named_as_the_weights_is_not_opened(run: Path, tmp_path: Path) -> None:
    bomb = pickle.dumps(Bomb(tmp_path / "exploded"))
    with Replaced(run / "weights.safetensors", bomb), pytest.raises(RunError, match="damaged"):
        unroll.load(run)
    assert not (tmp_path / "exploded").exists()


def test_what_is_no_run_folder_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("hello")
    for path in (tmp_path / "text.txt", tmp_path / "nowhere"):
        with pytest.raises(RunError, match="is not a run folder"):
            unroll.load(path)
    with pytest.raises(RunError, match=r"run.toml is missing"):
        unroll.load(tmp_path)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "must be a JSON object"),
        ("[]", "must be a JSON object"),
        ('{"kind": "chars"}', "must be a JSON object"),
        ('{"kind": "os", "symbols": ["a"]}', "kind"),
        ('{"kind": "../../evil", "symbols": ["a"]}', "kind"),
        ('{"kind": {"a": 1}, "symbols": ["a"]}', "kind"),
        ('{"kind": "chars", "symbols": []}', "non-empty"),
        ('{"kind": "chars", "symbols": "abc"}', "non-empty"),
        ('{"kind": "chars", "symbols": ["a", ""]}', "non-empty"),
        ('{"kind": "chars", "symbols": ["a", 3]}', "non-empty"),
        ('{"kind": "chars", "symbols": ["a", "b", "a"]}', "different"),
        ('{"kind": "chars", "symbols": ["a", "b"]}', "not the vocabulary that the weights were trained with"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_a_vocabulary_that_is_none_is_refused(run: Path, content: str | bytes, told: str) -> None:
    with Replaced(run / "vocabulary.json", content), pytest.raises(RunError, match=told):
        unroll.load(run)


def test_all_problems_of_run_toml_are_told_at_once(run: Path) -> None:
    text = (run / "run.toml").read_text()
    bad = text.replace("hidden = 6", "hiden = 6\ndense_ = 1").replace("layers = 1", "layers = true")
    bad = bad.replace("rows = 3", 'rows = "three"') + "\n[evil]\nrun = 'rm'\n"
    with Replaced(run / "run.toml", bad), pytest.raises(ConfigurationError) as caught:
        unroll.load(run)
    problems = "\n".join(caught.value.problems)
    for told in ("'hiden'. Did you mean hidden?", "dense_", "layers", "rows", "'evil'"):
        assert told in problems
    assert len(caught.value.problems) == 5


def test_all_values_out_of_range_in_run_toml_are_told_at_once(run: Path) -> None:
    text = (run / "run.toml").read_text()
    bad = (
        text.replace("k1 = 4", "k1 = 0").replace("dropout = 0.3", "dropout = nan").replace("hidden = 6", "hidden = -1")
    )
    with Replaced(run / "run.toml", bad), pytest.raises(ConfigurationError) as caught:
        unroll.load(run)
    assert [p.split()[0] for p in caught.value.problems] == ["k1", "hidden", "dropout"]


@pytest.mark.parametrize("content", ["", "[", "x = ", "\x00"])
def test_a_run_toml_that_is_no_toml_is_refused(run: Path, content: str) -> None:
    with Replaced(run / "run.toml", content or "= 3"), pytest.raises(ConfigurationError, match="not valid TOML"):
        unroll.load(run)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"state": 3, "batch": 1}', '{"state": "finished"}', "null"])
def test_a_status_that_is_none_is_refused(run: Path, content: str) -> None:
    with Replaced(run / "status.json", content), pytest.raises(RunError, match=r"status.json is damaged"):
        unroll.load(run)


@pytest.mark.parametrize("content", ["null\n", "[1]\n", "{\n", "{}\n", '{"batch": "x"}\n', "\xff\n"])
def test_metrics_that_are_none_are_refused(run: Path, content: str) -> None:
    with Replaced(run / "metrics.jsonl", content), pytest.raises(RunError, match=r"metrics.jsonl is damaged"):
        unroll.load(run)


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["state", "batch", "kind", "x"]), inner)
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(["vocabulary.json", "status.json", "metrics.jsonl"]), content=JSON)
def test_any_json_in_any_file_is_read_or_refused_in_words(run: Path, name: str, content: Any) -> None:
    with Replaced(run / name, json.dumps(content) + "\n"):
        folder = RunFolder(run)
        told = []
        for read in (lambda: folder.vocabulary, lambda: folder.status, lambda: folder.metrics):
            try:
                read()
            except InputError as error:  # anything else that is raised fails this test
                told.append(str(error))
        assert all(str(run / name) in message for message in told), "a refusal names the file"
