"""Compiles what is written with `builder.py` to a function that Python calls.

The function takes subnormal numbers (below 1.2·10⁻³⁸ in float32) as 0, in its inputs and its results: a processor takes
a hundred times as long over them, and gradients that vanish through time are full of them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

from unroll.engines.cpu import amx
from unroll.engines.cpu.builder import Code, Value, Write, vector_bytes, write_into

FLUSH = 0x8040  # bits of an x86 processor's control word: subnormal results and operands are 0
_kept: list[Any] = []  # code stays for good: threads that run it and replays that will run it know only its address


def make(write: Write, bits: int, arguments: str, in_bf16: bool = False, **settings: Any) -> Callable[..., None]:
    """Compile what `write(code, *arguments, **settings)` writes; a letter an argument: address, number, or element."""
    from llvmlite import binding, ir

    kinds = {
        "a": (ir.PointerType(), ctypes.c_void_p),
        "n": (ir.IntType(64), ctypes.c_int64),
        "e": (ir.FloatType(), ctypes.c_float) if bits == 32 else (ir.DoubleType(), ctypes.c_double),
    }
    module = ir.Module(write.__name__)
    kind = ir.FunctionType(ir.VoidType(), [kinds[letter][0] for letter in arguments])
    function = ir.Function(module, kind, write.__name__)
    machine, features = _machine()

    def whole(code: Code, *values: Value) -> None:
        flushing = _subnormals_are_0(code.builder) if machine.triple.startswith("x86_64") else nullcontext()
        with flushing, amx.configured(code) if in_bf16 and amx.available() else nullcontext():
            write(code, *values, **settings)

    write_into(function, bits, whole, in_bf16)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    parsed = binding.parse_assembly(str(module))
    tuning = binding.create_pipeline_tuning_options(speed_level=2)
    # The code is written in vectors, and its innermost loops are as long as they should be.
    tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = False
    passes = binding.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(parsed, passes)
    engine = binding.create_mcjit_compiler(parsed, _new_machine(features))
    engine.finalize_object()
    _kept.append(engine)
    compiled: Callable[..., None] = ctypes.CFUNCTYPE(None, *(kinds[letter][1] for letter in arguments))(
        engine.get_function_address(write.__name__)
    )
    return compiled


@contextmanager
def _subnormals_are_0(builder: Any) -> Iterator[None]:
    """Set the processor's control word within this block, and restore the thread's own at the end."""
    from llvmlite import ir

    word = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [ir.PointerType()])
    module = builder.module
    load_word, set_word = (ir.Function(module, kind, f"llvm.x86.sse.{name}") for name in ("stmxcsr", "ldmxcsr"))
    with builder.goto_entry_block():
        before = builder.alloca(word)
        changed = builder.alloca(word)
    builder.call(load_word, [before])
    builder.store(builder.or_(builder.load(before, typ=word), word(FLUSH)), changed)
    builder.call(set_word, [changed])
    yield
    builder.call(set_word, [before])


def _new_machine(features: str) -> Any:
    from llvmlite import binding

    target = binding.Target.from_default_triple()
    return target.create_target_machine(cpu=binding.get_host_cpu_name(), features=features, opt=3, jit=True)


@cache
def _machine() -> tuple[Any, str]:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    # LLVM shuns the widest vectors for fear of a lower clock; these loops do nothing else.
    features = binding.get_host_cpu_features().flatten()
    features += ",-prefer-256-bit" if vector_bytes() == 64 else ""
    return _new_machine(features), features
