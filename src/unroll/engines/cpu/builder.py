"""Machine code for this very processor, made while the program runs: no compiler has to be installed, only llvmlite.

A kernel is a Python function that writes down, once, what the processor shall do: values are wrapped so that `a * b`
writes a multiplication, and `with code.loop(n) as i:` writes a loop. Arrays are addresses, and everything read from
them is a vector of as many neighbouring elements as the processor multiplies at once. LLVM makes the code in a tenth of
a second (`compiler.py`), and Python calls it without holding up its other threads.

Nothing is reordered: what is written is computed, with the rounding of each operation, so the same numbers come out of
the same numbers, wherever they lie and whatever is computed beside them.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, reduce
from typing import Any

MISSING = "it needs llvmlite, to make code for this processor: pip install 'unroll-rnn[fast]'"
ELSEWHERE = "it makes machine code on Linux alone, since it was never run on another system"
VECTORS = 2  # side by side in a panel of a matrix (see `products.py`)


def available() -> bool:
    """Whether code can be made here."""
    return sys.platform == "linux" and importlib.util.find_spec("llvmlite") is not None


def missing() -> str:
    """Why none can, in words."""
    return MISSING if sys.platform == "linux" else ELSEWHERE


class Value:
    """A number, a vector or an address that the code will hold; operators write operations."""

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
        """This or the bound, whichever is smaller; what is not a number stays so."""
        builder = self.code.builder
        return Value(self.code, builder.select(builder.fcmp_ordered(">", self.it, bound.it), bound.it, self.it))

    def at_least(self, bound: Value) -> Value:
        """This or the bound, whichever is larger; what is not a number stays so."""
        builder = self.code.builder
        return Value(self.code, builder.select(builder.fcmp_ordered("<", self.it, bound.it), bound.it, self.it))

    def at_most_number(self, bound: Value | int) -> Value:
        """This whole number or the bound, whichever is smaller."""
        builder, limit = self.code.builder, self.code.like(self, bound)
        return Value(self.code, builder.select(builder.icmp_unsigned("<", self.it, limit.it), self.it, limit.it))

    def where_below(self, x: Value, bound: Value, other: Value) -> Value:
        """This, but the other where x is below the bound."""
        builder = self.code.builder
        return Value(self.code, builder.select(builder.fcmp_ordered("<", x.it, bound.it), other.it, self.it))


class Variable:
    """A value that changes as the code runs: in a register, if there is one left."""

    def __init__(self, code: Code, value: Value) -> None:
        with code.builder.goto_entry_block():
            self._place = code.builder.alloca(value.it.type)
        self._code, self._type = code, value.it.type
        self.set(value)

    def get(self) -> Value:
        """As it is at this point of the code."""
        return Value(self._code, self._code.builder.load(self._place, typ=self._type))

    def set(self, value: Value) -> None:
        """From this point of the code on."""
        self._code.builder.store(value.it, self._place)


class Code:
    """The code of one function, while it is being written. Elements are float32 or float64 (`bits`).

    Where it is `narrow`, elements are float32, and what products multiply is rounded to bfloat16: see `bf16.py`.
    """

    def __init__(self, bits: int, builder: Any, narrow: bool = False, vectors: int = 1) -> None:
        from llvmlite import ir

        assert bits == 32 or not narrow
        self._ir, self.bits, self.builder, self.narrow = ir, bits, builder, narrow
        self.lanes = vectors * vector_bytes() * 8 // bits
        self.panel = VECTORS * self.lanes // vectors
        self.element = ir.FloatType() if bits == 32 else ir.DoubleType()
        self.vector = ir.VectorType(self.element, self.lanes)
        self.integers = ir.VectorType(ir.IntType(bits), self.lanes)

    def registers(self) -> int:
        """How many vectors the processor holds at once, at least."""
        return 32 if vector_bytes() == 64 else 16

    def wide(self) -> Code:
        """The same, where a vector is a panel wide: each operation is two, and neither waits for the other."""
        return Code(self.bits, self.builder, self.narrow, VECTORS)

    def like(self, other: Value, value: Value | float) -> Value:
        """A Python number as a constant of another value's type."""
        if isinstance(value, Value):
            return value
        kind = other.it.type
        if kind == self.vector or kind == self.integers:
            return Value(self, self._ir.Constant(kind, [value] * self.lanes))
        return Value(self, self._ir.Constant(kind, value))

    def number(self, value: int) -> Value:
        """A whole number, to count or to address with."""
        return Value(self, self._ir.Constant(self._ir.IntType(64), value))

    def constant(self, value: float) -> Value:
        """A vector of one number."""
        return Value(self, self._ir.Constant(self.vector, [value] * self.lanes))

    @contextmanager
    def loop(self, times: Value | int, backwards: bool = False) -> Iterator[Value]:
        """What is written inside happens so many times, for 0, 1, …, or from the last down to 0."""
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
        """The address so many elements further on."""
        elements = self.number(elements) if isinstance(elements, int) else elements
        return Value(self, self.builder.gep(address.it, [elements.it], source_etype=self.element))

    def scratch(self, elements: int) -> Value:
        """Room for so many elements, as long as the code runs."""
        with self.builder.goto_entry_block():
            return Value(self, self.builder.alloca(self.vector, elements // self.lanes))

    def vector_room(self) -> Value:
        """Room for one vector, to fill it element by element."""
        # llvmlite remembers what a room was made for and lets nothing else be put there; an address is free of that.
        return self.pointer(Value(self, self.builder.ptrtoint(self.scratch(self.lanes).it, self._ir.IntType(64))))

    def load(self, address: Value) -> Value:
        """The vector that begins there."""
        return Value(self, self.builder.load(address.it, typ=self.vector, align=self.bits // 8))

    def store(self, value: Value, address: Value) -> None:
        """Put a vector there."""
        self.builder.store(value.it, address.it, align=self.bits // 8)

    def at_index(self, address: Value, place: Value) -> Value:
        """The address so many whole numbers further on."""
        return Value(self, self.builder.gep(address.it, [place.it], source_etype=self._ir.IntType(64)))

    def load_index(self, address: Value, place: Value) -> Value:
        """An element of an array of whole numbers."""
        return Value(self, self.builder.load(self.at_index(address, place).it, typ=self._ir.IntType(64)))

    def pointer(self, number: Value) -> Value:
        """The address that a whole number is."""
        return Value(self, self.builder.inttoptr(number.it, self._ir.PointerType()))

    def spread(self, element: Value) -> Value:
        """One number in every place of a vector."""
        builder, none = self.builder, self._ir.Constant(self.vector, self._ir.Undefined)
        zeros = self._ir.Constant(self._ir.VectorType(self._ir.IntType(32), self.lanes), [0] * self.lanes)
        first = builder.insert_element(none, element.it, self._ir.Constant(self._ir.IntType(32), 0))
        return Value(self, builder.shuffle_vector(first, none, zeros))

    def load_spread(self, address: Value) -> Value:
        """The element that stands there, in every place of a vector."""
        return self.spread(Value(self, self.builder.load(address.it, typ=self.element, align=self.bits // 8)))

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a·b + c, rounded once."""
        return self.intrinsic(f"llvm.fma.v{self.lanes}f{self.bits}", self.vector, a, b, c)

    def sqrt(self, value: Value) -> Value:
        """The square root."""
        return self.intrinsic(f"llvm.sqrt.v{self.lanes}f{self.bits}", self.vector, value)

    def intrinsic(self, name: str, result: Any, *values: Value) -> Value:
        """What LLVM knows by name; its result's type is given."""
        module = self.builder.module
        kind = self._ir.FunctionType(result, [value.it.type for value in values])
        function = module.globals.get(name) or self._ir.Function(module, kind, name)
        return Value(self, self.builder.call(function, [value.it for value in values]))

    def fetch(self, address: Value) -> None:
        """Have what stands there brought nearer, to the second-level cache, while other things are computed."""
        small = self._ir.IntType(32)
        kind = self._ir.FunctionType(self._ir.VoidType(), [address.it.type, small, small, small])
        module = self.builder.module
        function = module.globals.get("llvm.prefetch.p0") or self._ir.Function(module, kind, "llvm.prefetch.p0")
        reads, near, data = (self._ir.Constant(small, n) for n in (0, 2, 1))
        self.builder.call(function, [address.it, reads, near, data])

    def pause(self) -> None:
        """What is read from memory after this is read after this; itself it is nothing."""
        kind = self._ir.FunctionType(self._ir.VoidType(), [])
        self.builder.call(self._ir.InlineAsm(kind, "", "~{memory}", side_effect=True), [])

    def call(self, name: str, write: Write, *arguments: Value) -> None:
        """Call a function of its own, which `write(code, *arguments)` writes the first time: it has all registers."""
        module = self.builder.module
        function = module.globals.get(name)
        if function is None:
            kind = self._ir.FunctionType(self._ir.VoidType(), [argument.it.type for argument in arguments])
            function = self._ir.Function(module, kind, name)
            function.linkage = "internal"
            function.attributes.add("noinline")
            write_into(function, self.bits, write, self.narrow)
        self.builder.call(function, [argument.it for argument in arguments])

    def outside(self, address: int, arguments: int) -> Any:
        """A function that is there already and takes so many numbers or addresses, for the builder to call."""
        from llvmlite import binding

        name, module = f"at_{address:x}", self.builder.module
        binding.add_symbol(name, address)
        kind = self._ir.FunctionType(self._ir.VoidType(), [self._ir.IntType(64)] * arguments)
        return module.globals.get(name) or self._ir.Function(module, kind, name)

    def total(self, value: Value) -> Value:
        """The sum over a vector's places, from the first to the last."""
        return self._over_places(value, lambda a, b: a + b)

    def largest(self, value: Value) -> Value:
        """The largest of a vector's places; what is not a number is passed over, or not."""
        builder = self.builder
        return self._over_places(
            value, lambda a, b: Value(self, builder.select(builder.fcmp_ordered(">", b.it, a.it), b.it, a.it))
        )

    def _over_places(self, value: Value, join: Callable[[Value, Value], Value]) -> Value:
        return reduce(join, self.elements(value))

    def elements(self, value: Value) -> list[Value]:
        """What stands in each of a vector's places."""
        places = (self._ir.Constant(self._ir.IntType(32), n) for n in range(self.lanes))
        return [Value(self, self.builder.extract_element(value.it, place)) for place in places]

    def load_element(self, address: Value) -> Value:
        """The one number that stands there."""
        return Value(self, self.builder.load(address.it, typ=self.element, align=self.bits // 8))

    def store_element(self, value: Value, address: Value) -> None:
        """Put one number there."""
        self.builder.store(value.it, address.it, align=self.bits // 8)

    def bits_of(self, value: Value) -> Value:
        """A vector's bits as whole numbers."""
        return Value(self, self.builder.bitcast(value.it, self.integers))

    def from_bits(self, value: Value) -> Value:
        """The vector that has these bits."""
        return Value(self, self.builder.bitcast(value.it, self.vector))

    def shifted(self, value: Value, left: int) -> Value:
        """Whole numbers, their bits moved up."""
        return Value(self, self.builder.shl(value.it, self.like(value, left).it))


Write = Callable[..., None]


def write_into(function: Any, bits: int, write: Write, narrow: bool = False) -> None:
    """The whole of an LLVM function."""
    from llvmlite import ir

    builder = ir.IRBuilder(function.append_basic_block("entry"))
    code = Code(bits, builder, narrow)
    # The entry block holds nothing but the variables' places, so that loops never make them anew.
    begin = builder.append_basic_block("begin")
    builder.branch(begin)
    builder.position_at_end(begin)
    write(code, *(Value(code, argument) for argument in function.args))
    builder.ret_void()


@cache
def vector_bytes() -> int:
    """Of the vectors that this processor multiplies at once."""
    from llvmlite import binding

    has = binding.get_host_cpu_features()
    return 64 if has.get("avx512f") else 32 if has.get("avx2") else 16
