"""Every file of a run, a sweep and a cache as everything that it should not be, against every command that reads it.

Nothing outside the folder changes, nothing hangs, memory stays bounded, there is no traceback, and no result is wrong
in silence: a command ends as it does with a folder in order, or says what is wrong.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from lived import Ended, Worker
from world import TRAINING, World, as_json, fingerprint, make, results

Right = Callable[[str], object]  # what a command comes to with everything in order
SWEPT = "given/sweep/runs/corpus-multi-loss-k1_4-k2_8-lstm1x8-seed0"
CUT = "given/sweep/runs/corpus-multi-loss-k1_4-k2_9-lstm1x8-seed0"
OF_A_RUN = ("run.toml", "status.json", "vocabulary.json", "metrics.jsonl", "weights.safetensors", "best.safetensors")

# What reads a part of what is given, and how its result is looked at.
RESUME, RESUME_SWEEP = "train --resume {given}/half --json", "sweep --resume {given}/sweep --quiet"
READING_A_RUN = (
    "eval {given}/run --json",
    "eval {given}/run --weights best --json",
    "sample {given}/run --prompt abc --length 5 --json",
    "score {given}/run {corpus} --json",
    "drift {given}/run --json",
    "memorised {given}/run {corpus} --json",
    "train --resume {given}/run --json",
    "export {given}/run --onnx {out}/step.onnx",
    "report {given}/run {given}/half --out {out}/page.html",
)
READING_HALF = (
    RESUME,
    "eval {given}/half --json",
    "sample {given}/half --prompt abc --length 5 --json",
    "report {given}/half {given}/run --out {out}/page.html",
)
READING_WHAT_IS_TOLD = ("train --resume {given}/half --track tensorboard --json", RESUME)
READING_A_SWEEP = (
    RESUME_SWEEP,
    "report {given}/sweep {given}/run --out {out}/page.html",
    "sweep --resume {given}/sweep --plan --json",
    "sweep --status {given}/sweep --json",
)
TRAIN = "train {corpus} --out {out}/new " + TRAINING
READING_IDS = (TRAIN, "eval {given}/run --json", "data info {corpus} --json")
READING_SUFFIXES = ("memorised {given}/run {corpus} --json",)


def cases() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every file and folder, with the commands that read it."""
    for name in (*OF_A_RUN, "perplexity.png", "checkpoints", "status.json.partial", "weights.safetensors.partial"):
        yield f"given/run/{name}", READING_A_RUN
    for name in (*OF_A_RUN[:-2], "checkpoints", "perplexity.png", "metrics.jsonl.partial", "run.toml.partial"):
        yield f"given/half/{name}", READING_HALF
    for name in ("tensorboard", "tensorboard/EVENTS", "tracking.json"):
        yield f"given/half/{name}", READING_WHAT_IS_TOLD
    for name in ("batch-000000006.safetensors", "batch-000000007.safetensors", "batch-000000008.safetensors"):
        yield f"given/half/checkpoints/{name}", READING_HALF
    for name in (
        *("sweep.json", "plan.json", "failures.json", "fleets.json", "table.csv", "table.json"),
        *("table.csv.partial", "runs"),
    ):
        yield f"given/sweep/{name}", READING_A_SWEEP
    for folder in (SWEPT, CUT):
        yield folder, READING_A_SWEEP
        for name in (*OF_A_RUN, "checkpoints"):
            yield f"{folder}/{name}", READING_A_SWEEP
    yield "given/cache/corpora/INDEX", READING_IDS
    yield "given/cache/corpora/IDS", READING_IDS
    yield "given/cache/suffixes/ORDER", READING_SUFFIXES


# --- what stands in its place ---------------------------------------------------------------------------------------


def kept(path: Path, world: World) -> Path:
    """The real thing, moved into somebody's own folder: what reads it through a link finds all in order."""
    target = world.mine / path.name
    if path.exists():
        path.rename(target)
    else:
        target.write_text("precious")
    return target


def link(path: Path, world: World) -> None:
    path.symlink_to(kept(path, world))


def link_to_a_folder(path: Path, world: World) -> None:
    absent(path, world)
    path.symlink_to(world.mine)


