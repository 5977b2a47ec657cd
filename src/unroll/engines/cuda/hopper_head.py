"""The model's head in bfloat16 on a Hopper GPU: one launch each way, and a product for each weight's gradient.

See `hopper_head.cu`. `why_not` says what fits this head; `head.py` computes everything else.

Shapes: M runs, N scored rows (positions × rows of a batch), H hidden, D dense, V vocabulary; S = V padded to a multiple
of 32, with weights of 0 and gradients of 0 for the padding.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unroll.engines.cuda import compiler, dropout_masks, side_stream
from unroll.engines.cuda.dropout_masks import OUT, Dropout
from unroll.engines.cuda.products import multiply_into

SOURCES = (
    dropout_masks.SOURCE,
    *(Path(__file__).with_name(f"hopper_{name}.cu") for name in ("gates", "products", "head")),
)
GROUP = 32  # columns that are renumbered together
ROWS = 64  # rows of a warpgroup
MOST_UNITS, MOST_SYMBOLS = 512, 128  # the most whose sums and factors fit into a thread's registers
MOST_SHARED = 227 * 1024  # the most bytes of a block's shared memory
# A thread has 255 registers with two warpgroups a block, and 168 with three; this many may hold factors and sums.
HELD, HELD_BY_THREE = 208, 136


class _Way(NamedTuple):
    """The settings that one direction is compiled for."""

    back: int
    hidden: int
    symbols: int
    chunk: int
    groups: int
    stages: int
    outer: int
    drops: int
    leak: float

    @property
    def weights(self) -> int:
        """Bytes of a chunk's weights."""
        inner = self.symbols if self.back else self.hidden
        return 2 * self.chunk * (inner + self.outer) + (0 if self.back else 4 * self.chunk)

    def shared(self, D: int) -> int:
        # Behind the ring: sums over the rows of each warp; forward, out_b and the targets.
        behind = 4 * self.groups * (D + self.symbols) if self.back else self.symbols + ROWS * self.groups
        return 128 + self.stages * self.weights + 4 * behind

    def function(self, name: str, shared: int = 0) -> compiler.Function:
        defines = {name.upper(): value for name, value in self._asdict().items()}
        code = compiler.Module.load(SOURCES, {**defines, "REAL": "bf16", "LEAK": f"{self.leak}f"})
        return code[name].allow(shared)

    def arranged(self, dense_W: Tensor, dense_b: Tensor, out_W: Tensor) -> Tensor:
        """Arrange the weights in the order in which they travel through a block."""
        (M, _, D), V = dense_W.shape, out_W.shape[2]
        chunks = D // self.chunk
        arranged = torch.empty(M * chunks * self.weights, dtype=torch.uint8, device=dense_W.device)
        blocks = -(-chunks * self.weights // ((64 if self.back else 16) * 256))
        self.function("arrange").launch((blocks, M), 256, dense_W, dense_b, out_W, arranged, D, V)
        return arranged

    def launch(self, M: int, N: int, D: int, *arguments: compiler.Argument) -> None:
        name = "head_backward" if self.back else "head_forward"
        shared = self.shared(D)
        self.function(name, shared).launch((self.blocks(N), M), 128 * self.groups, *arguments)

    def blocks(self, N: int) -> int:
        """The number of blocks for each run."""
        return -(-N // (ROWS * self.groups))


def _way(back: bool, M: int, N: int, H: int, D: int, V: int, drops: bool, leak: float) -> _Way:
    """Choose how one direction divides its work."""
    S = -(-V // GROUP) * GROUP
    inner, outer = (S, H) if back else (H, S)

    def held(chunk: int) -> int:
        return inner // 4 + outer // 2 + chunk // 2 + chunk // 4

    if back and held(64) > HELD:
        outer = 0  # d_h is then a product of its own
    chunk = 64 if held(64) <= HELD else 32
    groups = 3 if held(chunk) <= HELD_BY_THREE else 2
    # If all rows of all runs are too few to give every multiprocessor a group, each block has one group.
    tiles = M * -(-N // ROWS)
    if tiles <= torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count:
        groups = 1
    way = _Way(int(back), H, S, chunk, groups, 4, outer, int(drops), leak)
    return way if way.shared(D) <= MOST_SHARED else way._replace(stages=3)


def why_not(h_MNH: Tensor, dense_W: Tensor, out_W: Tensor, precision: str) -> str | None:
    """The reason why this head cannot be computed here; None if it can."""
    (M, N, H), D, V = h_MNH.shape, dense_W.shape[2], out_W.shape[2]
    if precision != "bfloat16":
        return f"it computes in bfloat16, and the precision is {precision}"
    if h_MNH.device.type != "cuda" or torch.cuda.get_device_capability(h_MNH.device)[0] != 9:
        return "it needs a Hopper GPU (compute capability 9)"
    if H % GROUP or H > MOST_UNITS:
        return f"it takes a multiple of {GROUP} hidden units, up to {MOST_UNITS}; here are {H}"
    if D % 64:
        return f"it takes a multiple of 64 dense units; here are {D}"
    if V > MOST_SYMBOLS:
        return f"it takes up to {MOST_SYMBOLS} symbols; here are {V}"
    if any(_way(back, M, N, H, D, V, False, 0.0).shared(D) > MOST_SHARED for back in (False, True)):
        return f"a block's shared memory does not hold the sums over its rows of {D} dense units"
    return None


def nll(
    h_MNH: Tensor,
    dense_W: Tensor,
    dense_b: Tensor,
    out_W: Tensor,
    out_b: Tensor,
    targets_MN: Tensor,
    dropout: Dropout,
    leak: float,
) -> Tensor:
    """The negative log-likelihood of every target: [M, N]."""
    trains = torch.is_grad_enabled()
    nll_MN: Tensor = _Head.apply(h_MNH, dense_W, dense_b, out_W, out_b, targets_MN, dropout, leak, trains)
    return nll_MN


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        dense_W: Tensor,
        dense_b: Tensor,
        out_W: Tensor,
        out_b: Tensor,
        targets: Tensor,
        dropout: Dropout,
        leak: float,
        trains: bool,
    ) -> Tensor:
        M, N, H = h.shape
        D = dense_W.shape[2]
        V = out_W.shape[2]
        device = h.device
        way = _way(False, M, N, H, D, V, dropout.any, leak)
        h = dropout.dropped(h.to(torch.bfloat16))
        if h.stride(2) != 1 or h.stride(1) % 8 or h.stride(0) % 8 or h.data_ptr() % 16:
            h = h.clone(memory_format=torch.contiguous_format)  # rows are read 16 bytes at a time
        dense_W = dense_W.contiguous()
        dense_b = dense_b.contiguous()
        out_W = out_W.contiguous()
        likelihood = torch.empty(M, N, device=device)
        x = wrong = positive = kept = None
        if trains:
            x = torch.empty(M, N, D, dtype=torch.bfloat16, device=device)
            # Softmax − one-hot: how wrong every symbol's probability is.
            wrong = torch.empty(M, N, way.symbols, dtype=torch.bfloat16, device=device)
            bits = torch.empty(1 + dropout.any, M, -(-N // ROWS) * ROWS, D // 8, dtype=torch.uint8, device=device)
            positive = bits[0]
            kept = bits[1] if dropout.any else None
        weights = (dense_W, dense_b, out_W)
        arranged = side_stream.done(lambda: way.arranged(*weights))
        if trains:
            back = _way(True, M, N, H, D, V, dropout.any, leak)
            # For the backward pass, and for its one large product for which the launch has no registers.
            ctx.arranged = side_stream.done(lambda: back.arranged(*weights))
            ctx.dense_W = None if back.outer else side_stream.done(lambda: dense_W.to(h.dtype).transpose(1, 2))
        side_stream.wait()
        way.launch(
            M, N, D, h, arranged, out_b.contiguous(), targets.to(torch.int32).contiguous(),
            *dropout[:3], OUT, likelihood, x, wrong, positive, kept, h.stride(0), h.stride(1), N, D, V,
        )  # fmt: skip
        ctx.save_for_backward(h, x, wrong, positive, kept)
        ctx.dropout, ctx.leak, ctx.sizes = dropout, leak, (D, V)
        return likelihood

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, ...]:
        h, x, wrong, positive, kept = ctx.saved_tensors
        (M, N, H), (D, V), device = h.shape, ctx.sizes, h.device
        way = _way(True, M, N, H, D, V, ctx.dropout.any, ctx.leak)
        d_x = torch.empty_like(x)
        d_logits = torch.empty_like(wrong)
        d_h = torch.empty(M, N, H, dtype=h.dtype, device=device) if way.outer else None
        d_b = torch.empty(M, way.blocks(N), D + way.symbols, device=device)
        way.launch(
            M, N, D, wrong, d.contiguous(), ctx.arranged, ctx.dropout.rates_M, positive, kept,
            d_logits, d_x, d_h, d_b, N, D,
        )  # fmt: skip
        if d_h is None:
            d_h = torch.bmm(d_x, ctx.dense_W)
        d_dense_W = torch.empty(M, H, D, device=device)
        d_out_W = torch.empty(M, D, way.symbols, device=device)
        d_dense_b = torch.empty(M, D, device=device)
        d_out_b = torch.empty(M, V, device=device)

        def weight_gradients() -> None:
            multiply_into(d_out_W, x.transpose(1, 2), d_logits)
            multiply_into(d_dense_W, h.transpose(1, 2), d_x)
            grid = -(-(D + V) // 256), M
            way.function("add_up").launch(grid, 256, d_b, d_dense_b, d_out_b, way.blocks(N), D, V)

        side_stream.later(weight_gradients)  # nothing else in the backward pass needs them
        return ctx.dropout.dropped(d_h), d_dense_W, d_dense_b, d_out_W[..., :V], d_out_b, None, None, None, None
