"""The LSTM on the CPU, its time loops compiled on the spot: see `machine_code.py` and `_lstm_code.py`.

A thread takes its rows of a layer through all time steps in one call: no step waits for another thread or for Python,
and everything pointwise is one pass over numbers that the product has just left in the cache; so are the gradients of
the weights, of which each thread adds up a share. Where a thread has few rows that would be too much to add up: then
threads divide the columns of one large product, after the loop.

A row's numbers depend on that row alone, so a run's are the same alone and in a fleet.

Shapes: M runs, T time, B rows, N = T·B, I inputs, H hidden (in here padded to whole vectors), G = 4·H gate columns,
V symbols, P parts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unroll import machine_code, parts, team
from unroll.cells import State, lstm
from unroll.kernels import Network, States
from unroll.panels import grown, packed, padded, panel, start
from unroll.products import BLOCK, room_for, terms_of
from unroll.shares import Shares
from unroll.spare import take

RANK = 3
OWN = 16  # rows of a part that are worth a gradient of all recurrent weights of its own


def supports(network: Network, device: torch.device) -> str | None:
    """The LSTM with any peepholes, on the CPU."""
    if device.type != "cpu":
        return f"it is made for the CPU, and this device is {device.type}"
    if not isinstance(network.cell, lstm.Cell):
        return "it knows only the LSTM"
    return None if machine_code.available() else machine_code.MISSING


def run(network: Network, ids_MTB: Tensor, first: States, at_M: Tensor) -> tuple[Tensor, States]:
    """All layers over all time steps."""
    return run_last(network, ids_MTB, first, at_M, ids_MTB.shape[1])


def run_last(network: Network, ids_MTB: Tensor, first: States, at_M: Tensor, K: int) -> tuple[Tensor, States]:
    """The same, but of the top layer's h only those of the last K steps, so that nothing arrives at the others."""
    at: list[State] = []
    x, keep, top = ids_MTB, torch.is_grad_enabled(), len(network.layers) - 1
    for n, (layer, state) in enumerate(zip(network.layers, first, strict=True)):
        w_c, wanted = layer.extra.get("w_c"), K if n == top else ids_MTB.shape[1]
        settings = _Settings(network.cell.peepholes, network.clip, network.precision == "bfloat16", keep, wanted)
        x, *after = _Layer.apply(settings, at_M, x, layer.W_x, layer.W_h, layer.b, w_c, *state)
        at.append(tuple(after))
    return x, tuple(at)


class _Settings(NamedTuple):
    """How a layer computes."""

    peepholes: str
    clip: float
    narrow: bool  # products are of bfloat16
    keep: bool  # what the way back needs
    wanted: int  # of how many steps, the last ones, h is


