"""One new file is a new option: it is used from the command line by its name, and recorded under it."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from commands import TINY, unroll
from dropping import dropped_in
from helpers import check_all_close, check_identical

from unroll import Corpus, Decoding, Request, Scheme, load, sample, sample_all
from unroll.base import plugins
from unroll.base.errors import ConfigurationError
from unroll.corpus.synthetic import Markov
from unroll.engines.cpu.engine import CpuEngine
from unroll.experiment.scheme import parse_training
from unroll.runs.folder import RunFolder
from unroll.training.loop import train_fleet


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text(Markov().text(3000))
    return path


@pytest.fixture(autouse=True)
def dropped() -> Iterator[None]:
    """A file of each family stands beside Unroll's own."""
    with dropped_in():
        yield


def trained(folder: Path, *options: object) -> tuple[RunFolder, str]:
    """A run of three batches with these options, and what was said."""
    result = unroll("train", *options, "--batches", 3, *TINY, "--out", folder / "run")
    assert result.code == 0, result.err
    return RunFolder(folder / "run"), result.err


def swept(folder: Path, *options: object) -> list[dict[str, str]]:
    """The table of a sweep of three batches a run."""
    result = unroll("sweep", *options, "--batches", 3, *TINY, "--out", folder / "sweep")
    assert result.code == 0, result.err
    with open(folder / "sweep" / "table.csv") as file:
        return list(csv.DictReader(file))


def test_a_loss_weighting_and_a_state_origin_are_named_and_recorded_as_what_they_are(
    corpus: Path, tmp_path: Path
) -> None:
    procedure = "loss=middle,state=from-zeros"
    run, said = trained(tmp_path, corpus, "--train", procedure)
    assert f"{procedure} training" in said
    scheme = run.experiment.scheme
    assert (scheme.loss, scheme.state, scheme.scored, scheme.training) == ("middle", "from-zeros", 5, procedure)
    assert unroll("eval", run.path).code == 0
    assert {row["training"] for row in swept(tmp_path, corpus, "--train", procedure)} == {procedure}
    (name,) = (path.name for path in (tmp_path / "sweep" / "runs").iterdir())
    assert "conditional" not in name
    assert "middle" in name


@pytest.mark.parametrize("kernel", ["reference", "stacked", "auto"])
def test_a_cell_that_leaves_out_the_state_trains_is_sampled_and_says_that_it_runs_plainly(
    kernel: str, corpus: Path, tmp_path: Path
) -> None:
    run, said = trained(tmp_path, corpus, "--cell", "mingru", "--kernel", kernel)
    assert "the fast engine here does not know the cell mingru: computed plainly" in said
    assert run.experiment.cell == "mingru"
    assert run.status["plain"] == ["the cell mingru"]
    assert unroll("sample", run.path, "--prompt", "abc", "--length", 9).code == 0
    assert unroll("eval", run.path).code == 0


def test_a_cell_is_swept_beside_ours_and_ours_say_nothing_of_plain_computing(corpus: Path, tmp_path: Path) -> None:
    rows = swept(tmp_path, corpus, "--cell", "mingru,gru", "--most", 1)
    assert {row["cell"]: row["state"] for row in rows} == {"mingru": "finished", "gru": "finished"}
    runs = {run.experiment.cell: run for path in (tmp_path / "sweep" / "runs").iterdir() if (run := RunFolder(path))}
    assert runs["mingru"].status["plain"] == ["the cell mingru"]
    assert "plain" not in runs["gru"].status


def test_an_optimiser_that_remembers_nothing_trains_and_goes_on_from_its_checkpoint(
    corpus: Path, tmp_path: Path
) -> None:
    whole, said = trained(tmp_path, corpus, "--optimiser", "descent")
    assert "does not know the optimiser descent" in said
    assert whole.experiment.optimiser == "descent"
    text = Corpus.open(str(corpus))
    with closing(train_fleet([whole.experiment], [text], [tmp_path / "left"])) as events:
        for event in events:
            if event.learner.count == 2:
                break
    left = RunFolder(tmp_path / "left")
    checkpoint = left.checkpoint(left.checkpoints()[-1])
    assert checkpoint.batch == 2
    assert not any(name.startswith("optimiser.") for name in checkpoint.tensors)
    assert unroll("train", "--resume", left.path).code == 0
    check_identical(left.weights()[0], whole.weights()[0])


def test_a_schedule_moves_the_rate_by_its_own_keys_and_is_swept_beside_ours(corpus: Path, tmp_path: Path) -> None:
    run, _ = trained(tmp_path, corpus, "--schedule", "waves,period=2,low=0.25", "--learning-rate", 0.1)
    assert run.experiment.schedule == "waves,period=2,low=0.25"
    assert [line["learning_rate"] for line in run.metrics] == pytest.approx([0.1, 0.025, 0.1])
    rows = swept(tmp_path, corpus, "--schedule", "waves,period=2,cosine,final=0.5,constant")
    assert {row["schedule"] for row in rows} == {"waves,period=2", "cosine,final=0.5", "constant"}


