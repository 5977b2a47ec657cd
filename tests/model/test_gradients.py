"""Optimisers, weight decay and clipping by norm, through each update of the CPU, equal torch's own in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import check_close, random_tensor

from unroll.engines.cpu.compiled_update import CompiledUpdate
from unroll.engines.cpu.threaded_update import ThreadedUpdate
from unroll.engines.torch.update import PlainUpdate
from unroll.model import gradients as norms
from unroll.model import optimisers
from unroll.model.engine import FleetTensors
from unroll.model.gradients import Decay, NormLimit

M, STEPS = 3, 6
SHAPES = {"W": (7, 16), "U": (5, 3), "b": (19,)}
RATES = (0.001, 0.01, 0.1)
UPDATES = pytest.mark.parametrize("update", [PlainUpdate, ThreadedUpdate, CompiledUpdate])
KEPT = (4, 11)  # of W in run 0: the rest is padding


def a_fleet(optimiser: str, **more: Any) -> FleetTensors:
    """M runs of a few parameters; the first run's W is padded."""
    loaded, none_M = optimisers.load(optimiser), torch.zeros(M, dtype=torch.long)
    parameters = {name: random_tensor(M, *shape, seed=n) for n, (name, shape) in enumerate(SHAPES.items())}
    pad(parameters["W"])
    return FleetTensors(
        optimiser=loaded,
        parameters=parameters,
        moments={name: tuple(torch.zeros_like(p) for _ in loaded.MOMENTS) for name, p in parameters.items()},
        learning_rate_M=torch.tensor(RATES, dtype=torch.float64),
        precision="float64",
        weights_MK=torch.ones(M, 1, dtype=torch.float64),
        rows=1,
        number=torch.zeros((), dtype=torch.long),
        last_M=none_M + STEPS,
        stopped_M=none_M.clone(),
        reason_M=none_M.clone(),
        loss_sum_M=torch.zeros(M, dtype=torch.float64),
        loss_count_M=none_M.clone(),
        largest_2M=torch.zeros(2, M, dtype=torch.float64),
        **more,
    )


def pad(W: torch.Tensor) -> None:
    W[0, KEPT[0] :] = 0.0
    W[0, :, KEPT[1] :] = 0.0


def gradients(step: int) -> dict[str, torch.Tensor]:
    drawn = {name: random_tensor(M, *shape, seed=10 * step + n) for n, (name, shape) in enumerate(SHAPES.items())}
    pad(drawn["W"])
    return drawn


def limit(*limits: float) -> NormLimit:
    shapes = [dict(SHAPES) for _ in range(M)]
    shapes[0]["W"] = KEPT
    return NormLimit(torch.tensor(limits, dtype=torch.float64), shapes)


def descend(update: type, fleet: FleetTensors, alive: tuple[bool, ...] = (True,) * M) -> None:
    applied = update(fleet)
    for step in range(STEPS):
        fleet.number.fill_(step)
        applied.begin(step + 1)
        applied.change(gradients(step), torch.tensor(alive))


def by_torch(make: Callable[..., torch.optim.Optimizer], m: int, clip: float = torch.inf, **settings: Any) -> Any:
    """Run m's parameters after the same steps by an optimiser of torch."""
    start = a_fleet("adam").parameters
    parameters = {name: value[m].clone().requires_grad_() for name, value in start.items()}
    optimiser = make(parameters.values(), lr=RATES[m], **settings)
    for step in range(STEPS):
        for name, gradient in gradients(step).items():
            parameters[name].grad = gradient[m].clone()
        torch.nn.utils.clip_grad_norm_(parameters.values(), clip)
        optimiser.step()
    return parameters


