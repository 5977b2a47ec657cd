"""The LSTM on the CPU: as few calls, and as few passes over memory, as torch allows.

A time step on a CPU is a small product and a little pointwise work, so what counts is the number of calls and where
their operands lie. Hence:

- Runs go one after the other, on one thread; so a run's numbers are the same alone and in a fleet. (A time step is too
  small to be shared: threads would wait for each other a hundred times a batch. See `cpu/workers.py`.)
- A step's product adds straight onto what the input brought.
- The output gate's columns stand first, o, i, f, c: then the three sigmoids are neighbours, and so are the three gates
  whose gradient is a multiple of c's.
- On the way back, everything that does not wait for the recurrence (the derivatives of the gates) is computed for a
  block of time steps at once, small enough to stay in the cache; a step then only multiplies.
- Gradients replace the gates in their buffer. Buffers are kept for the next batch, with the views of their time steps:
  to make a view costs as much as a small product.

Shapes: M runs, T time, S steps of a block, B rows, I inputs, H hidden, G = 4·H gate columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unroll.engines.cpu import buffer_pool
from unroll.engines.kernels import products_by_torch
from unroll.model.cells import State, lstm
from unroll.model.network import Network, States

RANK = 2
BLOCK = 1 << 21  # bytes of factors in a block of time steps: about the second-level caches of two cores


def supports(network: Network, device: torch.device) -> str | None:
    """The LSTM with any peepholes, on the CPU."""
    if device.type != "cpu":
        return f"it is made for the CPU, and this device is {device.type}"
    if not isinstance(network.cell, lstm.Cell):
        return "it knows only the LSTM"
    return products_by_torch(network)


def run(network: Network, ids_MTB: Tensor, first: States, at_M: Tensor) -> tuple[Tensor, States]:
    """All layers over all time steps, one run after the other."""
    at: list[State] = []
    xs, steps = _runs(ids_MTB), at_M.tolist()
    for layer, state in zip(network.layers, first, strict=True):
        w_c = _runs(layer.extra["w_c"]) if layer.extra else (None,) * len(xs)
        own = zip(steps, xs, *map(_runs, (layer.W_x, layer.W_h, layer.b)), w_c, *map(_runs, state), strict=True)
        found = [_Layer.apply(network.cell.peepholes, network.clip, *inputs) for inputs in own]
        xs = tuple(h for h, _ in found)
        h_at = torch.stack([h.detach()[step - 1] for h, step in zip(xs, steps, strict=True)])
        at.append((h_at, torch.stack([c_at for _, c_at in found])))
    return torch.stack(xs) if len(xs) > 1 else xs[0].unsqueeze(0), tuple(at)


class _Buffers:
    """What one run's layer computes in one batch, but for h, and the views of it that each time step uses."""

    def __init__(self, T: int, B: int, H: int, dtype: torch.dtype) -> None:
        self.gates, self.tanh_c = torch.empty(T, B, 4 * H, dtype=dtype), torch.empty(T, B, H, dtype=dtype)
        # Slot 0 is the first state, so that "before" and "after" each step are two views of one buffer.
        self.c_all = torch.empty(T + 1, B, H, dtype=dtype)
        self.apart = self.gates.unflatten(-1, (4, H))
        self.of_gates, self.t = self.apart.unbind(0), self.tanh_c.unbind(0)
        self.sums_1BG = self.gates.unsqueeze(1).unbind(0)
        self.c, self.c_wide = self.c_all.unbind(0), self.c_all.unsqueeze(2).unbind(0)
        self.o, self.i, self.f, self.g = (gate.unbind(0) for gate in self.apart.unbind(2))
        self.oif, self.i_f = self.apart[:, :, :3].unbind(0), self.apart[:, :, 1:3].unbind(0)
        self.oif_flat, self.if_flat = (self.gates[..., n * H : 3 * H].unbind(0) for n in (0, 1))
        # For NumPy's tanh: torch's hands every row of a strided view to all threads, at ten times the cost.
        self.g_array, self.c_array, self.t_array = (
            list(x.numpy()) for x in (self.apart[:, :, 3], self.c_all, self.tanh_c)
        )
        self.block = _block(T, B, H, dtype)
        self.factors = torch.empty(7, self.block, B, H, dtype=dtype)
        self.d_o, self.d_earlier, self.by_h, self.by_h_early = (self.factors[n].unbind(0) for n in (0, 4, 5, 6))
        self.by_c, self.unclipped = self.factors[1:5].unbind(1), self.factors[:4].movedim(0, 2).unbind(0)


