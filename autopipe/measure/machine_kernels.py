"""Microbenchmarks of `doctor --machine`, with known counts of cycles, bytes or cache lines.

Each is a PrimFunc `main` compiled by TVM's LLVM for this machine, like all other kernels.
"""

from collections.abc import Callable
from typing import Any, Final

import tvm
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

STEPS: Final = 100_000
"""Iterations of the loop of a kernel that touches no memory."""

READERS: Final = 8
"""Independent sums of a reading kernel, so that no load waits for an addition."""

_FLOAT: Final = 32
"""Bits of an element."""


def build_integer_chain() -> tvm.tirx.PrimFunc:
    """Build a loop of `STEPS` additions and exclusive ors, each dependent on the last.

    Argument: int64 [3]. Both take one cycle on every processor, and LLVM finds no closed form.
    """

    def body() -> None:
        x = T.arg("x", T.buffer((3,), "int64"))
        value = T.alloc_buffer((1,), "int64", scope="local")
        T.buffer_store(value, x[0], [0])
        with T.serial(0, STEPS):
            T.buffer_store(value, T.bitwise_xor(value[0] + x[1], x[2]), [0])
        T.buffer_store(x, value[0], [0])

    return _build_function(body)


def build_fma_chains(bits: int, chains: int) -> tvm.tirx.PrimFunc:
    """Build a loop of `STEPS` vector FMAs of `bits` in each of some independent chains.

    Arguments: factor and addend as float32 [2 * lanes], the sums as float32 [chains * lanes].
    """
    lanes = bits // _FLOAT

    def body() -> None:
        x = T.arg("x", T.buffer((2 * lanes,), "float32"))
        y = T.arg("y", T.buffer((chains * lanes,), "float32"))
        sums = T.alloc_buffer((chains * lanes,), "float32", scope="local")
        vectors = [T.ramp(chain * lanes, 1, lanes) for chain in range(chains)]
        for vector in vectors:
            T.buffer_store(sums, y[vector], [vector])
        with T.serial(0, STEPS):
            factor, addend = x[T.ramp(0, 1, lanes)], x[T.ramp(lanes, 1, lanes)]
            for vector in vectors:
                T.buffer_store(sums, sums[vector] * factor + addend, [vector])
        for vector in vectors:
            T.buffer_store(y, sums[vector], [vector])

    return _build_function(body)


def build_reads(bits: int, size: int, passes: int) -> tvm.tirx.PrimFunc:
    """Build a sum of `size` bytes that are read sequentially `passes` times.

    Arguments: float32 [size / 4], where READERS vectors of `bits` divide the size, and the sums as
    float32 [READERS * lanes].
    """
    lanes = bits // _FLOAT
    step = READERS * lanes

    def body() -> None:
        x = T.arg("x", T.buffer((size * 8 // _FLOAT,), "float32"))
        y = T.arg("y", T.buffer((step,), "float32"))
        sums = T.alloc_buffer((step,), "float32", scope="local")
        vectors = [T.ramp(reader * lanes, 1, lanes) for reader in range(READERS)]
        for vector in vectors:
            T.buffer_store(sums, y[vector], [vector])
        with T.serial(0, passes), T.serial(0, size * 8 // _FLOAT // step) as block:
            for number, vector in enumerate(vectors):
                read = x[T.ramp(block * step + number * lanes, 1, lanes)]
                T.buffer_store(sums, sums[vector] + read, [vector])
        for vector in vectors:
            T.buffer_store(y, sums[vector], [vector])

    return _build_function(body)


def build_copies(bits: int, size: int, passes: int) -> tvm.tirx.PrimFunc:
    """Build `passes` copies of `size` bytes, doubled: LLVM would replace plain ones by memcpy.

    Arguments: float32 [size / 4], of which READERS vectors of `bits` divide the size, and the same.
    """
    lanes = bits // _FLOAT
    length = size * 8 // _FLOAT

    def body() -> None:
        x = T.arg("x", T.buffer((length,), "float32"))
        y = T.arg("y", T.buffer((length,), "float32"))
        with T.serial(0, passes), T.serial(0, length // (READERS * lanes)) as block:
            for number in range(READERS):
                vector = T.ramp((block * READERS + number) * lanes, 1, lanes)
                T.buffer_store(y, x[vector] + x[vector], [vector])

    return _build_function(body)


def build_pointer_chase(length: int, steps: int) -> tvm.tirx.PrimFunc:
    """Build a pointer chase of `steps` loads, each of which reads the index of the next one.

    Arguments: int32 [length], a cycle of indices, and the last index as int32 [1].
    """

    def body() -> None:
        x = T.arg("x", T.buffer((length,), "int32"))
        y = T.arg("y", T.buffer((1,), "int32"))
        place = T.alloc_buffer((1,), "int32", scope="local")
        T.buffer_store(place, 0, [0])
        with T.serial(0, steps):
            T.buffer_store(place, x[place[0]], [0])
        T.buffer_store(y, place[0], [0])

    return _build_function(body)


def build_regions(cores: int, count: int, *, parallel: bool) -> tvm.tirx.PrimFunc:
    """Build `count` loops with a store for each core, parallel or serial.

    Argument: int32 [16 * cores].
    """

    def body() -> None:
        x = T.arg("x", T.buffer((16 * cores,), "int32"))
        loop = T.parallel if parallel else T.serial
        with T.serial(0, count) as number, loop(0, cores) as core:
            T.buffer_store(x, number, [core * 16])

    return _build_function(body)


def build_remote_copy(length: int) -> tvm.tirx.PrimFunc:
    """Build a copy by the second thread, so that its core owns the lines.

    Arguments: int32 [length], and the destination.
    """

    def body() -> None:
        x = T.arg("x", T.buffer((length,), "int32"))
        y = T.arg("y", T.buffer((length,), "int32"))
        with T.parallel(0, 2) as thread, T.serial(0, length * thread) as place:
            T.buffer_store(y, x[place], [place])

    return _build_function(body)


def _build_function(body: Callable[[], Any]) -> tvm.tirx.PrimFunc:
    with IRBuilder() as builder, T.prim_func():
        T.func_name("main")
        body()
    return builder.get()
