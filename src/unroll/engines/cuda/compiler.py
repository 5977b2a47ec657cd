"""Compiles CUDA C++ on the user's machine by NVRTC, which comes with torch: no toolkit and no C compiler is needed.

    module = Module.load(sources, {"HIDDEN": 512})        compiled once a machine, kept in the cache folder
    module["forward"].launch((16, 7), 256, tensors, …)    on torch's current stream, so CUDA graphs capture it

Both libraries are called through ctypes: their C interfaces are small and do not change.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unroll.base import cached_files
from unroll.base.cache import cache_folder
from unroll.base.errors import SaveError

LARGEST = 1 << 28  # the most bytes of a module
# Names of the cached modules' files, each of which begins with a digest; older versions' files had none.
OURS = r".+-[0-9a-f]{32}\.(code|cubin)"
_REGISTERS = 4  # CU_FUNC_ATTRIBUTE_NUM_REGS
_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_ANY_CLUSTER = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED


Argument = Tensor | int | float | ctypes.Structure | None


class Function:
    """One __global__ function."""

    def __init__(self, handle: ctypes.c_void_p, name: str) -> None:
        self.handle, self.name = handle, name
        self.shared = 0

    def allow(self, shared: int, cluster: int = 1) -> Function:
        """Allow a block this many bytes of dynamic shared memory, and a cluster this many blocks."""
        if shared > self.shared:
            _driver("cuFuncSetAttribute", self.handle, ctypes.c_int(_SHARED_BYTES), ctypes.c_int(shared))
        if cluster > 8:
            _driver("cuFuncSetAttribute", self.handle, ctypes.c_int(_ANY_CLUSTER), ctypes.c_int(1))
        self.shared = shared
        return self

    @cached_property
    def registers(self) -> int:
        """The registers of a thread at its launch."""
        registers = ctypes.c_int()
        _driver("cuFuncGetAttribute", ctypes.byref(registers), ctypes.c_int(_REGISTERS), self.handle)
        return registers.value

    def launch(self, grid: Sequence[int], block: int, *arguments: Argument, together: bool = False) -> None:
        """Launch the function. Tensors go as pointers, None as a null pointer, integers as int, other numbers as float,
        structures by value.

        Blocks that wait for each other must run `together`; it is an error if they cannot.
        """
        values = [_argument(a) for a in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(a) for a in values))
        x, y, z = (*grid, 1, 1)[:3]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        if together:
            _driver("cuLaunchCooperativeKernel", self.handle, x, y, z, block, 1, 1, self.shared, stream, pointers)
        else:
            _driver("cuLaunchKernel", self.handle, x, y, z, block, 1, 1, self.shared, stream, pointers, None)


class Module:
    """Compiled code, loaded into the current device's context."""

    def __init__(self, binary: bytes) -> None:
        torch.cuda.current_stream()  # the context exists
        self._handle = ctypes.c_void_p()
        _driver("cuModuleLoadData", ctypes.byref(self._handle), binary)
        self._functions: dict[str, Function] = {}

    def __getitem__(self, name: str) -> Function:
        if name not in self._functions:
            handle = ctypes.c_void_p()
            _driver("cuModuleGetFunction", ctypes.byref(handle), self._handle, name.encode())
            self._functions[name] = Function(handle, name)
        return self._functions[name]

    @staticmethod
    def load(sources: Sequence[Path], defines: Mapping[str, int | str | None]) -> Module:
        """The module of these files, joined in order, for the current device."""
        return _load(tuple(sources), tuple(defines.items()), torch.cuda.current_device())


def why_not() -> str | None:
    """The reason why nothing can be compiled here; None if it can."""
    if not torch.cuda.is_available():
        return "it needs an NVIDIA GPU, and none is here"
    try:
        _nvrtc_library(), _driver_library()
    except OSError as error:
        return f"it needs NVIDIA's run-time compiler, which comes with torch's CUDA wheels: {error}"
    return None


