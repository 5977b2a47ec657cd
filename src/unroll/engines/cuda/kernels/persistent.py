"""All time steps of a layer in one launch, the recurrent weights in registers throughout: bfloat16 on Hopper GPUs.

One cluster of thread blocks serves up to 64 rows of one run (see `persistent.cu`). A few large products come before and
after it: the input product of the layers above the first, and the weights' gradients. For the gradients, a row of h has
more columns after its units: a 1 at the token that is read next, if the layer reads tokens, and a 1 in every row. So
one product makes the gradients of W_h, W_x and b. States, sums and the cell's memory are float32; the factors of
products are bfloat16.

Shapes: M runs, T time, B rows, I inputs, V symbols, H hidden, G = gates · H; S = 4 gate slots of a unit, side by side,
as the kernel reads them: the LSTM's are i, f, c, o; the GRU's are r, u, c for h·W_h, c for x·W_x.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from unroll.base.errors import ConfigurationError
from unroll.engines.cuda import cells, compiler, side_stream
from unroll.engines.cuda.products import product
from unroll.model.cells import RecurrentCell, State
from unroll.model.network import Layer, Network, States

ROWS = (16, 32, 64)  # numbers of rows that a cluster may serve
CLUSTERS = 7  # clusters of 16 blocks that an H100 or H200 holds at a time
WIDTHS = (128, 256, 384, 512)  # units of a layer
RANK = 3
THREADS, PORTERS = 256, 128  # threads of a block that compute, and those that carry data
SHARE = 168  # registers of each thread at its launch, before warps divide them anew
GATES = Path(compiler.__file__).with_name("hopper_gates.cu")
TOTALS = 5  # see persistent.cu
MARKS = 16  # the extra columns of h are a multiple of this, so that rows begin where sectors of memory do
ONE_ROW = True  # first states may be [M, 1, H]


def supports(network: Network, device: torch.device) -> str | None:
    """Accept LSTM and GRU of up to 512 units, in bfloat16, on Hopper."""
    H = network.layers[0].W_h.shape[1]
    if device.type != "cuda":
        return "it needs an NVIDIA GPU"
    if cells.number(network.cell) is None:
        return "it knows the cells lstm and gru"
    if network.precision != "bfloat16":
        return f"it computes in bfloat16, and the precision is {network.precision}"
    if WIDTHS[-1] < H or H % 16:
        return f"it takes a multiple of 16 units a layer, up to {WIDTHS[-1]}; here are {H}"
    capability = torch.cuda.get_device_capability(device)
    if capability[0] != 9:
        return f"it needs a Hopper GPU (compute capability 9); this one has {capability[0]}.{capability[1]}"
    return compiler.why_not()


def run(network: Network, ids_MTB: Tensor, first: States, at_M: Tensor) -> tuple[Tensor, States]:
    """Take all layers over all time steps."""
    units = network.layers[0].W_h.shape[1]
    H = min(width for width in WIDTHS if width >= units)
    layers, at = network.layers, []
    below = ids_MTB.to(torch.int32).contiguous()
    if units < H:
        # Padded units have weights of 0, so their h and all their gradients are 0.
        layers = tuple(_widened(layer, network.cell.GATES, units, H, n > 0) for n, layer in enumerate(layers))
        first = tuple(tuple(pad(s, (0, H - units)) for s in state) for state in first)
    for layer, state in zip(layers, first, strict=True):
        w_c = layer.extra.get("w_c")
        below, *after = _Layer.apply(
            network.cell, network.clip, torch.is_grad_enabled(), at_M, below, layer.W_x, layer.W_h, layer.b, w_c, *state
        )
        at.append(tuple(s.detach()[..., :units] for s in after))
    return below[..., :units], tuple(at)


def _widened(layer: Layer, gates: int, units: int, H: int, inputs: bool) -> Layer:
    def columns(x: Tensor) -> Tensor:
        return pad(x.unflatten(-1, (gates, units)), (0, H - units)).flatten(-2)

    def rows(x: Tensor) -> Tensor:
        return pad(x, (0, 0, 0, H - units))

    extra = {name: pad(value, (0, H - units)) for name, value in layer.extra.items()}
    W_x = columns(layer.W_x)
    return Layer(rows(W_x) if inputs else W_x, rows(columns(layer.W_h)), columns(layer.b), extra)


class _Code(NamedTuple):
    """The settings that machine code is compiled for, and the sizes of its launches."""

    hidden: int
    rows: int
    cell: int | None
    tiles: int
    chains: int

    @property
    def blocks(self) -> int:
        return self.hidden // (32 * self.tiles)

    @property
    def back(self) -> _Code:
        """The settings of the backward pass, which is faster with two chains if there are rows for both."""
        return self._replace(chains=2 if self.rows == ROWS[-1] else 1)

    @property
    def mail(self) -> int:
        """Bytes of the mailboxes: two bfloat16 for every unit and row."""
        return 2 * 2 * self.hidden * self.rows

    @property
    def shared_forward(self) -> int:
        """Bytes of shared memory of a block: gates, mailboxes, the tokens of four steps, biases."""
        return 128 + self.mail + 16 * self.rows + 16 * 32 * self.tiles

    @property
    def shared_backward(self) -> int:
        """The same, backward: gates, mailboxes, the block's gradients of two turns, the records of some turns."""
        units, rows = 32 * self.tiles, self.rows // self.chains
        records = 12 * units * rows + rows * (2 * units + 16)
        return 128 + self.mail + 2 * 8 * units * rows + (2 if self.tiles > self.chains else 4) * records

    def function(self, name: str, shared: int = 0) -> compiler.Function:
        defines = {name.upper(): value for name, value in self._asdict().items()}
        function = cells.module("persistent", {**defines, "APPROXIMATE": 1}, GATES)[name].allow(shared, self.blocks)
        if name in ("forward", "backward") and function.registers != SHARE:  # its warps would wait for ever
            raise ConfigurationError(
                f"The kernel persistent was compiled with {function.registers} registers a thread where its warps "
                f"share out {SHARE}. Choose --kernel fused."
            )
        return function

    def launch(self, name: str, count: int, runs: int, *arguments: compiler.Argument) -> None:
        """Launch one of the smaller functions, with `count` threads for each run."""
        self.function(name).launch((-(-count // THREADS), runs), THREADS, *arguments)

    def forward_weights(self, W_h: Tensor, W_x: Tensor | None, b: Tensor) -> tuple[Tensor, Tensor | None]:
        """W_h in the order in which threads hold it; given W_x, also x·W_x + b of each symbol: [M, I, H, S]."""
        M, *_ = W_h.shape
        I = 0 if W_x is None else W_x.shape[1]
        packed = self._packed_memory(W_h)
        pre_x = None
        if W_x is not None:
            pre_x = torch.empty(M, I, self.hidden, 4, device=b.device)
            W_x = W_x.contiguous()
            b = b.contiguous()
        self.launch("pack_forward", packed[0].numel() // 8 + I * THREADS, M, W_h, packed, W_x, b, pre_x, I)
        return packed, pre_x

    def backward_weights(self, W_h: Tensor) -> Tensor:
        """W_h in the order in which threads hold it in the backward pass."""
        packed = self._packed_memory(W_h)
        self.launch("pack_backward", self.hidden // 32 * (self.hidden // 128) * THREADS, len(W_h), W_h, packed)
        return packed

    def _packed_memory(self, W_h: Tensor) -> Tensor:
        return torch.empty(len(W_h), self.hidden * self.hidden * 4, dtype=torch.bfloat16, device=W_h.device)


def _code(cell: RecurrentCell, H: int, M: int, B: int) -> _Code:
    """Choose the division of the work that was fastest on an H200."""
    # Fewer rows a cluster shorten a step, as long as the chip holds all clusters at once.
    fitting_clusters = CLUSTERS * 512 // H
    rows = next((r for r in ROWS if r >= B or M * -(-B // r) <= fitting_clusters), ROWS[-1])
    # More blocks a cluster also shorten it; with too many clusters, fewer blocks win.
    tiles = 2 if H == 128 and M * -(-B // rows) > 32 else 1
    # While one half of the rows travels, the other computes.
    chains = 2 if H > 128 and rows == ROWS[-1] else 1
    return _Code(H, rows, cells.number(cell), tiles, chains)


class _Layer(torch.autograd.Function):
    """One layer over time: its input and parameters in; h over time and the state after step at_M out."""

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
        M, T, B = below.shape[:3]
        H = W_h.shape[1]
        device = W_h.device
        code = _code(cell, H, M, B)
        first = tuple(s.contiguous() for s in first)
        W_h = W_h.contiguous()
        w_c = None if w_c is None else w_c.contiguous()
        ids = below if below.dtype == torch.int32 else None
        packed, pre_x = code.forward_weights(W_h, None if ids is None else W_x, b)
        W_x_MIHS = bias = None
        if pre_x is None:
            W_x_MIHS = _slots(W_x, cell.GATES).to(torch.bfloat16)
            # The kernel adds the bias: here it would be a pass over what may be gigabytes.
            pre_x = product(below.flatten(1, 2), W_x_MIHS.flatten(2)).view(M, T * B, H, 4)
            bias = _slots(b, cell.GATES)
        symbols = 0 if ids is None else W_x.shape[1]
        W = H + (-(-(symbols + 1) // MARKS) * MARKS if trains else 0)
        h = torch.empty(M, T + 1, B, W, dtype=torch.bfloat16, device=device)
        tiles = -(-B // code.rows)
        elements = M * tiles * T * H * code.rows if trains else 0
        saved = torch.empty(elements, 4, dtype=torch.bfloat16, device=device)
        saved_state = torch.empty(elements, device=device)
        after = tuple(torch.empty(M, B, H, device=device) for _ in first)
        strides = first[0].stride(0), _row_stride(first)
        # Two chains exchange h through memory.
        exchange = torch.empty(M * tiles * code.mail if code.chains > 1 else 0, dtype=torch.uint8, device=device)
        side_stream.begins()
        code.function("forward", code.shared_forward).launch(
            (code.blocks, tiles, M), THREADS + PORTERS, packed, pre_x, ids, bias, w_c, first[0], first[-1],
            at_M.long(), h, saved if trains else None, saved_state if trains else None, after[0], after[-1],
            exchange, *strides, W, pre_x.shape[1], T, B,
        )  # fmt: skip
        ctx.code, ctx.cell, ctx.clip, ctx.sizes = code, cell, clip, (M, T, B, H, W, W_x.shape[1])
        ctx.mark_non_differentiable(*after)
        ctx.set_materialize_grads(False)  # gradients of the states after step at_M would be zeros
        if trains:
            ctx.W_h = side_stream.done(lambda: code.backward_weights(W_h))
            side_stream.done(lambda: code.launch("mark", 2 * T * B, M, ids, h, W, symbols, T * B, (T + 1) * B))
            ctx.save_for_backward(below, W_x_MIHS, w_c, h, saved, saved_state, *first)
        return h[:, 1:, :, :H], *after

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_h: Tensor, *unused: None) -> tuple[Tensor | None, ...]:
        below, W_x_MIHS, w_c, h, saved, saved_state, *first = ctx.saved_tensors
        (M, T, B, H, W, I), code, G = ctx.sizes, ctx.code, ctx.cell.GATES * ctx.sizes[3]
        tiles, device = -(-B // code.rows), h.device

        def memory(*shape: int) -> Tensor:
            return torch.empty(M, *shape, device=device)

        d_gates = torch.empty(M, T * B, H * 4, dtype=torch.bfloat16, device=device)
        d_first = tuple(torch.empty_like(s) for s in first)
        totals = memory(tiles, TOTALS, H)
        d_h = d_h.contiguous()
        side_stream.wait()
        side_stream.begins()
        code.back.function("backward", code.back.shared_backward).launch(
            (code.blocks, tiles, M), THREADS + PORTERS, ctx.W_h, d_h, saved, saved_state, first[-1], w_c, d_gates,
            d_first[0], d_first[-1], totals, ctx.clip, first[0].stride(0), _row_stride(first), T, B,
        )  # fmt: skip
        side_stream.catch_up()
        sums = product(h[:, :T].flatten(1, 2).transpose(1, 2), d_gates)
        d_W_h = memory(H, G)
        d_W_x = memory(I, G)
        d_b = memory(G)
        d_w_c = None if w_c is None else memory(3, H)
        # A first state that all rows share has one gradient, which is in the totals.
        d_shared = () if _row_stride(first) else d_first
        results = (d_W_h, d_W_x, d_b, *(*d_shared, None, None)[:2], d_w_c)
        symbols = 0 if W_x_MIHS is not None else I
        code.launch("settle", (H + symbols + 1 + TOTALS) * H // 4, M, sums, totals, *results, W, H, symbols, tiles)
        d_below = None
        if W_x_MIHS is not None:
            d_below = torch.bmm(d_gates, W_x_MIHS.flatten(2).transpose(1, 2)).view(below.shape)
            sums = product(below.flatten(1, 2).transpose(1, 2), d_gates)
            no_results = (None,) * 4
            code.launch("settle", I * H // 4, M, sums, None, None, d_W_x, *no_results, I, 0, I, 0)
        return None, None, None, None, d_below, d_W_x, d_W_h, d_b, d_w_c, *d_first


def _row_stride(first: Sequence[Tensor]) -> int:
    """The stride of the rows of first states; 0 if all rows start from one state."""
    return first[0].stride(1) if first[0].shape[1] > 1 else 0


def _slots(x: Tensor, gates: int) -> Tensor:
    """[…, G] as [..., H, 4]; the last of three gates goes to the last slot, which is for x·W_x."""
    x = x.unflatten(-1, (gates, -1)).transpose(-1, -2)
    if gates == 3:
        x = torch.cat((x[..., :2], torch.zeros_like(x[..., :1]), x[..., 2:]), dim=-1)
    return x.contiguous()
