"""`unroll bench`, end to end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench_cases import a_record, is_picture
from commands import unroll

from unroll.studies.benchmark import floors, machine, record

SMALL = ["--device", "cpu", "--threads", "1", "--architectures", "1x8", "--procedures", "single-loss", "--fleet", "2"]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(floors.SIZES, "cpu", 64)


def test_bench_measures_shows_each_row_records_and_draws(tmp_path: Path) -> None:
    made, drawn = tmp_path / "a.json", tmp_path / "a.png"
    result = unroll("bench", *SMALL, "--quick", "--seconds", 0.001, "--json", made, "--picture", drawn)
    assert result.code == 0, result.err
    lines = [line for line in result.err.splitlines() if line.startswith("1x8 ")]
    assert len(lines) == 3
    assert all(" ms " in line for line in lines)
    assert is_picture(drawn)
    content = json.loads(made.read_text())
    assert [row["contestant"] for row in content["rows"]] == ["unroll", "unroll-fleet", "lstm-eager"]
    assert [row["runs"] for row in content["rows"]] == [1, 2, 1]
    assert all(len(row["ms"]) == 2 and row["kernel"] and row["precision"] == "float32" for row in content["rows"])
    assert {"torch", "processor", "threads", "clocks"} <= set(content["machine"])

    again, second = tmp_path / "b.json", tmp_path / "b.png"
    redrawn = unroll("bench", "--from", made, "--picture", second, "--json", again)
    assert redrawn.code == 0, redrawn.err
    assert redrawn.out == result.out
    assert second.read_bytes() == drawn.read_bytes()
    assert again.read_text() == made.read_text()


def test_bench_scaling_draws_four_panels(tmp_path: Path) -> None:
    made, drawn = tmp_path / "a.json", tmp_path / "a.png"
    options = ["--scaling", "--quick", "--blocks", 1, "--seconds", 0.001, "--only", "1x*unroll *"]
    result = unroll("bench", "--device", "cpu", *options, "--json", made, "--picture", drawn)
    assert result.code == 0, result.err
    assert is_picture(drawn)
    content = json.loads(made.read_text())
    assert content["mode"] == "scaling"
    assert {row["shape"]["hidden"] for row in content["rows"]} == {32, 64, 128, 256}


def test_bench_profile_names_operations_whose_shares_sum_to_1(tmp_path: Path) -> None:
    made = tmp_path / "a.json"
    result = unroll("bench", *SMALL, "--profile", "--contestants", "lstm-eager", "--json", made)
    assert result.code == 0, result.err
    content = json.loads(made.read_text())
    assert content["what"] == "1x8 single-loss lstm-eager float32"
    assert sum(event["share"] for event in content["events"]) == pytest.approx(1)
    assert any("mm" in event["name"] for event in content["events"])
    assert unroll("bench", "--from", made).out == result.out
    content["steps"] = 0
    made.write_text(json.dumps(content))
    refused = unroll("bench", "--from", made)
    assert (refused.code, "damaged profile" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--architectures", "512"], "An architecture is layers x hidden"),
        (["--procedures", "multiloss"], "Did you mean multi-loss?"),
        (["--contestants", "cudnn"], "Did you mean cudnn-half?"),
        (["--fleet", "many"], "--fleet takes numbers"),
        (["--fleet", "0"], "A fleet has at least 1 run"),
        (["--precision", "float7"], "precision must be one of"),
        (["--kernel", "stakced"], "unroll: kernel must be one of"),
        (["--kernel", "stakced"], "Did you mean stacked?"),
        (["--only", "gru"], "Nothing is left to measure"),
        (["--device", "cpu", "--contestants", "cudnn-half"], "Nothing is left to measure"),
        (["--device", "tpu"], "device must be"),
        (["--json", "/nowhere/a.json"], "there is no folder"),
        (["--json", "."], "is a folder"),
        (["--json", "--quick"], "--json must end in .json. Got --quick."),
        (["--picture", "a.gif"], "--picture must end in"),
        (["--from", "/nowhere.json"], "cannot be read"),
        (["--from", "."], "is a folder"),
        (["--scaling", "--profile"], "choose one"),
        (["--seconds", "0"], "--seconds"),
        (["--architecture", "1x8"], "--architectures"),
    ],
)
def test_bad_input_gets_one_clear_message_and_exit_2(options: list[str], words: str) -> None:
    result = unroll("bench", *options)
    assert result.code == 2, result.err
    assert words in result.err
    assert result.out == ""


def test_a_refused_precision_is_named_and_left_out(tmp_path: Path) -> None:
    made = tmp_path / "a.json"
    options = [
        "--precision",
        "float32,float7",
        "--contestants",
        "unroll",
        "--quick",
        "--seconds",
        0.001,
        "--json",
        made,
    ]
    result = unroll("bench", *SMALL, *options)
    assert result.code == 0, result.err
    assert "left out: precision must be one of" in result.err
    assert {row["precision"] for row in json.loads(made.read_text())["rows"]} == {"float32"}


def test_a_profile_has_no_picture(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"format": 1, "mode": "profile"}')
    refused = unroll("bench", "--from", tmp_path / "a.json", "--picture", tmp_path / "a.png")
    assert (refused.code, "no picture" in refused.err) == (2, True)


def test_a_record_from_another_machine_is_shown_without_it(tmp_path: Path) -> None:
    record.write(a_record(), tmp_path / "a.json")
    result = unroll("bench", "--from", tmp_path / "a.json", "--picture", tmp_path / "a.png")
    assert result.code == 0, result.err
    assert "Unroll, fleet of 21" in result.out
    assert "No module named 'flashrnn'" in result.err


def test_help_of_bench_explains_itself_and_imports_no_torch() -> None:
    script = """
import sys
from unroll.__main__ import main
sys.argv = ["unroll", "bench", "--help"]
try:
    main()
finally:
    heavy = {"torch", "numpy", "matplotlib", "rich"} & set(sys.modules)
    assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "ms a run-batch" in " ".join(done.stdout.split())
    assert "--scaling" in done.stdout


def test_clocks_are_read_where_the_drivers_tool_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    cuda = torch.device("cuda", 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.clocks(cuda) == {}
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho '1980 MHz, 1980 MHz, 3201 MHz, 95.1 W, 34, 580.1'\n")
    tool.chmod(0o755)
    assert machine.clocks(cuda) == dict(
        zip(machine.QUERY, ("1980 MHz", "1980 MHz", "3201 MHz", "95.1 W", "34", "580.1"), strict=True)
    )
    assert machine.clocks(torch.device("cpu")) == {}
    tool.write_text("#!/bin/sh\nexit 1\n")
    assert machine.clocks(cuda) == {}
