"""Tensors on a GPU that is played."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from played_gpu.launches import Graph, Modules, Stream, capturing, here, now, on

COMPILERS = ("unroll.engines.cuda.compiler", "unroll.cuda")  # now, and before the code was moved into rooms
CUDA = torch.device("cuda", 0)
PROPERTIES = SimpleNamespace(
    name="played H200", multi_processor_count=132, total_memory=140 << 30, major=9, minor=0,
    shared_memory_per_block_optin=227 * 1024, uuid="0",
)  # fmt: skip
PRODUCTS = {"bmm", "mm", "matmul", "addmm", "baddbmm", "linear", "__matmul__", "einsum"}
EMPTY = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"}
COPIES = {"copy_", "__getitem__", "__setitem__", "index_select", "__set__", "to", "type"}
_DEVICE, _IS_CUDA = Tensor.device, Tensor.is_cuda


def is_cuda(device: Any) -> bool:
    return isinstance(device, int) or str(device).startswith("cuda")


class Played(TorchFunctionMode):
    """Tensors are on the GPU, but for those that nothing brought there, which are marked."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", str(func))
        asks = getattr(func, "__self__", None) if name == "__get__" else None
        if asks is _DEVICE or asks is _IS_CUDA:
            there = not hasattr(args[0], "_host")
            return there if asks is _IS_CUDA else CUDA if there else torch.device("cpu")
        if name == "data_ptr":
            pointer = func(*args)
            now.record.pointers[pointer] = args[0]
            now.kept.append(args[0])
            return pointer
        given = [x for x in (*args, *kwargs.values()) for x in (x if isinstance(x, (list, tuple)) else [x])]
        tensors = [x for x in given if isinstance(x, Tensor)]
        hosts = [hasattr(x, "_host") for x in tensors]
        host = all(hosts)
        if name == "numpy" and not host:
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        of_host = any(x.dim() for x, at in zip(tensors, hosts, strict=True) if at)
        if of_host and not host and name not in COPIES:
            now.record.mixed[name] += 1
        if name == "pin_memory":
            return self.marked(args[0].clone(), True)
        host |= kwargs.pop("pin_memory", False)
        if name in ("to", "cpu", "cuda"):
            return self.moved(name, args, kwargs, host)
        if kwargs.get("device") is not None:
            host = not is_cuda(kwargs["device"])
            kwargs["device"] = "cpu"
        if isinstance(func, torch._ops.OpOverload) and str(func) == "aten.bmm.dtype_out":
            result = kwargs["out"].copy_(torch.bmm(args[0].float(), args[1].float()))
            self.product("bmm into", [*args[:2], result])
            return result
        if name == "bmm" and kwargs.pop("out_dtype", None) is not None:
            result = torch.bmm(args[0].float(), args[1].float())
        else:
            result = func(*args, **kwargs)
        if name in EMPTY and isinstance(result, Tensor):
            result.zero_()
        if name in PRODUCTS and not host:
            self.product(name, [*tensors, result])
        return result if args and result is args[0] else self.marked(result, host)

    def product(self, name: str, tensors: list[Tensor]) -> None:
        given = [now.record.tensor(x) for x in tensors]
        now.record.add("product", name, given, torch.backends.cuda.matmul.fp32_precision)

    def moved(self, name: str, args: Any, kwargs: Any, host: bool) -> Tensor:
        x, *rest = args
        asked = [kwargs.pop("device", None), *(a for a in rest if isinstance(a, (str, int, torch.device)))]
        rest = [a for a in rest if not isinstance(a, (str, int, torch.device))]
        kwargs.pop("non_blocking", None)
        device = next((a for a in asked if a is not None), None)
        wanted = {"cpu": "cpu", "cuda": "cuda"}.get(name, device)
        if isinstance(rest and rest[0], Tensor):
            wanted, rest = "cpu" if hasattr(rest[0], "_host") else "cuda", [rest[0].dtype]
        result = x.to(*rest, **kwargs) if rest or kwargs else x
        if wanted is None or is_cuda(wanted) != host:
            return self.marked(result, host)
        now.record.add("copied", "to the host" if not host else "to the GPU", str(x.dtype)[6:], list(x.shape))
        return self.marked(result.clone() if result is x else result, not host)

    def marked(self, result: Any, host: bool) -> Any:
        for x in result if isinstance(result, (list, tuple)) else (result,):
            if isinstance(x, Tensor):
                if host:
                    x._host = True  # type: ignore[attr-defined]
                elif hasattr(x, "_host"):
                    del x._host
        return result


def on_host(make: Any) -> Any:
    """A function of torch's that no mode sees, whose tensor is the host's."""

    def made(*args: Any, **settings: Any) -> Tensor:
        result = make(*args, **settings)
        result._host = True
        return result

    return made


@contextmanager
def played() -> Iterator[None]:
    """Within this block, there is a GPU."""
    compiler = next(import_module(name) for name in COMPILERS if exists(name))
    answers = {
        "is_available": True, "device_count": 1, "current_device": 0, "get_device_capability": (9, 0),
        "get_device_name": PROPERTIES.name, "get_device_properties": PROPERTIES, "empty_cache": None,
        "mem_get_info": (130 << 30, 140 << 30), "max_memory_allocated": 1 << 30, "reset_peak_memory_stats": None,
    }  # fmt: skip
    played = {name: (lambda *_, answer=answer: answer) for name, answer in answers.items()}
    played |= {"Stream": Stream, "Event": Stream, "CUDAGraph": Graph, "graph": capturing, "stream": on, "device": here}
    played |= {"current_stream": lambda *_: now.streams[-1], "synchronize": lambda *_: now.record.add("synchronise")}
    with (
        mock.patch.multiple(torch.cuda, **played),
        mock.patch.multiple(compiler, Module=Modules, why_not=lambda: None),
        mock.patch.object(np.linalg, "qr", lambda x: (x, np.eye(x.shape[1]))),  # slow, and any weights will do
        mock.patch.object(torch.autograd, "has_torch_function", return_value=False),
        mock.patch.multiple(torch, from_numpy=on_host(torch.from_numpy), frombuffer=on_host(torch.frombuffer)),
        Played(),
    ):
        yield


def exists(name: str) -> bool:
    try:
        import_module(name)
    except ModuleNotFoundError:
        return False
    return True