class _Layer(torch.autograd.Function):
    """One layer over time: ids or the h below, parameters, first state in; the last h, and h and c after at_M."""

    @staticmethod
    def forward(
        ctx: Any,
        settings: _Settings,
        at_M: Tensor,
        x: Tensor,
        W_x: Tensor,
        W_h: Tensor,
        b: Tensor,
        w_c: Tensor | None,
        h_first: Tensor,
        c_first: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        from unroll.kernels._lstm_code import columns, forward_for

        M, T, B = x.shape[:3]
        own_H, dtype, narrow = W_h.shape[1], W_h.dtype, settings.narrow
        H = padded(own_H, dtype)
        G, bits = 4 * H, 8 * dtype.itemsize
        looks = not x.is_floating_point()
        W_x, W_h, b = columns(W_x, H), columns(grown(W_h, 1, H), H), columns(b, H)
        w = W_h.new_zeros(M, 3, H) if w_c is None else grown(w_c, 2, H).contiguous()
        gates_MTBG, t_MTBH = take((M, T, B, G), dtype), take((M, T, B, H), dtype)
        h_all, c_all = (take((M, T + 1, B, H), dtype) for _ in range(2))
        h_all[:, 0], c_all[:, 0] = grown(h_first, 2, H), grown(c_first, 2, H)
        if looks:
            K, x, brought, below = 0, x.contiguous(), W_x + b.unsqueeze(1), x.new_empty(0)
        else:
            K = padded(x.shape[3], dtype)
            x, brought, below = grown(x, 3, K).contiguous(), b.contiguous(), packed(grown(W_x, 1, K), narrow=narrow)
        of_run = (gates_MTBG, h_all, c_all, t_MTBH, packed(W_h, narrow=narrow), w, brought, x, below)
        step = forward_for(bits, settings.peepholes, looks, narrow)
        rows = _stretches(B, 1)
        room_PM = take((len(rows), M, room_for(_most(rows), max(H, K), narrow)), dtype)
        calls = []
        for m in range(M):
            own = [start(x, m) for x in of_run]
            calls += [
                (*own, start(room, m), part.start, part.stop - part.start, T, B, H, K)
                for part, room in zip(rows, room_PM, strict=True)
            ]
        team.do(step, calls)
        h_at, c_at = (_after(s[..., :own_H], at_M.tolist(), settings.keep) for s in (h_all, c_all))
        ctx.mark_non_differentiable(h_at, c_at)
        ctx.set_materialize_grads(False)  # none arrive at those two, and no zeros need be made for them
        if settings.keep:
            ctx.settings = settings, own_H, w_c is not None
            ctx.held = gates_MTBG, t_MTBH, c_all, h_all, w
            ctx.save_for_backward(x, W_x, W_h)
        return h_all[:, T + 1 - settings.wanted :, :, :own_H], h_at, c_at

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor, *_at: None) -> tuple[Tensor | None, ...]:
        from unroll.kernels._lstm_code import backward_for

        x, W_x, W_h = ctx.saved_tensors
        (peepholes, clip, narrow, *_), own_H, has_peepholes = ctx.settings
        gates_MTBG, t_MTBH, c_all, h_all, w = ctx.held
        ctx.held = ()  # the gradients of the sums take the gates' place
        M, T, B, G = gates_MTBG.shape
        H, dtype = G // 4, gates_MTBG.dtype
        d_out = grown(d_out, 3, H).contiguous()
        d_h, d_c = (W_h.new_empty(M, B, H) for _ in range(2))
        looks = not x.is_floating_point()
        if looks:
            K, below, d_x = W_x.shape[1], x.new_empty(0), x.new_empty(0)
        else:
            K = x.shape[3]
            below, d_x = packed(grown(W_x, 1, K), True, narrow), take(tuple(x.shape), dtype)
        rows = _stretches(B, 1)
        P = len(rows)
        weighs = B >= P * OWN
        # Each part adds up its own share of the weights' gradients.
        sizes = ((3, H), (H, G) if weighs else (0,), (K, G) if weighs else (0,), (0,) if looks else (G,))
        shares = Shares(P, [(M, *size) for size in sizes], dtype)
        of_run = (gates_MTBG, c_all, t_MTBH, d_out, d_h, d_c, packed(W_h, True, narrow), w)
        step = backward_for(8 * dtype.itemsize, peepholes, looks, weighs, narrow)
        room_PM = take((P, M, room_for(_most(rows), G, narrow)), dtype)
        bound = W_h.new_tensor(clip)
        calls = []
        for m in range(M):
            own, inputs = ([start(x, m) for x in some] for some in (of_run, (x, below, d_x)))
            for part, room, of_part in zip(rows, room_PM, shares.of, strict=True):
                of_w, of_W, of_W_x, of_b = (start(d, m) for d in of_part)
                n = part.stop - part.start
                call = (*own, of_w, start(h_all, m), of_W, *inputs, of_W_x, of_b, start(room, m), bound.data_ptr())
                steps = max(1, BLOCK // terms_of(n, narrow))  # of a block
                calls.append((*call, part.start, n, T, d_out.shape[1], B, H, K, steps))
        team.do(step, calls)
        d_w, d_W_h, d_W_x, d_b = shares.totals()
        d_sums_MNG = gates_MTBG.view(M, T * B, G)
        if not weighs:
            d_W_h = _weight_gradient(h_all[:, :T].flatten(1, 2), d_sums_MNG, narrow)
            d_W_x = _scattered(x, W_x, d_sums_MNG) if looks else _weight_gradient(x.flatten(1, 2), d_sums_MNG, narrow)
        if looks:
            d_b = _sums(d_W_x)  # every token adds to one row of W_x, and to b
        I = W_x.shape[1]
        d_W_x, d_W_h, d_b = (_columns_back(d, own_H) for d in (d_W_x[:, :I], d_W_h[:, :own_H], d_b))
        d_w_c = d_w[..., :own_H] if has_peepholes else None
        d_x_own = None if looks else d_x[..., :I]
        return (None,) * 2 + (d_x_own, d_W_x, d_W_h, d_b, d_w_c, d_h[..., :own_H], d_c[..., :own_H])


def _after(s_all: Tensor, steps: list[int], kept: bool) -> Tensor:
    """The state of each run after so many steps; where all states are kept anyway, it may be one of them."""
    if kept and len(set(steps)) == 1:
        return s_all[:, steps[0]]
    return torch.stack([s_all[m, n] for m, n in enumerate(steps)])


def _sums(x_MVG: Tensor) -> Tensor:
    """Over all rows."""
    from unroll.kernels._lstm_code import sums_for

    M, V, G = x_MVG.shape
    out = x_MVG.new_empty(M, G)
    team.do(sums_for(8 * x_MVG.dtype.itemsize), [(start(x_MVG, m), start(out, m), V, G) for m in range(M)])
    return out


def _scattered(ids: Tensor, W_x: Tensor, d_sums_MNG: Tensor) -> Tensor:
    """The gradient of a W_x that is looked up."""
    from unroll.kernels._lstm_code import scatter_for

    M, N, G = d_sums_MNG.shape
    d_W_x, scatter = torch.zeros_like(W_x), scatter_for(8 * W_x.dtype.itemsize)

    runs = [[start(x, m) for x in (d_sums_MNG, ids, d_W_x)] for m in range(M)]
    columns = _stretches(G, panel(W_x.dtype))
    team.do(scatter, [(*run, N, own.start, own.stop - own.start, G) for run in runs for own in columns])
    return d_W_x


def _weight_gradient(x_MNK: Tensor, d_sums_MNG: Tensor, narrow: bool) -> Tensor:
    """xᵀ·d_sums of each run."""
    from unroll.kernels._lstm_code import weights_for

    M, N, G = d_sums_MNG.shape
    K = x_MNK.shape[2]
    whole, add = Shares(1, [(M, K, G)], x_MNK.dtype), weights_for(8 * x_MNK.dtype.itemsize, narrow)
    d_W = whole.of[0][0].zero_()

    runs = [[start(x, m) for x in (d_W, x_MNK, d_sums_MNG)] for m in range(M)]
    columns = _stretches(G, panel(x_MNK.dtype))
    team.do(add, [(*run, N, K, G, own.start, own.stop - own.start) for run in runs for own in columns])
    return whole.totals()[0]


def _stretches(n: int, whole: int) -> list[slice]:
    """n things in multiples of `whole`, a stretch a thread."""
    found = parts.divided(n // whole, parts.count())
    return [slice(own.start * whole, own.stop * whole) for own in found if own.stop > own.start]


def _most(stretches: list[slice]) -> int:
    return max(int(own.stop - own.start) for own in stretches)


def _columns_back(d: Tensor, own_H: int) -> Tensor:
    """The reverse of `columns`."""
    if d.shape[-1] == 4 * own_H:
        return d
    gates: Tensor = d.unflatten(-1, (4, -1))
    return gates[..., :own_H].flatten(-2)