class RMSpropInsideTheRoot(torch.optim.Optimizer):
    """RMSprop with ρ = 0.9 and ε = 1e-6 inside the root, which torch does not have."""

    def __init__(self, parameters: Any, lr: float, weight_decay: float = 0.0) -> None:
        super().__init__(list(parameters), {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                square = self.state[p].setdefault("square", torch.zeros_like(p))
                g = p.grad + group["weight_decay"] * p
                square.mul_(0.9).add_(0.1 * g * g)
                p -= group["lr"] * g / (square + 1e-6).sqrt()


ALIKE: dict[str, tuple[str, bool, Callable[..., torch.optim.Optimizer], dict[str, Any]]] = {
    "SGD": ("sgd", False, torch.optim.SGD, {}),
    "SGD with momentum": ("sgd,momentum=0.9", False, torch.optim.SGD, {"momentum": 0.9}),
    "SGD, L2": ("sgd,momentum=0.9", False, torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.3}),
    "Adam, L2": ("adam", False, torch.optim.Adam, {"weight_decay": 0.3}),
    "AdamW": ("adam", True, torch.optim.AdamW, {"weight_decay": 0.3}),
    "RMSprop, L2": ("rmsprop", False, RMSpropInsideTheRoot, {"weight_decay": 0.3}),
}


@UPDATES
@pytest.mark.parametrize("clip", [torch.inf, 0.7])
@pytest.mark.parametrize("alike", ALIKE)
def test_an_update_is_that_of_torchs_optimiser(alike: str, clip: float, update: type) -> None:
    optimiser, decoupled, make, settings = ALIKE[alike]
    share_M = torch.full((M,), settings.get("weight_decay", 0.0), dtype=torch.float64)
    decay = Decay(share_M, decoupled) if "weight_decay" in settings else None
    fleet = a_fleet(optimiser, decay=decay, norm_limit=None if clip == torch.inf else limit(*[clip] * M))
    descend(update, fleet)
    for m in range(M):
        for name, expected in by_torch(make, m, clip, **settings).items():
            check_close(fleet.parameters[name][m], expected, 1e-12, f"{name} of run {m}")


@UPDATES
def test_padding_stays_0_and_an_ended_run_stays_as_it_is(update: type) -> None:
    for decoupled in (False, True):
        share_M = torch.tensor([0.3, 0.0, 0.1], dtype=torch.float64)
        fleet = a_fleet("sgd,momentum=0.9", decay=Decay(share_M, decoupled), norm_limit=limit(0.5, 0.1, torch.inf))
        before = {name: value[1].clone() for name, value in fleet.parameters.items()}
        descend(update, fleet, alive=(True, False, True))
        for held in (fleet.parameters["W"], *fleet.moments["W"]):
            assert not held[0, KEPT[0] :].any()
            assert not held[0, :, KEPT[1] :].any()
            assert held[0].any()
        assert all(torch.equal(fleet.parameters[name][1], value) for name, value in before.items())


@UPDATES
def test_a_run_without_a_limit_and_without_decay_moves_as_if_no_run_had_any(update: type) -> None:
    plain = a_fleet("adam")
    beside = a_fleet(
        "adam", decay=Decay(torch.tensor([0.3, 0.0, 0.1]).double(), True), norm_limit=limit(0.5, torch.inf, 2.0)
    )
    descend(update, plain)
    descend(update, beside)
    for name, value in plain.parameters.items():
        assert torch.equal(value[1], beside.parameters[name][1])
        assert not torch.equal(value[0], beside.parameters[name][0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("update", [PlainUpdate, CompiledUpdate])
def test_the_norm_of_a_run_has_the_same_bits_alone_and_beside_others_however_it_is_padded(
    update: type, dtype: torch.dtype
) -> None:
    vocabulary, wide, units = 23, 80, 37
    drawn = {
        "in": random_tensor(vocabulary, units, seed=1).to(dtype),
        "out": random_tensor(units, 32, seed=2).to(dtype),
    }
    drawn["out"][:, vocabulary:] = 0.0
    shapes = {"in": (vocabulary, units), "out": (units, vocabulary)}
    alone = {name: value.unsqueeze(0) for name, value in drawn.items()}
    fleet = {
        "in": torch.nn.functional.pad(drawn["in"], (0, 0, 0, wide - vocabulary)).repeat(M, 1, 1),
        "out": torch.nn.functional.pad(drawn["out"], (0, wide - 32)).repeat(M, 1, 1),
    }
    scales = []
    for held in (alone, fleet):
        runs = len(held["in"])
        fresh = a_fleet("adam", norm_limit=NormLimit(torch.full((runs,), 0.01, dtype=dtype), [shapes] * runs))
        scales.append(update(fresh).scale_M(held))
    assert scales[0].dtype == dtype
    assert torch.equal(scales[0].expand(M), scales[1])
    expected = norms.scale_M(alone, NormLimit(torch.tensor([0.01], dtype=dtype), [shapes]))
    check_close(scales[0], expected, 1e-6 if dtype == torch.float32 else 1e-14)


def test_a_norm_within_the_limit_changes_nothing_and_one_that_overflows_stops_only_who_has_a_limit() -> None:
    norm_M = torch.tensor([0.5, 2.0, torch.inf, torch.inf])
    scale_M = norms.scale_of(norm_M, torch.tensor([1.0, 1.0, 1.0, torch.inf]))
    assert scale_M.tolist() == pytest.approx([1.0, 0.5, 0.0, 1.0], rel=1e-5)
    assert scale_M[0] == scale_M[3] == 1.0
