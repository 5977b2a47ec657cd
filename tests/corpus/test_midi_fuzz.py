"""Mutated MIDI files in a watched process: notes or a reason, never a traceback, a death, a hang or a flood."""

from __future__ import annotations

import random
import signal
import struct
from collections.abc import Iterator

import pytest
from midi_files import Event, midi, number, off, on, tempo, track_of
from watched import Watched, check_answers

STATUSES = (0x80, 0x90, 0x91, 0x99, 0xA0, 0xB0, 0xC0, 0xD0, 0xE0, 0xF0, 0xF1, 0xF2, 0xF3, 0xF4, 0xF7, 0xF8, 0xFF)
DELTAS = (0, 1, 14, 15, 480, 2**14, 2**21, 2**28 - 1, 2**28, 2**63, 2**69, 2**80, 10**18 * 960)
RAW = (b"\xff" * 5_000, b"\x80" * 5_000, b"\xff\x2f\0", b"MTrk", b"\xf0\xff\xff\xff\x7f", b"\xff\x51\x03\0\0\0")
File = tuple[int, int, list[list[Event]]]  # format, division, tracks


def original(generator: random.Random) -> File:
    """A small file with a bit of everything."""
    clock: list[Event] = [(0, b"\xff\x03\x05clock"), (0, b"\xff\x58\x04\x04\x02\x18\x08"), (0, b"\xff\x59\x02\0\0")]
    clock += [tempo(generator.randrange(2000), generator.randrange(200_000, 1_500_000)) for _ in range(4)]
    tracks = [clock]
    for channel in (0, 1, 9):
        track: list[Event] = [(0, bytes((0xC0 | channel, 0))), (0, b"\xf0\x04\x7e\x7f\x09\xf7")]
        for _ in range(generator.randrange(5, 40)):
            pitch = generator.randrange(30, 90)
            track.append(on(generator.choice((0, 5, 120, 240)), pitch, channel))
            if generator.random() < 0.5:
                track.append((generator.randrange(200), bytes((pitch, 0))))  # running status
            else:
                track.append(off(generator.randrange(200), pitch))
        track.append((3, b"\xff\x05\x02la"))
        tracks.append(track)
    return 1, generator.choice((96, 480, 0xE728, 0xE350)), tracks


def with_changed_events(track: list[Event], generator: random.Random) -> None:
    """One change that a parser meets inside a track."""
    place = generator.randrange(len(track))
    delta, message = track[place]
    kind = generator.randrange(9)
    if kind == 0:  # a pitch, a velocity, a length or the like
        inside = generator.randrange(len(message))
        value = generator.randrange(128) if generator.random() < 0.7 else generator.randrange(256)
        message = message[:inside] + bytes((value,)) + message[inside + 1 :]
    elif kind == 1:
        delta = generator.choice(DELTAS)
    elif kind == 2:
        delta = generator.randrange(2 ** generator.randrange(1, 24))
    elif kind == 3:  # another status byte over the same data
        message = (
            bytes((generator.choice(STATUSES) | generator.randrange(16) * (generator.random() < 0.3),)) + message[1:]
        )
    elif kind == 4:  # running status where there may be none
        message = message[1:] or message
    elif kind == 5:
        message = tempo(0, generator.choice((0, 1, 7, 500_000, 0xFFFFFF)))[1]
    elif kind == 6:
        track.insert(place, track[generator.randrange(len(track))])
    elif kind == 7 and len(track) > 1:
        del track[place]
        return
    else:
        other = generator.randrange(len(track))
        track[place], track[other] = track[other], track[place]
        return
    track[place] = delta, message