@cache
def _load(sources: tuple[Path, ...], defines: tuple[tuple[str, Any], ...], device: int) -> Module:
    capability = torch.cuda.get_device_capability(device)
    # The suffix a unlocks the matrix instructions that Hopper alone has.
    architecture = f"sm_{capability[0]}{capability[1]}{'a' if capability[0] >= 9 else ''}"
    options = [f"-arch={architecture}", "-std=c++17", *(f"-D{k}={v}" for k, v in defines)]
    text = "\n".join(source.read_text("utf-8") for source in sources)
    name = sources[-1].name
    digest = hashlib.sha256("\0".join([text, *options, str(torch.version.cuda)]).encode()).hexdigest()
    path = cache_folder() / "cuda" / f"{sources[-1].stem}-{digest[:32]}.code"
    cached = cached_files.content(path, LARGEST)
    if cached is not None:
        return Module(cached)
    binary, _ = compiled(text, name, options)
    with suppress(SaveError):  # a cache that cannot be written costs a compilation next time, nothing else
        cached_files.keep(path, (hashlib.sha256(binary).digest(), binary), OURS)
    return Module(binary)


def compiled(text: str, name: str, options: Sequence[str]) -> tuple[bytes, str]:
    """The machine code of a text, and the compiler's log."""
    program = ctypes.c_void_p()
    _nvrtc("nvrtcCreateProgram", ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
    arguments = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
    failed = _nvrtc_library().nvrtcCompileProgram(program, len(options), arguments)
    log = _sized("nvrtcGetProgramLogSize", "nvrtcGetProgramLog", program).rstrip(b"\0").decode(errors="replace")
    if failed:
        raise RuntimeError(f"{name} does not compile with {' '.join(options)}:\n{log}")
    binary = _sized("nvrtcGetCUBINSize", "nvrtcGetCUBIN", program)
    _nvrtc("nvrtcDestroyProgram", ctypes.byref(program))
    return binary, log


def _sized(size: str, content: str, program: ctypes.c_void_p) -> bytes:
    length = ctypes.c_size_t()
    _nvrtc(size, program, ctypes.byref(length))
    buffer = ctypes.create_string_buffer(length.value)
    _nvrtc(content, program, buffer)
    return buffer.raw


def _argument(value: Argument) -> Any:
    if isinstance(value, Tensor):
        return ctypes.c_void_p(value.data_ptr())
    if isinstance(value, ctypes.Structure):
        return value
    if value is None:
        return ctypes.c_void_p(None)
    return ctypes.c_int(value) if isinstance(value, int) else ctypes.c_float(value)


def _driver(name: str, *arguments: Any) -> None:
    code = getattr(_driver_library(), name)(*arguments)
    if code:
        words = ctypes.c_char_p()
        _driver_library().cuGetErrorString(code, ctypes.byref(words))
        raise RuntimeError(f"{name}: {(words.value or b'unknown error').decode()} ({code})")


def _nvrtc(name: str, *arguments: Any) -> None:
    code = getattr(_nvrtc_library(), name)(*arguments)
    if code:
        raise RuntimeError(f"{name} failed with code {code}")


@cache
def _driver_library() -> ctypes.CDLL:
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


@cache
def _nvrtc_library() -> ctypes.CDLL:
    """NVRTC, from the loader's path, which has torch's folders, or from the folders of NVIDIA's wheels."""
    major = (torch.version.cuda or "13").split(".")[0]
    name = f"nvrtc64_{major}0_0.dll" if sys.platform == "win32" else f"libnvrtc.so.{major}"
    in_wheels = [p for folder in sys.path for p in Path(folder or ".").glob(f"nvidia/*/lib/{name}")]
    for candidate in (name, *map(str, in_wheels)):
        try:
            return ctypes.CDLL(candidate)
        except OSError:
            continue
    raise OSError(f"{name} was not found")
