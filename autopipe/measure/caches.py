"""Bring the caches into the state in which a model calls a kernel.

In a loop that calls one kernel only, its operands lie in the first cache of the core that uses
them. In a model they do not. Example: a model reads 12 MiB of weights, and one of its convolutions
reads 400 KiB of activations and 2 MiB of weights. Before each timed call

1. all cores read 12 MiB of other memory: weights and outputs are as cold as the model leaves them;
2. the activations are written, 4 KiB by the first core, 4 KiB by the second, and so on. The
   partition of the preceding kernel is unknown, so a core finds half of its operands in another
   core's cache. Where the activations are less than `_ALONE` bytes, the caller has written all of
   them: a kernel of so little work has no threads.

Then the kernel is called once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import tvm
from tvm.script import tirx as T  # noqa: N812 - its conventional name

from autopipe.compiler.codegen.compile_kernels import compile_kernel
from autopipe.environment.caches import SYSTEM_FOLDER, read_sizes
from autopipe.measure import tensors
from autopipe.measure.measurement import Surroundings

_LINE_WORDS: Final = 16
"""Elements of four bytes in a line of a cache."""

_BLOCK: Final = 1024
"""Elements that one core writes in a row: a page."""

_ALONE: Final = 32 << 10

_WIDTH: Final = 4
"""Bytes of an element."""

LARGEST: Final = 512 << 20
"""Largest number of bytes that are read before a call: they displace every cache. It also bounds
the orders of a farm."""

_DISPLACING: Final = 4
"""Bytes to read before a call at most, as a multiple of the capacity of the caches."""


@dataclass(frozen=True, slots=True)
class ModelCaches:
    """Brings the caches of a processor into the state in which a model calls a kernel.

    Create it before the first fork: a child shares code and memory.
    """

    _library: tvm.runtime.Module
    _memory: tvm.runtime.Tensor
    """Memory that is read in place of the rest of the model's."""
    _sums: tvm.runtime.Tensor

    @classmethod
    def of(cls, target: tvm.target.Target, cores: int, most: int) -> "ModelCaches":
        """Create it for some cores, and for models that touch `most` bytes between two calls."""
        most = min(most, LARGEST, _count_displacing(cores))
        library = compile_kernel(_build_kernels(cores), target)
        for name in ("read", "write", "write_alone"):
            _ = library[name]  # machine code is made on first use
        (memory,) = tensors.make_weight_tensors(
            [((max(most // _WIDTH, cores * _LINE_WORDS),), "int32")]
        )
        np.from_dlpack(memory)[:] = 1  # as sums of them are known
        return cls(library, memory, tvm.runtime.empty((cores * _LINE_WORDS,), "int32"))

    def before(
        self, arguments: Sequence[tvm.runtime.Tensor], surroundings: Surroundings
    ) -> Callable[..., None]:
        """Build the function to call before each call of a kernel with these arguments."""
        touched_words = min(surroundings.touched // _WIDTH, int(self._memory.shape[0]))
        foreign_memory = _to_flat_int32(self._memory, touched_words)
        activations = [
            (self._library["write_alone" if _count_bytes(tensor) < _ALONE else "write"], tensor)
            for tensor in (arguments[place] for place in surroundings.activations)
            if _count_bytes(tensor) >= _WIDTH
        ]
        flat = [
            (write, _to_flat_int32(tensor, _count_bytes(tensor) // _WIDTH))
            for write, tensor in activations
        ]
        read, sums = self._library["read"], self._sums

        def prepare(*_: object) -> None:
            if touched_words:
                read(foreign_memory, sums)
            for write, tensor in flat:
                write(tensor, 0)

        return prepare


def _count_displacing(cores: int) -> int:
    """Return the number of bytes that displace the contents of all caches of this machine."""
    sizes = read_sizes(SYSTEM_FOLDER)
    capacity = cores * sizes.get("l2", 0) + sizes.get("l3", 0)
    return _DISPLACING * capacity if capacity else LARGEST


def _count_bytes(tensor: tvm.runtime.Tensor) -> int:
    count = int(np.prod([int(extent) for extent in tensor.shape], dtype=np.int64))
    return count * -(-int(tvm.runtime.DataType(str(tensor.dtype)).bits) // 8)


def _to_flat_int32(tensor: tvm.runtime.Tensor, count: int) -> tvm.runtime.Tensor:
    return tensor._create_view((count,), "int32", 0)  # noqa: SLF001 -- as TVM's own code does


def _build_kernels(cores: int) -> tvm.IRModule:
    """Build kernels that read, and that rewrite the same values: x ^ 0, opaque to LLVM."""

    @T.prim_func  # type: ignore[untyped-decorator]  # of tvm, which has no types
    def read(source: T.handle, sums: T.handle) -> None:
        T.func_attr({"global_symbol": "read"})
        size = T.int64()
        memory = T.match_buffer(source, (size,), "int32")
        total = T.match_buffer(sums, (cores * _LINE_WORDS,), "int32")
        for core in T.parallel(cores):
            for line in T.serial(size // (cores * _LINE_WORDS)):
                total[core * _LINE_WORDS] = (
                    total[core * _LINE_WORDS]
                    + memory[(core * (size // (cores * _LINE_WORDS)) + line) * _LINE_WORDS]
                )

    @T.prim_func  # type: ignore[untyped-decorator]  # of tvm, which has no types
    def write(destination: T.handle, change: T.int32) -> None:
        T.func_attr({"global_symbol": "write"})
        size = T.int64()
        x = T.match_buffer(destination, (size,), "int32")
        for core in T.parallel(cores):
            for turn in T.serial((size + cores * _BLOCK - 1) // (cores * _BLOCK)):
                for i in T.serial(
                    T.max(T.int64(0), T.min(T.int64(_BLOCK), size - (turn * cores + core) * _BLOCK))
                ):
                    x[(turn * cores + core) * _BLOCK + i] = T.bitwise_xor(
                        x[(turn * cores + core) * _BLOCK + i], change
                    )

    @T.prim_func  # type: ignore[untyped-decorator]  # of tvm, which has no types
    def write_alone(destination: T.handle, change: T.int32) -> None:
        T.func_attr({"global_symbol": "write_alone"})
        size = T.int64()
        x = T.match_buffer(destination, (size,), "int32")
        for i in T.serial(size):
            x[i] = T.bitwise_xor(x[i], change)

    return tvm.IRModule({"read": read, "write": write, "write_alone": write_alone})