def with_changed_bytes(content: bytes, generator: random.Random) -> bytes:
    """One change that knows nothing of MIDI, or only of its header and track lengths."""
    data = bytearray(content)
    kind, place = generator.randrange(6), generator.randrange(len(data))
    if kind == 0:
        data[place] = generator.randrange(256)
    elif kind == 1:
        del data[place : place + generator.choice((1, 1, 2, 50))]
    elif kind == 2:
        data[place:place] = generator.choice(RAW)
    elif kind == 3:
        del data[place:]
    elif kind == 4:  # a track's claimed length
        start = data.find(b"MTrk", generator.randrange(len(data) // 2)) + 4
        length = int.from_bytes(data[start : start + 4]) + generator.choice((-9, -1, 1, 9, 2**20))
        data[start : start + 4] = struct.pack(">L", length % 2**32)
    else:  # format, number of tracks, division
        inside = 8 + 2 * generator.randrange(3)
        data[inside : inside + 2] = generator.choice((b"\0\0", b"\0\1", b"\0\2", b"\x7f\xff", b"\x80\0", b"\xe7\x28"))
    return bytes(data)


def mutants(count: int, seed: int) -> Iterator[bytes]:
    generator = random.Random(seed)
    for _ in range(count):
        form, division, tracks = original(generator)
        raw = generator.random() < 0.25
        for _ in range(0 if raw else generator.choice((1, 1, 1, 2, 2, 3, 8))):
            with_changed_events(generator.choice(tracks), generator)
        content = midi(*tracks, division=division, form=form)
        yield with_changed_bytes(content, generator) if raw else content


@pytest.fixture
def watched() -> Iterator[Watched]:
    worker = Watched("midi")
    yield worker
    worker.stop()


def check_mutants(watched: Watched, count: int, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    answers = check_answers(watched, mutants(count, seed))
    with capsys.disabled():
        print(f"\n{count:,} mutated MIDI files: {dict(answers)}, {watched.peak:.1f} MiB over the base")
    assert answers["read"] >= 0.4 * count, "most mutants must get past the front door"
    assert answers["refused"] >= 0.1 * count, "and some must be really broken"


def test_300_mutated_files_are_read_or_refused_in_words(watched: Watched, capsys: pytest.CaptureFixture[str]) -> None:
    check_mutants(watched, 300, 1, capsys)


@pytest.mark.slow
def test_20000_mutated_files_are_read_or_refused_in_words(watched: Watched, capsys: pytest.CaptureFixture[str]) -> None:
    check_mutants(watched, 20_000, 2, capsys)


def test_the_watch_sees_a_death_a_hang_and_memory(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watched.SECONDS", 0.3)
    for signal_number in (signal.SIGSEGV, signal.SIGSTOP):
        watched.process.send_signal(signal_number)
        assert watched.read(b"MThd") == "death"
    assert [death.partition(":")[0] for death in watched.deaths] == ["died with -11", "no answer in 0.3 s"]
    monkeypatch.undo()
    assert watched.read(b"MThd") == "refused"
    assert watched.read(midi([on(1, 60)] * 30_000)) == "read"
    assert watched.peak > 1, "30,000 notes take more than a mebibyte"


@pytest.mark.parametrize(
    "track",
    [
        b"\xff" * 2**20 + b"\0",
        b"\0\xff\x01" + b"\xff" * 2**20,
        b"\0\xf0\xff\xff\x7f" + b"\x7f" * (2**21 - 1),
        b"\0\xff\x51\x03\x07\xa1\x20" * 100_000,
        b"\0\xf8" * 300_000,
        b"\0\x90\x3c\x40" + b"\x01\x3c\x40" * 60_000,
    ],
    ids=["endless delta time", "endless length", "2 MB of exclusive", "tempos", "realtime", "notes"],
)
def test_a_file_made_to_cost_time_or_memory_costs_little(watched: Watched, track: bytes) -> None:
    header = midi()[:10] + b"\0\1" + midi()[12:14]
    check_answers(watched, iter([header + b"MTrk" + struct.pack(">L", len(track)) + track]))


def test_the_mutator_builds_what_it_means_to() -> None:
    assert number(2**28 - 1) == b"\xff\xff\xff\x7f"
    assert track_of([(128, b"\xf8")]) == b"MTrk\0\0\0\x03\x81\0\xf8"
