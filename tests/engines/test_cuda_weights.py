"""The layout of a GPU's weights: each lane reads its terms and columns, and nothing is lost."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import re

import numpy as np
import pytest
import torch
from helpers import every_cell, random_model, tiny
from hypothesis import given
from hypothesis import strategies as st

from unroll.engines.cuda.steppers import device_steps, machine, one_stream
from unroll.engines.cuda.steppers.weights import (
    FROM_X,
    LOW,
    MOST_OF_A_HALF,
    Place,
    Weights,
    can_be_halves,
    halves,
    matrices_of_tiles,
    pack,
    pack_halves,
    rows_of_tiles,
    tiles_of_halves,
    tiles_of_matrices,
    tiles_of_rows,
)
from unroll.engines.torch.stepper import Rows
from unroll.experiment.decoding import Decoding
from unroll.model import cells
from unroll.model.head import LEAK
from unroll.model.model import Model
from unroll.model.steppers import Seat

V = 7


@given(st.integers(1, 70), st.integers(1, 40), st.booleans())
def test_a_lane_finds_its_terms_of_its_columns(K: int, N: int, across: bool) -> None:
    W_KN = torch.arange(1.0, K * N + 1).view(K, N)
    packed = pack(W_KN, across)
    assert packed.count_nonzero() == K * N
    k, n = K - 1, N - 1
    lane = 8 * (n % 16 // 4) + k % 32 // 4
    outer, inner = (k % 4, n % 4) if across else (n % 4, k % 4)
    assert packed[n // 16, k // 32, outer, lane, inner] == W_KN[k, n]


def matrix_product(W_chunk: torch.Tensor, x_chunk: torch.Tensor) -> torch.Tensor:
    """m16n8k16 by its definition of the elements of both matrices and of the result that lane 4·g + t holds."""
    A, B, D = torch.zeros(16, 16).double(), torch.zeros(16, 8).double(), torch.zeros(32, 4).double()
    for lane in range(32):
        g, t = divmod(lane, 4)
        for register in range(4):
            for n in range(2):
                A[g + register % 2 * 8, 2 * t + n + register // 2 * 8] = W_chunk[lane, register, n]
                if register < 2:
                    B[2 * t + n + register * 8, g] = x_chunk[lane, register, n]
    C = A @ B
    for lane in range(32):
        g, t = divmod(lane, 4)
        D[lane] = torch.stack((C[g, 2 * t], C[g, 2 * t + 1], C[g + 8, 2 * t], C[g + 8, 2 * t + 1]))
    return D


@given(st.integers(1, 40), st.integers(1, 9))
def test_a_matrix_unit_finds_the_weights_of_a_units_gates_and_the_rows_terms(K: int, units: int) -> None:
    generator = torch.Generator().manual_seed(K * units)
    W_KN, x_BK = torch.randn(K, 4 * units, generator=generator), torch.randn(8, K, generator=generator)
    rows = tiles_of_halves(torch.nn.functional.pad(x_BK, (0, -K % 32)))[0]
    packed = pack_halves(W_KN)
    assert packed.shape == pack(W_KN, across=True).shape, "halves take as much room as floats"
    chunks = packed.flatten(1).view(torch.float16).unflatten(1, (-1, 2, 32, 4, 2)).double()
    lanes = (
        rows.flatten(1).view(torch.float16).unflatten(1, (32, 4, 2)).double()
    )  # chunk, lane, pair of high or low, term
    truth = x_BK.double() @ W_KN.double()
    for group in range(-(-units // 4)):
        D = torch.zeros(32, 4).double()
        for W, x in zip(chunks[group], lanes, strict=True):
            low = matrix_product(W[0], x[:, 2:]) + matrix_product(W[1], x[:, :2])
            D += matrix_product(W[0], x[:, :2]) + low / LOW
        for lane in range(32):  # as gates_of in engines/cuda/steppers/halves.cu
            odd, other = lane // 4 % 2, lane ^ 4
            of_lane, of_other = D[lane, odd::2], D[other, odd::2]
            gates = torch.stack((of_other, of_lane) if odd else (of_lane, of_other), 1).flatten()
            row, unit = lane % 4 * 2 + odd, 4 * group + lane // 8
            if unit < units:
                assert torch.allclose(gates, truth[row, 4 * unit : 4 * unit + 4], rtol=0, atol=1e-5)


@given(st.floats(-(2.0**15), 2.0**15, width=32))
def test_halves_have_22_bits_of_a_number_whatever_its_size(value: float) -> None:
    high, low = (half.double() for half in halves(torch.tensor([value])))
    assert abs(high + low / LOW - value) <= max(2.0**-22 * abs(value), 2.0**-36)


@given(st.integers(1, 20), st.integers(1, 4))
def test_rows_come_out_of_tiles_as_they_went_in(rows: int, chunks: int) -> None:
    before = torch.arange(1.0, rows * chunks * 16 + 1).view(1, rows, chunks, 16)
    tiles = tiles_of_rows(before)
    assert tiles.shape[1:] == (-(-rows // 8), chunks, 8, 16)
    after = rows_of_tiles(tiles)
    assert torch.equal(after[:, :rows], before)
    assert not after[:, rows:].any()


@pytest.mark.parametrize("bad", [MOST_OF_A_HALF, -MOST_OF_A_HALF, np.inf, np.nan])
@pytest.mark.parametrize("name", ["layers.0.W_h", "layers.1.W_x", "layers.0.h0"])
def test_weights_beyond_half_precision_are_noticed(name: str, bad: float) -> None:
    model = random_model([tiny(layers=2)], [V])
    assert can_be_halves(model)
    model.parameters[name].data[0, ..., 0] = bad
    assert not can_be_halves(model)


def product(weights: Weights, place: Place, x_BK: torch.Tensor, across: bool = False) -> torch.Tensor:
    """x·W with the weights at a place, read as the kernel reads them."""
    W = weights.flat[place.weights :][: place.groups * place.floats].view(place.groups, place.parts, 4, 4, 8, 4)
    term, column = (2, 5) if across else (5, 2)
    W_KN = W.permute(1, 4, term, 0, 3, column).reshape(
        place.parts * 32, place.groups * 16
    )  # part l term, group g column
    assert x_BK.shape[1] == W_KN.shape[0]
    return x_BK @ W_KN


def step(model: Model, weights: Weights, ids_B: torch.Tensor, states: list[list[torch.Tensor]]) -> torch.Tensor:
    """Do the kernel's steps for one token in torch; change the states and return the logits."""
    below, H, flat = None, weights.H, weights.flat
    for place, state in zip(weights.places, states, strict=False):
        table = flat[place.bias :]
        x = table[: V * 4 * H].view(-1, 4 * H)[ids_B] if below is None else table[: 4 * H].expand(len(ids_B), -1)
        whole = state[0] if below is None else torch.cat((state[0], below), 1)
        x, a = (v.unflatten(1, (H, 4)).unbind(-1) for v in (x, product(weights, place, whole, across=True)))
        kind = model.experiments[0].cell
        if kind == "rnn":
            state[0] = torch.tanh(x[0] + a[0])
        elif kind == "gru":
            pre_x, pre_h = torch.cat((x[0], x[1], x[3] + a[3]), 1), torch.cat(a[:3], 1)
            (state[0],), _ = model.cell.forward(pre_x, pre_h, (state[0],), {})
        else:
            peepholes = flat[place.peepholes : place.peepholes + 3 * H].view(3, H)
            state[:], _ = model.cell.forward(torch.cat(x, 1), torch.cat(a, 1), tuple(state), {"w_c": peepholes})
        below = state[0]
    dense, out = weights.places[-2:]
    x = torch.nn.functional.leaky_relu(product(weights, dense, below) + flat[dense.bias :][: weights.D], LEAK)
    return (product(weights, out, x) + flat[out.bias :][: weights.padded_V])[:, :V]


