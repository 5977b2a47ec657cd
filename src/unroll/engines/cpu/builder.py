"""Machine code for this very processor, made while the program runs: only llvmlite has to be installed, no compiler.

A kernel is a Python function that writes the processor's work down once: values are wrapped so that `a * b` writes a
multiplication, and `with code.loop(n) as i:` writes a loop. Arrays are addresses. A read gives a vector of neighbouring
elements, as many as the processor multiplies at once. LLVM makes the code in a tenth of a second (`compiler.py`), and
Python calls it without holding up its other threads.

LLVM reorders nothing: each operation rounds as it is written. The same numbers therefore give the same results,
wherever they lie in memory and whatever is computed beside them.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, reduce
from typing import Any

MISSING = "it needs llvmlite, to make code for this processor: pip install 'unroll-rnn[fast]'"
ELSEWHERE = "it makes machine code on Linux alone, since it was never run on another system"
VECTORS = 2  # vectors side by side in a panel of a matrix (see `products.py`)


def available() -> bool:
    """Whether machine code can be made here."""
    return sys.platform == "linux" and importlib.util.find_spec("llvmlite") is not None


def missing() -> str:
    """Why no machine code can be made here, in words."""
    return MISSING if sys.platform == "linux" else ELSEWHERE


class Value:
    """A number, a vector or an address in the code; operators write operations."""

    def __init__(self, code: Code, it: Any) -> None:
        self.code, self.it = code, it
        self._letter = "" if str(it.type)[0] == "i" or "x i" in str(it.type) else "f"

    def _with(self, other: Value | float, name: str) -> Value:
        value = self.code.like(self, other)
        return Value(self.code, getattr(self.code.builder, self._letter + name)(self.it, value.it))

    def __add__(self, other: Value | float) -> Value:
        return self._with(other, "add")

    def __sub__(self, other: Value | float) -> Value:
        return self._with(other, "sub")

    def __mul__(self, other: Value | float) -> Value:
        return self._with(other, "mul")

    def __truediv__(self, other: Value) -> Value:
        return self._with(other, "div")

    def __floordiv__(self, other: Value | int) -> Value:
        return Value(self.code, self.code.builder.udiv(self.it, self.code.like(self, other).it))

    def __mod__(self, other: int) -> Value:
        return Value(self.code, self.code.builder.urem(self.it, self.code.like(self, other).it))

    def at_most(self, bound: Value) -> Value:
        """The smaller of this and the bound; a NaN stays a NaN."""
        builder = self.code.builder
        return Value(self.code, builder.select(builder.fcmp_ordered(">", self.it, bound.it), bound.it, self.it))

    def at_least(self, bound: Value) -> Value:
        """The larger of this and the bound; a NaN stays a NaN."""
        builder = self.code.builder
        return Value(self.code, builder.select(builder.fcmp_ordered("<", self.it, bound.it), bound.it, self.it))

    def at_most_number(self, bound: Value | int) -> Value:
        """The smaller of this whole number and the bound."""
        builder = self.code.builder
        limit = self.code.like(self, bound)
        return Value(self.code, builder.select(builder.icmp_unsigned("<", self.it, limit.it), self.it, limit.it))

    def where_below(self, x: Value, bound: Value, other: Value) -> Value:
        """This value, or the other one where x is below the bound."""
        builder = self.code.builder
        return Value(self.code, builder.select(builder.fcmp_ordered("<", x.it, bound.it), other.it, self.it))


class Variable:
    """A value that changes as the code runs; it lives in a register if one is left."""

    def __init__(self, code: Code, value: Value) -> None:
        with code.builder.goto_entry_block():
            self._address = code.builder.alloca(value.it.type)
        self._code, self._type = code, value.it.type
        self.set(value)

    def get(self) -> Value:
        """Read the value at this point of the code."""
        return Value(self._code, self._code.builder.load(self._address, typ=self._type))

    def set(self, value: Value) -> None:
        """Change the value from this point of the code on."""
        self._code.builder.store(value.it, self._address)


class Code:
    """The code of one function, while it is being written. Elements are float32 or float64 (`bits`).

    With `in_bf16`, elements are float32, and products round their factors to bfloat16: see `bf16.py`.
    """

    def __init__(self, bits: int, builder: Any, in_bf16: bool = False, vectors: int = 1) -> None:
        from llvmlite import ir

        assert bits == 32 or not in_bf16
        self._ir, self.bits, self.builder, self.in_bf16 = ir, bits, builder, in_bf16
        self.lanes = vectors * vector_bytes() * 8 // bits
        self.panel = VECTORS * self.lanes // vectors
        self.element = ir.FloatType() if bits == 32 else ir.DoubleType()
        self.vector = ir.VectorType(self.element, self.lanes)
        self.integers = ir.VectorType(ir.IntType(bits), self.lanes)

    def registers(self) -> int:
        """The least number of vectors that the processor holds at once."""
        return 32 if vector_bytes() == 64 else 16

    def wide(self) -> Code:
        """The same code with vectors as wide as a panel: each operation is two, and neither waits for the other."""
        return Code(self.bits, self.builder, self.in_bf16, VECTORS)

    def like(self, other: Value, value: Value | float) -> Value:
        """Turn a Python number into a constant of another value's type."""
        if isinstance(value, Value):
            return value
        kind = other.it.type
        if kind == self.vector or kind == self.integers:
            return Value(self, self._ir.Constant(kind, [value] * self.lanes))
        return Value(self, self._ir.Constant(kind, value))

    def number(self, value: int) -> Value:
        """A constant whole number, to count or to address with."""
        return Value(self, self._ir.Constant(self._ir.IntType(64), value))

    def constant(self, value: float) -> Value:
        """A vector that holds one number in every lane."""
        return Value(self, self._ir.Constant(self.vector, [value] * self.lanes))

    @contextmanager
    def loop(self, times: Value | int, backwards: bool = False) -> Iterator[Value]:
        """Repeat what is written inside, for 0, 1, …, times − 1, or from the last down to 0."""
        times = self.number(times) if isinstance(times, int) else times
        index = Variable(self, self.number(0))
        builder = self.builder
        head, body, behind = (builder.append_basic_block(name) for name in ("head", "body", "behind"))
        builder.branch(head)
        builder.position_at_end(head)
        done = index.get()
        builder.cbranch(builder.icmp_unsigned("<", done.it, times.it), body, behind)
        builder.position_at_end(body)
        yield times - done - 1 if backwards else done
        index.set(done + 1)
        builder.branch(head)
        builder.position_at_end(behind)

    def at(self, address: Value, elements: Value | int) -> Value:
        """The address that lies this many elements further on."""
        elements = self.number(elements) if isinstance(elements, int) else elements
        return Value(self, self.builder.gep(address.it, [elements.it], source_etype=self.element))

    def scratch(self, elements: int) -> Value:
        """Memory for this many elements, while the code runs."""
        with self.builder.goto_entry_block():
            return Value(self, self.builder.alloca(self.vector, elements // self.lanes))

    def vector_room(self) -> Value:
        """Memory for one vector that is filled element by element."""
        # llvmlite stores only the type that it allocated the memory for; a bare address takes any type.
        return self.pointer(Value(self, self.builder.ptrtoint(self.scratch(self.lanes).it, self._ir.IntType(64))))

    def load(self, address: Value) -> Value:
        """Read the vector that begins at an address."""
        return Value(self, self.builder.load(address.it, typ=self.vector, align=self.bits // 8))

    def store(self, value: Value, address: Value) -> None:
        """Write a vector to an address."""
        self.builder.store(value.it, address.it, align=self.bits // 8)

    def at_index(self, address: Value, index: Value) -> Value:
        """The address that lies this many whole numbers further on."""
        return Value(self, self.builder.gep(address.it, [index.it], source_etype=self._ir.IntType(64)))

    def load_index(self, address: Value, index: Value) -> Value:
        """Read an element of an array of whole numbers."""
        return Value(self, self.builder.load(self.at_index(address, index).it, typ=self._ir.IntType(64)))

    def pointer(self, number: Value) -> Value:
        """Turn a whole number into an address."""
        return Value(self, self.builder.inttoptr(number.it, self._ir.PointerType()))

    def spread(self, element: Value) -> Value:
        """A vector with one number in every lane."""
        undefined = self._ir.Constant(self.vector, self._ir.Undefined)
        first = self.builder.insert_element(undefined, element.it, self._ir.Constant(self._ir.IntType(32), 0))
        return Value(self, shuffled(self.builder, first, undefined, [0] * self.lanes))

    def load_spread(self, address: Value) -> Value:
        """Read one element into every lane of a vector."""
        return self.spread(Value(self, self.builder.load(address.it, typ=self.element, align=self.bits // 8)))

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a·b + c, rounded once."""
        return self.intrinsic(f"llvm.fma.v{self.lanes}f{self.bits}", self.vector, a, b, c)

    def sqrt(self, value: Value) -> Value:
        """The square root."""
        return self.intrinsic(f"llvm.sqrt.v{self.lanes}f{self.bits}", self.vector, value)

    def intrinsic(self, name: str, result: Any, *values: Value) -> Value:
        """Call a function that LLVM knows by name; `result` is the type of its result."""
        module = self.builder.module
        kind = self._ir.FunctionType(result, [value.it.type for value in values])
        function = module.globals.get(name) or self._ir.Function(module, kind, name)
        return Value(self, self.builder.call(function, [value.it for value in values]))

    def fetch(self, address: Value) -> None:
        """Bring memory into the second-level cache, while the code goes on."""
        small = self._ir.IntType(32)
        kind = self._ir.FunctionType(self._ir.VoidType(), [address.it.type, small, small, small])
        module = self.builder.module
        function = module.globals.get("llvm.prefetch.p0") or self._ir.Function(module, kind, "llvm.prefetch.p0")
        reads, near, data = (self._ir.Constant(small, n) for n in (0, 2, 1))
        self.builder.call(function, [address.it, reads, near, data])

    def pause(self) -> None:
        """Keep LLVM from moving reads across this point; the processor does nothing here."""
        kind = self._ir.FunctionType(self._ir.VoidType(), [])
        self.builder.call(self._ir.InlineAsm(kind, "", "~{memory}", side_effect=True), [])

    def call(self, name: str, write: Write, *arguments: Value) -> None:
        """Call a separate function, which has all registers; `write(code, *arguments)` writes it the first time."""
        module = self.builder.module
        function = module.globals.get(name)
        if function is None:
            kind = self._ir.FunctionType(self._ir.VoidType(), [argument.it.type for argument in arguments])
            function = self._ir.Function(module, kind, name)
            function.linkage = "internal"
            function.attributes.add("noinline")
            write_into(function, self.bits, write, self.in_bf16)
        self.builder.call(function, [argument.it for argument in arguments])

    def outside(self, address: int, arguments: int) -> Any:
        """An existing function with this many numbers or addresses as arguments, for the builder to call."""
        from llvmlite import binding

        name, module = f"at_{address:x}", self.builder.module
        binding.add_symbol(name, address)
        kind = self._ir.FunctionType(self._ir.VoidType(), [self._ir.IntType(64)] * arguments)
        return module.globals.get(name) or self._ir.Function(module, kind, name)

    def total(self, value: Value) -> Value:
        """The sum over a vector's lanes, from the first to the last."""
        return self._over_lanes(value, lambda a, b: a + b)

    def largest(self, value: Value) -> Value:
        """The largest of a vector's lanes; a NaN may be passed over, or not."""
        builder = self.builder
        return self._over_lanes(
            value, lambda a, b: Value(self, builder.select(builder.fcmp_ordered(">", b.it, a.it), b.it, a.it))
        )

    def _over_lanes(self, value: Value, join: Callable[[Value, Value], Value]) -> Value:
        return reduce(join, self.elements(value))

    def elements(self, value: Value) -> list[Value]:
        """The element of each lane of a vector."""
        lanes = (self._ir.Constant(self._ir.IntType(32), n) for n in range(self.lanes))
        return [Value(self, self.builder.extract_element(value.it, lane)) for lane in lanes]

    def load_element(self, address: Value) -> Value:
        """Read one element from an address."""
        return Value(self, self.builder.load(address.it, typ=self.element, align=self.bits // 8))

    def store_element(self, value: Value, address: Value) -> None:
        """Write one element to an address."""
        self.builder.store(value.it, address.it, align=self.bits // 8)

    def bits_of(self, value: Value) -> Value:
        """Read a vector's bits as whole numbers."""
        return Value(self, self.builder.bitcast(value.it, self.integers))

    def from_bits(self, value: Value) -> Value:
        """Read whole numbers as the bits of a vector."""
        return Value(self, self.builder.bitcast(value.it, self.vector))

    def shifted(self, value: Value, left: int) -> Value:
        """Shift the bits of whole numbers up."""
        return Value(self, self.builder.shl(value.it, self.like(value, left).it))


Write = Callable[..., None]


def shuffled(builder: Any, a: Any, b: Any, order: Iterable[int]) -> Any:
    """The elements of two vectors in this order; the second vector's are counted on from the first's."""
    from llvmlite import ir

    lanes = list(order)
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes))


def write_into(function: Any, bits: int, write: Write, in_bf16: bool = False) -> None:
    """Write the whole of an LLVM function."""
    from llvmlite import ir

    builder = ir.IRBuilder(function.append_basic_block("entry"))
    code = Code(bits, builder, in_bf16)
    # The entry block only allocates variables, so that loops never allocate them again.
    begin = builder.append_basic_block("begin")
    builder.branch(begin)
    builder.position_at_end(begin)
    write(code, *(Value(code, argument) for argument in function.args))
    builder.ret_void()


@cache
def vector_bytes() -> int:
    """The bytes of the vectors that this processor multiplies at once."""
    from llvmlite import binding

    has = binding.get_host_cpu_features()
    return 64 if has.get("avx512f") else 32 if has.get("avx2") else 16
