"""All time steps of a layer in one launch, the recurrent weights in registers throughout: bfloat16 on Hopper GPUs.

One cluster of thread blocks serves up to 64 rows of one run (`persistent.cu` says how). Around it stand a few large
products: the input product of the layers above the first, and the weights' gradients. States, sums and the cell's
memory are float32; what the matrix units multiply is bfloat16.

Shapes: M runs, T time, B rows, I inputs, V symbols, H hidden, G = gates · H; S = 4 gate slots of a unit, side by side,
which is how the kernel wants them: those of the LSTM are i, f, c, o; the GRU's are r, u, c towards h·W_h, c towards x.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from unroll import beside, cuda
from unroll.cells import RecurrentCell, State
from unroll.kernels import Layer, Network, States, _cuda
from unroll.precisions import product

ROWS = (16, 32, 64)  # that a cluster may serve
CLUSTERS = 7  # of 16 blocks that an H100 or H200 holds at a time
WIDTHS = (128, 256, 384, 512)  # units a layer
RANK = 3
THREADS = 256


def supports(network: Network, device: torch.device) -> str | None:
    """LSTM and GRU of up to 512 units, in bfloat16, on Hopper."""
    H = network.layers[0].W_h.shape[1]
    if _cuda.number(network.cell) is None:
        return "it knows the cells lstm and gru"
    if network.precision != "bfloat16":
        return f"it computes in bfloat16, and the precision is {network.precision}"
    if WIDTHS[-1] < H or H % 16:
        return f"it takes a multiple of 16 units a layer, up to {WIDTHS[-1]}; here are {H}"
    if device.type != "cuda":
        return "it needs an NVIDIA GPU"
    capability = torch.cuda.get_device_capability(device)
    if capability[0] != 9:
        return f"it needs a Hopper GPU (compute capability 9); this one has {capability[0]}.{capability[1]}"
    return cuda.why_not()


def run(network: Network, ids_MTB: Tensor, first: States, at_M: Tensor) -> tuple[Tensor, States]:
    """All layers over all time steps."""
    own = network.layers[0].W_h.shape[1]
    H = min(width for width in WIDTHS if width >= own)
    layers, at, below = network.layers, [], ids_MTB.to(torch.int32).contiguous()
    if own < H:
        # Units beyond the layer's own have weights 0, so their h is 0 and so is every gradient of theirs.
        layers = tuple(_widened(layer, network.cell.GATES, own, H, n > 0) for n, layer in enumerate(layers))
        first = tuple(tuple(pad(s, (0, H - own)) for s in state) for state in first)
    for layer, state in zip(layers, first, strict=True):
        w_c = layer.extra.get("w_c")
        below, *after = _Layer.apply(
            network.cell, network.clip, torch.is_grad_enabled(), at_M, below, layer.W_x, layer.W_h, layer.b, w_c, *state
        )
        at.append(tuple(s.detach()[..., :own] for s in after))
    return below[..., :own], tuple(at)


def _widened(layer: Layer, gates: int, own: int, H: int, inputs: bool) -> Layer:
    def columns(x: Tensor) -> Tensor:
        return pad(x.unflatten(-1, (gates, own)), (0, H - own)).flatten(-2)

    def rows(x: Tensor) -> Tensor:
        return pad(x, (0, 0, 0, H - own))

    extra = {name: pad(value, (0, H - own)) for name, value in layer.extra.items()}
    W_x = columns(layer.W_x)
    return Layer(rows(W_x) if inputs else W_x, rows(columns(layer.W_h)), columns(layer.b), extra)


class _Code(NamedTuple):
    """What machine code is compiled for, and what its launches need."""

    hidden: int
    rows: int
    cell: int | None
    tiles: int
    chains: int

    @property
    def blocks(self) -> int:
        return self.hidden // (32 * self.tiles)

    @property
    def mail(self) -> int:
        """Bytes of a bfloat16 for every unit and row."""
        return 2 * self.hidden * self.rows

    def function(self, name: str, shared: int = 0) -> cuda.Function:
        defines = {name.upper(): value for name, value in self._asdict().items()}
        return _cuda.module("persistent", {**defines, "APPROXIMATE": 1})[name].allow(shared, self.blocks)

    def packed(self, W_h: Tensor, way: str) -> Tensor:
        """The weights in the order in which threads hold them."""
        M, quads = W_h.shape[0], self.hidden * self.hidden * 4 // 8 // THREADS
        weights = torch.empty(M, quads * THREADS * 8, dtype=torch.bfloat16, device=W_h.device)
        self.function(f"pack_{way}").launch((quads, M), THREADS, W_h, weights)
        return weights

    def inputs(self, W_x: Tensor, b: Tensor) -> Tensor:
        """What each symbol adds to the gates: [M, I, H, S]."""
        M, I = W_x.shape[:2]
        pre_x = torch.empty(M, I, self.hidden, 4, device=W_x.device)
        self.function("pack_inputs").launch((I, M), THREADS, W_x.contiguous(), b.contiguous(), pre_x)
        return pre_x


def _code(cell: RecurrentCell, H: int, M: int, B: int) -> _Code:
    """The division of the work that was fastest on an H200."""
    # Fewer rows a cluster shorten a step, for as long as the chip holds all the clusters at once.
    room = CLUSTERS * 512 // H
    rows = next((r for r in ROWS if r >= B or M * -(-B // r) <= room), ROWS[-1])
    # So do more blocks a cluster; where there are too many clusters, fewer blocks win.
    tiles = 2 if H == 128 and M * -(-B // rows) > 32 else 1
    # While one half of the rows travels, the other computes.
    chains = 2 if H > 128 and rows == ROWS[-1] else 1
    return _Code(H, rows, _cuda.number(cell), tiles, chains)


class _Layer(torch.autograd.Function):
    """One layer over time: what is below it and its parameters in; h over time and the state after step at_M out."""

    @staticmethod
    def forward(
        ctx: Any,
        cell: RecurrentCell,
        clip: float,
        trains: bool,
        at_M: Tensor,
        below: Tensor,
        W_x: Tensor,
        W_h: Tensor,
        b: Tensor,
        w_c: Tensor | None,
        *first: Tensor,
    ) -> State:
        (M, T, B), H, device = below.shape[:3], W_h.shape[1], W_h.device
        code = _code(cell, H, M, B)
        first = tuple(s.contiguous() for s in first)
        if below.dtype == torch.int32:
            ids, pre_x, W_x_MIHS = below, code.inputs(W_x, b), None
        else:
            W_x_MIHS = _slots(W_x, cell.GATES, 3).to(torch.bfloat16)
            products = product(below.flatten(1, 2), W_x_MIHS.flatten(2))
            ids, pre_x = None, products.view(M, T * B, H, 4).add_(_slots(b, cell.GATES, 3).unsqueeze(1))
        h = torch.empty(M, T + 1, B, H, dtype=torch.bfloat16, device=device)
        tiles = -(-B // code.rows)
        elements = M * tiles * T * H * code.rows if trains else 0
        saved = torch.empty(elements, 4, dtype=torch.bfloat16, device=device)
        saved_state = torch.empty(elements, device=device)
        after = tuple(torch.empty(M, B, H, device=device) for _ in first)
        W_h = W_h.contiguous()
        packed, at_M = code.packed(W_h, "forward"), at_M.to(torch.int32)
        beside.begins()
        code.function("forward", 128 + 2 * code.mail).launch(
            (code.blocks, tiles, M), THREADS, packed, pre_x, ids,
            None if w_c is None else w_c.contiguous(), first[0], first[-1], at_M, h,
            saved if trains else None, saved_state if trains else None, after[0], after[-1],
            pre_x.shape[1], T, B,
        )  # fmt: skip
        ctx.code, ctx.cell, ctx.clip, ctx.sizes = code, cell, clip, (M, T, B, H, W_x.shape[1])
        ctx.mark_non_differentiable(*after)
        if trains:
            ctx.W_h = beside.done(lambda: code.packed(W_h, "backward"))
            ctx.ones = beside.done(lambda: _cuda.one_hot(below, W_x.shape[1], h.dtype)) if ids is not None else None
            ctx.save_for_backward(below, W_x_MIHS, w_c, h, saved, saved_state, first[-1])
        return h[:, 1:], *after

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_h: Tensor, *unused: Tensor) -> tuple[Tensor | None, ...]:
        below, W_x_MIHS, w_c, h, saved, saved_state, state_first = ctx.saved_tensors
        (M, T, B, H, I), code, gates = ctx.sizes, ctx.code, ctx.cell.GATES
        tiles, device = -(-B // code.rows), h.device
        d_gates = torch.empty(M, T * B, H * 4, dtype=torch.bfloat16, device=device)
        d_first = tuple(torch.empty(M, B, H, device=device) for _ in ctx.cell.STATES)
        d_w_c = torch.empty(M, tiles, 3, H, device=device)
        d_h = d_h.contiguous()
        beside.wait()
        beside.begins()
        code.function("backward", 128 + 2 * 4 * 32 * code.tiles * code.rows * 2 // code.chains + 2 * code.mail).launch(
            (code.blocks, tiles, M), THREADS, ctx.W_h, d_h, saved, saved_state, state_first,
            None if w_c is None else w_c.contiguous(), d_gates, d_first[0], d_first[-1], d_w_c, ctx.clip, T, B,
        )  # fmt: skip
        beside.catch_up()
        before = h[:, :T].flatten(1, 2).transpose(1, 2)
        d_W_h = _columns(product(before, d_gates).view(M, H, H, 4), gates, 2)
        d_W_x, d_b, d_below = _cuda.input_gradients(
            below, d_gates, None if W_x_MIHS is None else W_x_MIHS.flatten(2), I, ctx.ones
        )
        d_W_x, d_b = (_columns(d.unflatten(-1, (H, 4)), gates, 3) for d in (d_W_x, d_b))
        d_peepholes = d_w_c.sum(1) if w_c is not None else None
        return None, None, None, None, d_below, d_W_x, d_W_h, d_b, d_peepholes, *d_first


def _slots(x: Tensor, gates: int, candidate: int) -> Tensor:
    """[…, G] as [..., H, 4]; of three gates the last stands in slot `candidate`, and the slot left over is 0."""
    x = x.unflatten(-1, (gates, -1)).transpose(-1, -2)
    if gates == 3:
        nothing = torch.zeros_like(x[..., :1])
        x = torch.cat((x, nothing) if candidate == 2 else (x[..., :2], nothing, x[..., 2:]), dim=-1)
    return x.contiguous()


def _columns(x_HS: Tensor, gates: int, candidate: int) -> Tensor:
    """The way back: [..., H, 4] as […, G]."""
    if gates == 3:
        x_HS = torch.cat((x_HS[..., :2], x_HS[..., candidate : candidate + 1]), dim=-1)
    return x_HS.transpose(-1, -2).flatten(-2)
