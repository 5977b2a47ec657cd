"""Where a run computes: `auto` is resolved once, before any work, and recorded."""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from functools import cache

import torch

from unroll.base.errors import ConfigurationError
from unroll.engines import kernels, precisions
from unroll.engines.cpu import buffer_pool, builder
from unroll.experiment.experiment import Experiment
from unroll.model import cells
from unroll.model.initial_values import parameter_shapes
from unroll.model.network import Layer, Network

NO_APPLE_GPU = (
    "--device mps: Apple's GPU has no float64, in which losses, perplexities and the optimiser's step count are added "
    "up. Use --device cpu."
)
THREADS_A_CORE = 8  # more than this cannot be meant, and thousands take longer to start than a run takes


def resolve(experiment: Experiment) -> Experiment:
    """The experiment with its device, kernel and threads decided."""
    if experiment.threads is not None:
        require_threads(experiment.threads)
    device = experiment.device
    if device == "auto":
        device = best()
    reason = precisions.why_not(experiment.precision, find(device))
    if reason:
        raise ConfigurationError(f"{reason[0].upper()}{reason[1:]}. Choose another --precision or --device.")
    network, where = outline(experiment), find(device)
    kernel = kernels.choose(network, where) if experiment.kernel == "auto" else experiment.kernel
    kernels.require(kernel, network, where)
    return replace(
        experiment,
        device=device,
        kernel=kernel,
        threads=experiment.threads or torch.get_num_threads(),
    )


def outline(experiment: Experiment) -> Network:
    """The shapes of an experiment's recurrent layers, without values."""
    cell = cells.load(experiment.cell, experiment.peepholes)
    shapes = parameter_shapes(experiment, cell, 1)
    layers = []
    for layer in range(experiment.layers):
        own = {
            name: torch.empty(1, *shapes[f"layers.{layer}.{name}"], device="meta")
            for name in ("W_x", "W_h", "b", *cell.extra_shapes(experiment.hidden))
        }
        layers.append(Layer(own.pop("W_x"), own.pop("W_h"), own.pop("b"), own))
    return Network(cell, experiment.clip, tuple(layers), experiment.precision)


def find(name: str) -> torch.device:
    """The device behind a name, or why there is none."""
    if kind(name) == "mps":
        raise ConfigurationError(NO_APPLE_GPU)
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigurationError(f"device must be auto, cpu, cuda or cuda:N. Got {name!r}.") from None
    if device.type not in ("cpu", "cuda"):
        raise ConfigurationError(f"device must be auto, cpu, cuda or cuda:N. Got {name!r}.")
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise ConfigurationError(f"--device {name}: this machine has {count} CUDA devices. Use --device cpu.")
    return device


def cores() -> int:
    """Of this machine."""
    return os.cpu_count() or 1


def most_threads() -> int:
    """That may be asked for here."""
    return THREADS_A_CORE * cores()


def require_threads(threads: int) -> None:
    """Raise where so many threads cannot be meant."""
    if threads > most_threads():
        raise ConfigurationError(
            f"threads must be at most {most_threads()}: this machine has {cores()} cores. Got {threads:,}. "
            "Lower --threads, or leave it out for all cores."
        )


def describe(device: torch.device) -> str:
    """The processor in words, for the record: on another one a run has other last bits."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{platform.machine()} CPU, {_host()}"


@cache
def _host() -> str:
    """This machine's kind of processor, as a compiler calls it; without one, as torch does."""
    if not builder.available():
        return torch.backends.cpu.get_cpu_capability()
    from llvmlite import binding

    return str(binding.get_host_cpu_name())


def wait(device: torch.device) -> None:
    """Let the device finish, so that a clock read after this means something."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def best() -> str:
    """The name of the fastest device here: what `auto` stands for."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def always_there(name: str) -> bool:
    """Whether every machine has a device of that name."""
    return not name.startswith("cuda")


def kind(name: str) -> str:
    """The name of a device without its number."""
    return name.partition(":")[0]


def keeps_order_on_host(name: str) -> bool:
    """Whether the order of shuffled windows takes memory of the device itself, since that is the host."""
    return not name.startswith("cuda")


def free_memory(device: torch.device) -> int | None:
    """Bytes that a device has left of its own; None where it uses the host's memory."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else None


def watch_peak(device: torch.device) -> None:
    """Count the most bytes in use from now on, where the device can."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak(device: torch.device) -> int | None:
    """The most bytes in use since `watch_peak`; None where the device does not count."""
    return int(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else None


def give_back() -> None:
    """Return memory that nobody uses to the system and to every device."""
    buffer_pool.give_back()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