def test_a_procedure_that_looks_at_half_a_window_is_scored_and_sampled_by_its_name(
    corpus: Path, tmp_path: Path
) -> None:
    run, said = trained(tmp_path, corpus, "--train", "multi-loss", "--sample", "half-window")
    assert "half-window  perplexity" in said
    assert run.experiment.scheme.sample == "half-window"
    assert set(run.metrics[-1]["perplexity"]) == {"half-window", "windowed", "progressive"}
    result = unroll("sample", run.path, "--prompt", "abcabc", "--length", 9, "--json")
    assert json.loads(result.out)["samples"][0]["procedure"] == "half-window"
    rows = swept(tmp_path, corpus, "--train", "multi-loss", "--sample", "half-window,windowed")
    assert sorted(row["sample"] for row in rows) == ["half-window", "windowed"]


def test_a_token_kind_reads_a_corpus_and_a_prompt(tmp_path: Path) -> None:
    (tmp_path / "capitals.txt").write_text("Tea and TEA and tea. " * 100)
    run, said = trained(tmp_path, tmp_path / "capitals.txt", "--kind", "folded")
    assert "(folded), 7 different" in said
    assert run.experiment.kind == run.vocabulary.kind == "folded"
    result = unroll("sample", run.path, "--prompt", "TEA", "--length", 9)
    assert result.out.strip().islower()


def test_a_kernel_computes_what_it_must_and_is_recorded(corpus: Path, tmp_path: Path) -> None:
    run, _ = trained(tmp_path, corpus, "--kernel", "rows-apart")
    assert run.experiment.kernel == run.status["kernel"] == "rows-apart"
    (tmp_path / "other").mkdir()
    other, _ = trained(tmp_path / "other", corpus, "--kernel", "reference")
    check_all_close(run.weights()[0], other.weights()[0], 1e-5)


def test_a_launcher_trains_what_local_trains(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    options = (corpus, "--k2", "10,12", "--launcher")
    assert swept(tmp_path, *options, "last-first") == swept(tmp_path / "local", *options, "local")


def test_a_tracker_is_told_the_lines_of_metrics_and_the_end(corpus: Path, tmp_path: Path) -> None:
    run, _ = trained(tmp_path, corpus, "--track", "one-list")
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    told = plugins.load("trackers", "one-list").TOLD
    assert told.pop("run") == [*({k: v for k, v in line.items() if k != "chain"} for line in lines), "finished"]
    rows = swept(tmp_path, corpus, "--k1", "4,5", "--track", "one-list")
    assert set(told) == {row["run"] for row in rows}


def test_a_decoding_control_is_an_option_an_argument_and_a_field(corpus: Path, tmp_path: Path) -> None:
    run, _ = trained(tmp_path, corpus)
    said = unroll("sample", "--help").out
    assert "--top-a" in said
    assert "Only tokens at least a times as likely as the likeliest squared." in " ".join(said.split())
    assert "temperature, top-k, top-p, min-p, top-a." in " ".join(said.split())
    plain, strict = (
        json.loads(unroll("sample", run.path, "--prompt", "abc", "--length", 40, "--json", *more).out)["samples"][0]
        for more in ((), ("--top-a", 1, "--temperature", 0.05))
    )
    assert plain["tokens"] != strict["tokens"]
    loaded = load(run.path)
    assert sample(loaded, "abc", length=40, top_a=1, temperature=0.05).tokens == strict["tokens"]
    assert sample_all(loaded, [Request("abc", 40, Decoding(0.05, top_a=1))])[0].tokens == strict["tokens"]
    assert "top_a=1" in repr(Decoding(top_a=1))
    refused = unroll("sample", run.path, "--top-a", 2)
    assert (refused.code, refused.err) == (2, "unroll: top-a must be between 0 and 1. Got 2.0.\n")
    refused = unroll("sample", run.path, "--beams", 3, "--top-a", 0.5)
    assert "A beam search draws nothing, so it takes no top-a." in refused.err


def test_a_control_that_a_devices_loop_does_not_know_is_drawn_by_the_host_and_that_is_said(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = trained(tmp_path, corpus)
    asked = []
    # A device whose numbers cost a wait is one that draws by itself.
    monkeypatch.setattr(CpuEngine, "looks_cost_nothing", False)
    monkeypatch.setattr(CpuEngine, "draws", lambda *arguments: asked.append(arguments))
    known = unroll("sample", run.path, "--prompt", "abc", "--length", 5, "--top-k", 3)
    assert (known.code, len(asked)) == (0, 1)
    assert "the host draws" not in known.err
    unknown = unroll("sample", run.path, "--prompt", "abc", "--length", 5, "--top-a", 0.5)
    assert (unknown.code, len(asked)) == (0, 1)
    assert "the host draws each token, which takes longer: cpu does not know top-a." in unknown.err


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
