"""The lines of metrics.jsonl are chained: each carries a digest of itself and of all before it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from commands import tiny_run, unroll

from unroll.runs import metric_lines

ANOTHER = {str(digit): str((digit + 1) % 10) for digit in range(10)}


def evaluations(count: int) -> list[dict[str, object]]:
    """Made-up evaluations, one a batch."""
    return [
        {"batch": n, "sequences": 4 * n, "loss": 2.5 / n, "perplexity": {"windowed": 7.0 + n}, "seconds": 0.25 * n}
        for n in range(1, count + 1)
    ]


def written(count: int) -> list[bytes]:
    """The lines of a file that holds them."""
    lines, before = [], ""
    for metrics in evaluations(count):
        lines.append(metric_lines.write(before, metrics).encode() + b"\n")
        before = metric_lines.link(before, metrics)
    return lines


def test_lines_are_read_as_they_were_written_and_may_be_cut_off_at_any_end() -> None:
    lines = written(4)
    for count in range(5):
        found, last = metric_lines.read(b"".join(lines[:count]))
        assert found == evaluations(count)
        assert last == (json.loads(lines[count - 1])["chain"] if count else "")


@pytest.mark.parametrize("number", range(4))
def test_a_digit_that_was_changed_in_any_line_is_noticed_there(number: int) -> None:
    for value in (b'"loss": ', b'"windowed": ', b'"sequences": '):
        lines = written(4)
        place = lines[number].index(value) + len(value)
        digit = lines[number][place : place + 1].decode()
        lines[number] = lines[number][:place] + ANOTHER[digit].encode() + lines[number][place + 1 :]
        with pytest.raises(ValueError, match=f"line {number + 1:,} is not what was written"):
            metric_lines.read(b"".join(lines))


@pytest.mark.parametrize("lost", range(3))
def test_a_line_that_is_lost_before_others_is_noticed(lost: int) -> None:
    lines = written(4)
    del lines[lost]
    with pytest.raises(ValueError, match=f"line {lost + 1:,} is not what was written"):
        metric_lines.read(b"".join(lines))


def test_a_line_without_its_digest_behind_one_that_has_it_is_noticed() -> None:
    lines = written(3)
    line = json.loads(lines[2])
    del line["chain"]
    lines[2] = json.dumps(line).encode() + b"\n"
    with pytest.raises(ValueError, match="line 3 is not what was written"):
        metric_lines.read(b"".join(lines))


def test_lines_of_an_older_version_carry_no_digests_and_are_read() -> None:
    lines = [json.dumps(metrics).encode() + b"\n" for metrics in evaluations(3)]
    assert metric_lines.read(b"".join(lines))[0] == evaluations(3)


def test_a_changed_digit_is_noticed_where_neither_weights_nor_a_checkpoint_count_the_line(tmp_path: Path) -> None:
    run = tiny_run(tmp_path)
    (run / "weights.safetensors").unlink()
    shutil.rmtree(run / "checkpoints", ignore_errors=True)
    path = run / "metrics.jsonl"
    content = path.read_bytes()
    place = content.index(b'"loss": ') + len(b'"loss": ')
    digit = content[place : place + 1].decode()
    path.write_bytes(content[:place] + ANOTHER[digit].encode() + content[place + 1 :])
    result = unroll("report", run, "--out", tmp_path / "page.html")
    assert result.code == 2
    assert "metrics.jsonl is damaged: line 1 is not what was written" in result.err