@every_cell
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("hidden", [5, 32, 33])
def test_multiplying_like_the_kernel_gives_the_models_logits(
    cell: str, peepholes: str, layers: int, hidden: int
) -> None:
    model = random_model([tiny(cell=cell, peepholes=peepholes, layers=layers, hidden=hidden, dense=9)], [V])
    weights, truth = Weights(model), Rows(model, 5, "progressive")
    first = [(place.first_h, place.first_c)[: len(model.cell.STATES)] for place in weights.places[:layers]]
    states = [[weights.flat[s : s + weights.H].expand(2, -1) for s in starts] for starts in first]
    truth.begin(2)
    for ids in ([1, 2], [0, 6], [3, 3]):
        truth.read(np.array(ids))
        logits = step(model, weights, torch.tensor(ids), states)
        assert np.allclose(logits.numpy(), truth.logits(), rtol=0, atol=1e-12)
    for layer in states:
        for s in layer:
            assert not s[:, hidden:].any(), "padding stays 0"


@pytest.mark.parametrize("room", [0, 40_000, 70_000, 10**9])
@pytest.mark.parametrize("blocks", [3, 200])
def test_weights_kept_in_a_block_fit_and_do_not_overlap(room: int, blocks: int) -> None:
    weights = Weights(random_model([tiny(hidden=70, dense=130, layers=2)], [V]))
    places, used = weights.resident(blocks, room)
    assert used <= room
    kept = sorted((p.resident, p.resident + -(-p.groups // blocks) * p.floats) for p in places if p.resident >= 0)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(kept))
    assert used == 4 * max((end for _, end in kept), default=0)
    assert all(p.weights % 4 == p.bias % 4 == 0 for p in places), "lanes read 16 bytes at a time"
    if room == 10**9:
        assert len(kept) == len(places)


def test_a_seat_gives_the_kernel_all_settings_of_its_draws() -> None:
    row = np.zeros(1, machine.ROW)
    prompt = np.array([1, 2, 3])
    device_steps.fill(row[0], Seat(7, prompt, Decoding(), 2**63 - 1))
    assert row[0].tolist() == (7, 9, 0, 2**63 - 1, 1.0, 2.0, -np.inf, 0)
    device_steps.fill(row[0], Seat(7, prompt[:1], Decoding(0.5, top_k=10**30, top_p=1.0, min_p=1.0), 0))
    assert row[0].tolist() == (7, 7, 0, 0, 0.5, 1.0, 0.0, device_steps.FAR)


def test_numbers_that_stand_in_python_and_in_the_kernel_agree() -> None:
    code = "".join(piece.read_text() for piece in machine.ON_HOPPER)
    assert machine.ROW.itemsize == 64
    assert ctypes.sizeof(machine._Arguments) == 15 * 8 + 8 + 13 * 4 + 4 + 4 + 4, "and 4 to a multiple of 8"
    assert f"#define WARPS {machine.WARPS}\n" in code
    assert f"#define ALONE_WARPS {machine.ALONE_WARPS} " in code
    assert f"#define MOST_LAYERS {machine.MOST_LAYERS}\n" in code
    assert f"#define RNN {machine.RNN}\n" in code
    assert f"#define SCRATCH {one_stream.SCRATCH // 16} " in code
    assert f"#define GROUPS {one_stream.GROUPS} " in code
    assert f"#define MOST_TILES {one_stream.MOST_TILES} " in code
    assert f"#define MOST_SLOTS {one_stream.MOST_SLOTS} " in code
    assert f"#define EARLY {one_stream.EARLY} " in code
    assert f"else product<{one_stream.MOST_AT_ONCE}>(" in code
    bringers = re.search(r"#define BRINGERS (\d+)\n#define WINDOWS_WARPS \(2 \* GROUPS \+ BRINGERS \+ 1\)", code)
    assert bringers
    assert 2 * one_stream.GROUPS + int(bringers[1]) + 1 == machine.WINDOWS_WARPS >= machine.ALONE_WARPS
    assert f"#define LOW {LOW}f " in code
    assert f"#define COPIES {machine.COPIES} " in code
    assert f"#define HELD {machine.MOST_HELD // 32} " in code
    assert f"#define TILE {one_stream.TILE}\n" in code
    assert one_stream.WARPS == one_stream.FOR_THE_HEAD == machine.ALONE_WARPS
    assert one_stream.FOR_ONE == machine.ALONE_WARPS - 1, "the last may be a chooser"
    assert machine.MOST_ALONE * 4 == one_stream.SCRATCH, "a row of `one` fits into a warp's own"
    fields = re.search(r"struct Place \{.*?\n\};", code, re.DOTALL)
    assert fields
    named = re.findall(r"\w+(?=[,;])", re.sub(r"//.*", "", fields[0]))
    assert named == [field.name for field in dataclasses.fields(Place)]


@every_cell
def test_every_cell_has_an_arrangement(cell: str, peepholes: str) -> None:
    assert type(cells.load(cell, peepholes)) in FROM_X


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 3))
def test_a_matrix_of_hopper_has_of_eight_rows_the_terms_that_lanes_bring_of_a_chunk(
    tiles: int, chunks: int, seed: int
) -> None:
    torch.manual_seed(seed)
    rows = torch.randn(tiles * 8, chunks * 16)
    packed = tiles_of_halves(rows)
    matrices = matrices_of_tiles(packed)
    assert torch.equal(tiles_of_matrices(matrices), packed)
    words = matrices.view(torch.float16).unflatten(-1, (4, 2))  # chunk, tile, high and low by 2, row, t, two terms
    for half, values in enumerate(halves(rows)):
        for chunk, tile, pair in itertools.product(range(chunks), range(tiles), range(2)):
            in_matrix = words[chunk, tile, 2 * half + pair].flatten(1)  # as put_in_matrices writes it
            terms = [16 * chunk + 4 * t + 2 * pair + n for t in range(4) for n in range(2)]
            assert torch.equal(in_matrix, values[8 * tile : 8 * tile + 8, terms])
