"""The devices of this machine. `auto` is resolved once, before any work, and recorded."""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from functools import cache
from typing import Any

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
THREADS_A_CORE = 8  # more can only be a mistake, and thousands of threads take longer to start than a run takes


def resolve(experiment: Experiment) -> Experiment:
    """Decide an experiment's device, kernel and threads."""
    if experiment.threads is not None:
        require_threads(experiment.threads)
    device = experiment.device
    if device == "auto":
        device = best()
    reason = precisions.why_not(experiment.precision, find(device))
    if reason:
        raise ConfigurationError(f"{reason[0].upper()}{reason[1:]}. Choose another --precision or --device.")
    network = outline(experiment)
    torch_device = find(device)
    kernel = kernels.choose(network, torch_device) if experiment.kernel == "auto" else experiment.kernel
    kernels.require(kernel, network, torch_device)
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
        parameters = {
            name: torch.empty(1, *shapes[f"layers.{layer}.{name}"], device="meta")
            for name in ("W_x", "W_h", "b", *cell.extra_shapes(experiment.hidden))
        }
        layers.append(Layer(parameters.pop("W_x"), parameters.pop("W_h"), parameters.pop("b"), parameters))
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


def places(name: str) -> tuple[str, ...]:
    """The devices that a sweep's device names: `cuda` is every GPU of this machine, `cuda:0,2` are two of them."""
    if name == "auto":
        name = best()
    if "," not in name:
        find(name)
        count = torch.cuda.device_count() if name == "cuda" else 1
        return (name,) if count == 1 else tuple(f"cuda:{number}" for number in range(count))
    first, *others = (part.strip() for part in name.split(","))
    if kind(first) != "cuda" or not all(part.isdecimal() for part in others):
        raise ConfigurationError(f"device must be auto, cpu, cuda, cuda:N or cuda:N,N. Got {name!r}.")
    every = dict.fromkeys((first, *(f"cuda:{part}" for part in others)))
    for one in every:
        find(one)
    return tuple(every)


def named(name: str) -> str:
    """A device's name for the record: `auto` is decided."""
    return best() if name == "auto" else name


def visible(place: str) -> str:
    """What CUDA_VISIBLE_DEVICES says for a process that sees this GPU alone."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    number = int(place.partition(":")[2] or 0)
    return seen.split(",")[number].strip() if seen else str(number)


def cores() -> int:
    """The number of this machine's cores."""
    return os.cpu_count() or 1


def most_threads() -> int:
    """The most threads that a user may ask for here."""
    return THREADS_A_CORE * cores()


def require_threads(threads: int) -> None:
    """Raise if the number of threads can only be a mistake."""
    if threads > most_threads():
        raise ConfigurationError(
            f"threads must be at most {most_threads()}: this machine has {cores()} cores. Got {threads:,}. "
            "Lower --threads, or leave it out for all cores."
        )


def use_threads(threads: int | None) -> None:
    """Let this process compute on so many threads of its CPU; None leaves it as it is."""
    if threads is None:
        return
    if threads < 1:
        raise ConfigurationError(f"threads must be at least 1. Got {threads}. Leave --threads out for all cores.")
    require_threads(threads)
    torch.set_num_threads(threads)


def describe(device: torch.device) -> str:
    """The processor in words, for the record: on another one a run has other last bits."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{platform.machine()} CPU, {_processor()}"


@cache
def _processor() -> str:
    """This machine's kind of processor, as LLVM calls it; without LLVM, as torch does."""
    if not builder.available():
        return torch.backends.cpu.get_cpu_capability()
    from llvmlite import binding

    return str(binding.get_host_cpu_name())


def wait(device: torch.device) -> None:
    """Wait until the device has finished, so that a clock read after this means something."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def best() -> str:
    """The name of the fastest device here: what `auto` stands for."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def always_there(name: str) -> bool:
    """Whether every machine has a device of that name."""
    return not name.startswith("cuda")


def kind(device: torch.device | str) -> str:
    """The name of a device without its number."""
    return str(device).partition(":")[0]


def is_host(device: torch.device | str) -> bool:
    """Whether a device is the host's own processor: its calls return when they are done."""
    return kind(device) == "cpu"


def versions(device: torch.device) -> dict[str, Any]:
    """The versions of a device's own libraries."""
    return {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()} if device.type == "cuda" else {}


def keeps_order_on_host(name: str) -> bool:
    """Whether the order of shuffled windows takes the device's own memory, because the device is the host."""
    return not name.startswith("cuda")


def free_memory(device: torch.device) -> int | None:
    """The bytes of its own memory that a device has left; None if it uses the host's memory."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else None


def free_share(device: torch.device) -> float | None:
    """The part of its own memory that a device has left; None if it uses the host's memory."""
    if device.type != "cuda":
        return None
    free, total = torch.cuda.mem_get_info(device)
    return float(free / total)


def watch_peak(device: torch.device) -> None:
    """Start to count the most bytes in use, if the device can."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak(device: torch.device) -> int | None:
    """The most bytes in use since `watch_peak`; None if the device does not count."""
    return int(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else None


def give_back() -> None:
    """Return unused memory to the system and to every device."""
    buffer_pool.give_back()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