def _block(T: int, B: int, H: int, dtype: torch.dtype) -> int:
    """How many time steps' factors fit into a cache."""
    return min(T, max(1, BLOCK // (7 * B * H * dtype.itemsize)))


def _buffers(T: int, B: int, H: int, dtype: torch.dtype) -> _Buffers:
    """Buffers that nobody else has: of a batch that is done with them, or new."""
    elements = (6 * T + 1 + 7 * _block(T, B, H, dtype)) * B * H
    kind = (_Buffers, T, B, H, dtype)
    return buffer_pool.keep(elements * dtype.itemsize, kind, lambda: _Buffers(T, B, H, dtype))


class _Layer(torch.autograd.Function):
    """One run's layer over time: ids or the h below, parameters, first state in; h after every step, c after one."""

    @staticmethod
    def forward(
        ctx: Any,
        peepholes: str,
        clip: float,
        at: int,
        x: Tensor,
        W_x: Tensor,
        W_h: Tensor,
        b: Tensor,
        w_c: Tensor | None,
        h_first: Tensor,
        c_first: Tensor,
    ) -> tuple[Tensor, Tensor]:
        T, B = x.shape[:2]
        H = len(W_h)
        W_x, W_h, b = (w.roll(H, -1) for w in (W_x, W_h, b))
        w_oif = None if w_c is None else w_c.roll(1, 0)
        own = _buffers(T, B, H, W_h.dtype)
        _inputs(x, W_x, b, own.gates.view(T * B, 4 * H))
        h_all = W_h.new_empty(T + 1, B, H)
        h_all[0], own.c_all[0] = h_first, c_first

        h, c = h_all.unbind(0), own.c
        # A batch of one product: alone, torch would multiply a single row in another way, with other last bits.
        h_1BH, W_1HG = h_all.unsqueeze(1).unbind(0), W_h.unsqueeze(0)
        # Lasagne's output gate sees c after the step, so it comes later than the other two.
        late = peepholes == "lasagne"
        seeing, sigmoids = (own.i_f, own.if_flat) if late else (own.oif, own.oif_flat)
        w_o, w_seeing = (None, None) if w_oif is None else (w_oif[0], w_oif[1:] if late else w_oif)
        for n in range(T):
            own.sums_1BG[n].baddbmm_(h_1BH[n], W_1HG)
            if w_seeing is not None:
                seeing[n].addcmul_(w_seeing, own.c_wide[n])
            sigmoids[n].sigmoid_()
            np.tanh(own.g_array[n], out=own.g_array[n])
            torch.mul(own.f[n], c[n], out=c[n + 1]).addcmul_(own.i[n], own.g[n])
            if w_o is not None and late:
                own.o[n].addcmul_(w_o, c[n + 1]).sigmoid_()
            np.tanh(own.c_array[n + 1], out=own.t_array[n])
            torch.mul(own.o[n], own.t[n], out=h[n + 1])
        ctx.peepholes, ctx.clip = peepholes, clip
        ctx.held = own, h_all, W_x, W_h, w_oif
        ctx.save_for_backward(x)
        c_at = c[at].clone()
        ctx.mark_non_differentiable(c_at)
        return h_all[1:], c_at

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor, _d_c: Tensor) -> tuple[Tensor | None, ...]:
        peepholes, clip = ctx.peepholes, ctx.clip
        (x,) = ctx.saved_tensors
        own, h_all, W_x, W_h, w_oif = ctx.held
        ctx.held = ()  # the gradients of the sums take the gates' place
        gates, c_all, late = own.gates, own.c_all, peepholes == "lasagne"
        T, B, G = gates.shape
        H = G // 4
        d_w_oif = None if w_oif is None else torch.zeros_like(w_oif)
        W_back_1GH = W_h.t().contiguous().unsqueeze(0)
        # What arrives from above at each step's h, and at the state before the first step: nothing.
        arriving_1BH = (torch.zeros_like(h_all[:1]), *d_out.unsqueeze(1).unbind(0))
        d_h, d_c = d_out[-1], torch.zeros_like(h_all[0])
        d_before_1BH = torch.empty_like(h_all[:1])
        d_before = d_before_1BH[0]
        for end in range(T, 0, -own.block):
            start = max(0, end - own.block)
            before, after = slice(start, end), slice(start + 1, end + 1)
            factors = own.factors[:, : end - start]
            _factors(factors, own.apart[before], h_all[after], c_all[before], own.tanh_c[before], w_oif, late)
            for n in reversed(range(end - start)):
                d_c.addcmul_(d_h, own.by_h[n])
                own.d_o[n].mul_(d_h)
                own.by_c[n].mul_(d_c)
                d_c = own.d_earlier[n]
                if peepholes == "paper":
                    d_c.addcmul_(d_h, own.by_h_early[n])
                torch.clamp(own.unclipped[n], -clip, clip, out=own.of_gates[start + n])
                torch.baddbmm(arriving_1BH[start + n], own.sums_1BG[start + n], W_back_1GH, out=d_before_1BH)
                d_h = d_before
            d_c = d_c.clone()  # the next block overwrites the factors
            if d_w_oif is not None:
                # Peepholes see the gradient before the clip.
                factors[late:3].mul_(c_all[before])
                if late:
                    factors[0].mul_(c_all[after])
                d_w_oif += factors[:3].sum((1, 2))

        d_sums_NG = gates.view(T * B, G)
        d_W_h = h_all[:T].view(T * B, H).t() @ d_sums_NG
        d_x, d_W_x, d_b = _input_gradients(x, W_x, d_sums_NG)
        d_W_x, d_W_h, d_b = (d.roll(-H, -1) for d in (d_W_x, d_W_h, d_b))
        d_w_c = None if d_w_oif is None else d_w_oif.roll(-1, 0)
        return None, None, None, d_x, d_W_x, d_W_h, d_b, d_w_c, d_h, d_c


def _runs(x_M: Tensor) -> tuple[Tensor, ...]:
    """Each run's own. The gradient of one run alone passes through as it is, without a copy."""
    return x_M.unbind(0) if len(x_M) > 1 else (x_M.squeeze(0),)


def _inputs(x: Tensor, W_x: Tensor, b: Tensor, out_NG: Tensor) -> None:
    """x·W_x + b, where x are ids in the first layer and the h below in the others."""
    if x.is_floating_point():
        torch.addmm(b, x.reshape(len(out_NG), -1), W_x, out=out_NG)
    else:
        # The bias goes into the table of rows, which is far smaller than the rows looked up.
        torch.index_select(W_x + b, 0, x.flatten(), out=out_NG)


def _input_gradients(x: Tensor, W_x: Tensor, d_sums_NG: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
    """The gradients of the h below, W_x and b."""
    if x.is_floating_point():
        d_W_x = x.reshape(len(d_sums_NG), -1).t() @ d_sums_NG
        return (d_sums_NG @ W_x.t()).view(x.shape), d_W_x, d_sums_NG.sum(0)
    d_W_x = torch.ops.aten.embedding_dense_backward(d_sums_NG, x.flatten(), len(W_x), -1, False)
    return None, d_W_x, d_W_x.sum(0)  # every token adds to one row of W_x, and to b


def _factors(
    out_7SBH: Tensor,
    gates_SB4H: Tensor,
    h: Tensor,
    c: Tensor,
    t: Tensor,
    w_oif: Tensor | None,
    late: bool,
) -> None:
    """What a step back multiplies gradients with; h and t = tanh(c) after each step, c before it.

    The gradients of the sums of i, f and c, and of the c before, are multiples of d_c; that of o's sum, and what h adds
    to d_c and to the d_c before, are multiples of d_h.
    """
    o, i, f, g = gates_SB4H.unbind(2)
    of_o, of_i, of_f, of_g, of_earlier, by_h, by_h_early = out_7SBH.unbind(0)
    torch.addcmul(h, h, o, value=-1, out=of_o)  # t·o·(1 − o), since h = o·t
    torch.mul(i, g, out=of_i)
    torch.addcmul(i, of_i, g, value=-1, out=of_g)  # i·(1 − g²)
    of_i.addcmul_(of_i, i, value=-1)  # g·i·(1 − i)
    torch.mul(f, c, out=of_f)
    of_f.addcmul_(of_f, f, value=-1)  # c·f·(1 − f)
    torch.addcmul(o, h, t, value=-1, out=by_h)  # o·(1 − t²)
    if w_oif is None:
        of_earlier.copy_(f)
        return
    w_o, w_i, w_f = w_oif
    torch.addcmul(f, of_i, w_i, out=of_earlier).addcmul_(of_f, w_f)
    if late:
        by_h.addcmul_(of_o, w_o)
    else:
        torch.mul(of_o, w_o, out=by_h_early)
