"""Tensors with guard bytes around them, which reveal out-of-bounds accesses of a kernel."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import tvm

from autopipe.compiler.library.runtime import allocate_aligned

_GUARD_BYTES: Final = 1 << 14
"""Guard bytes before and after each tensor: a multiple of every alignment."""


class Surrounded:
    """Copies of arrays, each between two margins that are filled with one byte.

    A kernel that reads out of bounds yields different results with different bytes.
    """

    def __init__(self, arrays: Sequence[np.ndarray], byte: int) -> None:
        """Copy the arrays to memory of their own."""
        self._byte = byte
        self._memory: list[np.ndarray] = []
        self.tensors: list[tvm.runtime.Tensor] = []
        """The arguments for a kernel."""
        self.arrays: list[np.ndarray] = []
        """The same memory as arrays."""
        for array in arrays:
            memory = allocate_aligned((2 * _GUARD_BYTES + array.nbytes,), np.uint8)
            memory[:_GUARD_BYTES], memory[_GUARD_BYTES + array.nbytes :] = byte, byte
            inside = memory[_GUARD_BYTES : _GUARD_BYTES + array.nbytes]
            inside[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            self._memory.append(memory)
            self.arrays.append(inside.view(array.dtype).reshape(array.shape))
            # not a view at an offset, which TVM's kernels ignore
            tensor: tvm.runtime.Tensor = tvm.runtime.from_dlpack(inside)
            self.tensors.append(tensor._create_view(array.shape, str(array.dtype), 0))  # noqa: SLF001

    def intact(self) -> bool:
        """Whether the margins are unchanged."""
        margins = ((memory[:_GUARD_BYTES], memory[-_GUARD_BYTES:]) for memory in self._memory)
        return all(bool((margin == self._byte).all()) for pair in margins for margin in pair)