def link_to_nowhere(path: Path, world: World) -> None:
    absent(path, world)
    path.symlink_to(world.mine / "made.txt")


def second_name(path: Path, world: World) -> None:
    if path.is_dir():
        for one in path.iterdir():
            if one.is_file():
                os.link(kept(one, world), one)
        return
    os.link(kept(path, world), path)


def pipe(path: Path, world: World) -> None:
    absent(path, world)
    os.mkfifo(path)


def socket_file(path: Path, world: World) -> None:
    absent(path, world)
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's path has at most 107 letters
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)


def device(path: Path, world: World) -> None:
    absent(path, world)
    os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))  # as /dev/zero, which never ends


def folder(path: Path, world: World) -> None:
    absent(path, world)
    path.mkdir()
    (path / "note.txt").write_text("hello")


def sparse(path: Path, world: World) -> None:
    absent(path, world)
    with open(path, "wb") as file:
        file.truncate(10 * 2**30)


def absent(path: Path, world: World) -> None:
    """Moved away whole, so that what is gone is known."""
    if path.exists():
        path.rename(world.path / "taken away")


def empty(path: Path, world: World) -> None:
    absent(path, world)
    path.touch()


def huge(path: Path, world: World) -> None:
    content = path.read_bytes() if path.is_file() else b'{"a": 1}\n'
    absent(path, world)
    path.write_bytes(content * (100_000_000 // len(content)))


def huge_and_wide(path: Path, world: World) -> None:
    absent(path, world)
    path.write_bytes(b'{"kind": "chars", "symbols": [' + b"1," * 24_000_000 + b"1]}")


def deep(path: Path, world: World) -> None:
    absent(path, world)
    path.write_bytes(b'{"a":' * 100_000)


def deep_toml(path: Path, world: World) -> None:
    absent(path, world)
    path.write_bytes(b"a = " + b"[" * 60_000)


def long_key(path: Path, world: World) -> None:
    absent(path, world)
    path.write_bytes(b".".join([b"a"] * 30_000) + b" = 1")


def noise(path: Path, world: World) -> None:
    absent(path, world)
    path.write_bytes(os.urandom(5_000))


KINDS: dict[str, Callable[[Path, World], None]] = {
    one.__name__: one
    for one in (
        link, link_to_a_folder, link_to_nowhere, second_name, pipe, socket_file, device, folder, sparse, absent, empty,
        huge, huge_and_wide, deep, deep_toml, long_key, noise,
    )
}  # fmt: skip
if os.geteuid() != 0:
    del KINDS["device"]  # only root makes one, and only root can send one
SELDOM = {"huge", "huge_and_wide", "sparse"}  # tried against fewer commands: they take their time to be made


# --- the tests ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    one = Worker()
    yield one
    one.stop()


@pytest.fixture(scope="module")
def right(original: World, worker: Worker, tmp_path_factory: pytest.TempPathFactory) -> Right:
    """What each command comes to with everything in order."""

    @cache
    def comes_to(words: str) -> object:
        world = original.copied(tmp_path_factory.mktemp("right"))
        ended = world.run(worker, words)
        assert ended.complaint() is None, (words, ended)
        return outcome(words, world, ended)

    return comes_to


def outcome(words: str, world: World, ended: Ended) -> object:
    """What a command that went well came to: what it printed for a program, and what it made."""
    made: list[object] = []
    if words == RESUME:
        made.append(results(world.given / "half"))
    if words == RESUME_SWEEP:
        made += [(world.given / "sweep/table.csv").read_bytes(), results(world.path / SWEPT), results(world.path / CUT)]
    if words == TRAIN:
        made.append(results(world.path / "new"))
    if words.startswith("export"):
        made.append((world.path / "step.onnx").read_bytes())
    if words.startswith("report"):
        made.append((world.path / "page.html").read_text())
    return (as_json(ended, world) if "--json" in words and words != RESUME else None, made)


def placed(name: str, world: World) -> Path:
    """Where a case's file lies; files of the cache are named after what they hold, event files after the time."""
    path = world.path / name
    if name.endswith("EVENTS"):
        (found,) = path.parent.iterdir()
        return found
    if name.endswith(("INDEX", "IDS", "ORDER")):
        (found,) = (one for one in path.parent.iterdir() if (one.suffix == ".json") == name.endswith("INDEX"))
        return found
    return path


def complaint(words: str, world: World, right: Right, mine: dict[str, str], worker: Worker) -> str | None:
    """Run a command on a folder that is not in order; what it did that it must not do."""
    ended = world.run(worker, words)
    if wrong := ended.complaint():
        return wrong
    if fingerprint(world.mine) != mine:
        return f"it touched somebody's own folder: {ended}"
    if ended.code == 0 and outcome(words, world, ended) != right(words):
        page = world.path / "page.html"
        said = page.exists() and ("left out" in page.read_text() or "run.toml was changed" in page.read_text())
        if not ended.err.strip() and not said:
            return f"another result, and not a word: {ended}"
    return None


def wrongs(
    name: str, kind: str, commands: tuple[str, ...], original: World, right: Right, worker: Worker, at: Path
) -> list[str]:
    """What goes wrong with one file as something else, with each command that reads it."""
    found = []
    for words in commands:
        world = original.copied(at)
        path = placed(name, world)
        KINDS[kind](path, world)
        if wrong := complaint(words, world, right, fingerprint(world.mine), worker):
            found.append(f"{words} with {name} as {kind}: {wrong}")
        shutil.rmtree(at)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_file_of_a_stranger_does_harm(
    kind: str, original: World, right: Right, worker: Worker, tmp_path: Path
) -> None:
    found = []
    for name, commands in cases():
        few = commands[:1] if kind in SELDOM else commands
        found += wrongs(name, kind, few, original, right, worker, tmp_path / "world")
    assert not found, "\n".join(found)


# --- flipped bits ---------------------------------------------------------------------------------------------------

FLIPS = 2_000  # over all files


def flipped() -> list[str]:
    """The files whose bits are flipped: all that a command reads."""
    names = [name for name, _ in cases()]
    never = (
        "perplexity.png", "checkpoints", "tensorboard", "EVENTS", "tracking.json", ".partial", "runs", "table.csv",
        "table.json", "-seed0",
    )  # fmt: skip
    return [
        name
        for name in names
        if not name.endswith(never)
        and "000008" not in name
        and not (name.startswith(CUT) and name.endswith(("weights.safetensors", "best.safetensors")))
    ]


def flip(path: Path, drawn: random.Random) -> str:
    content = bytearray(path.read_bytes())
    place = drawn.randrange(8 * len(content))
    content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)
    return f"bit {place % 8} of byte {place // 8}"


def check_flips(
    name: str, number: int, original: World, right: Right, worker: Worker, at: Path, few: bool = False
) -> None:
    """Each command that reads the file, or `few` of them, says what it would have said, or that something is wrong."""
    drawn, found = random.Random(f"{name} {int(few)}"), []
    commands = dict(cases())[name]
    if few:
        commands = (drawn.choice(commands),)
    for _ in range(number):
        state = drawn.getstate()
        for words in commands:
            drawn.setstate(state)
            world = original.copied(at)
            where = flip(placed(name, world), drawn)
            if wrong := complaint(words, world, right, fingerprint(world.mine), worker):
                found.append(f"{words} with {where} of {name} flipped: {wrong}")
            shutil.rmtree(at)
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", flipped())
def test_no_flipped_bit_gives_another_result_in_silence(
    name: str, original: World, right: Right, worker: Worker, tmp_path: Path
) -> None:
    check_flips(name, -(-FLIPS // len(flipped())), original, right, worker, tmp_path / "world")


def test_a_sample_of_all_this_does_no_harm(original: World, right: Right, worker: Worker, tmp_path: Path) -> None:
    """A few of each, for every change; the rest takes minutes."""
    drawn, found = random.Random(0), []
    commands = dict(cases())
    for kind in KINDS:
        if kind in SELDOM:
            continue
        for name in drawn.sample(list(commands), 2):
            one = (drawn.choice(commands[name]),)
            found += wrongs(name, kind, one, original, right, worker, tmp_path / "world")
    assert not found, "\n".join(found)
    for name in flipped():
        check_flips(name, 1, original, right, worker, tmp_path / "world", few=True)
