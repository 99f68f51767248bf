"""Prefetches the outputs that a tile will write, and the weights of later steps.

In a model an output goes to memory that was last touched long ago. A store to it waits until its
line has come, and so does the load of a residual that is added. There are few steps of the sum
between the tiles of a convolution of one tap, so a core would wait after each tile. Asked for
before the first step, the lines have come after the last one.

Example: a tile of 6 x 16 floats at row 12 and column 32 of y[112, 96], which adds x[112, 96].

    for r in unrolled(6):
        fetch(x[12 + r, 32])                   # a line of 64 bytes holds 16 floats
        fetch(y[12 + r, 32])
    for k in range(64):                        # then the sums, as before

Packed weights lie in the order in which steps read them, and come from far away where each is used
a few times. With 512 bits a step takes as few cycles as a line takes to come from the second level,
and fewer by far than one takes from the third. So each step asks for those of some steps later.

    for k in range(64):
        fetch(w[2, k + 96, 0])                 # the same address and a constant
        sums[...] += x[..., k] * w[2, k, 0:16]

Behind its last step a strip goes on with the next one, and the last strip past all weights, where a
fetch does nothing.
"""

from collections.abc import Sequence

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Expr, TensorLoad
from tvm.s_tir import SBlock
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.find_nodes import list_loads
from autopipe.environment.machines import LINE_BYTES

_TO_READ, _TO_WRITE = (0, 3, 1), (1, 3, 1)
"""How LLVM takes a prefetch: for reading or writing, into the nearest cache, as data."""


def count_line_elements(bits: int) -> int:
    """Return the number of elements of `bits` bits in a cache line."""
    return 8 * LINE_BYTES // bits


def find_residuals(last: SBlock, total: tvm.ir.Var) -> list[TensorLoad]:
    """Return the load of the last block beside the sum `total`, if as large as the output."""
    shape = last.body.buffer.ty.shape
    return [
        read
        for read in list_loads(last.body.value)
        if not read.source.same_as(total) and tvm_ffi.structural_equal(read.source.ty.shape, shape)
    ]


def prefetch_read(load: Expr) -> None:
    """Write the prefetch of the cache line of an element that is read."""
    T.evaluate(build_prefetch(load))


def prefetch_write(buffer: tvm.ir.Var, index: Sequence[Expr]) -> None:
    """Write the prefetch of the cache line of an element that is written."""
    T.evaluate(build_prefetch(buffer[tuple(index)], _TO_WRITE))


def build_prefetch(element: Expr, how: tuple[int, int, int] = _TO_READ) -> Expr:
    """Build the call that prefetches the cache line of an element."""
    address = tirx.address_of(element)
    return tirx.call_llvm_intrin("void", "llvm.prefetch", address, *how)
