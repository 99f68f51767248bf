"""Tensors that lie among known bytes, so that what a kernel does outside of them is seen."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import tvm

from autopipe.compiler.library.runtime import allocate_aligned

_MARGIN: Final = 1 << 14
"""Bytes before and behind each tensor: a multiple of every alignment."""


class Surrounded:
    """Copies of arrays, each between two margins that are filled with one byte.

    A kernel that reads outside of its arguments gives other results among other bytes.
    """

    def __init__(self, arrays: Sequence[np.ndarray], byte: int) -> None:
        """Copy the arrays to memory of their own."""
        self._byte = byte
        self._memory: list[np.ndarray] = []
        self.tensors: list[tvm.runtime.Tensor] = []
        """The tensors, as a kernel takes them."""
        for array in arrays:
            memory = allocate_aligned((2 * _MARGIN + array.nbytes,), np.uint8)
            memory[:_MARGIN], memory[_MARGIN + array.nbytes :] = byte, byte
            inside = memory[_MARGIN : _MARGIN + array.nbytes]
            inside[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            self._memory.append(memory)
            # not a view at an offset, which TVM's kernels do not look at
            tensor: tvm.runtime.Tensor = tvm.runtime.from_dlpack(inside)
            self.tensors.append(tensor._create_view(array.shape, str(array.dtype), 0))  # noqa: SLF001

    def intact(self) -> bool:
        """Tell whether the margins are what they were."""
        margins = ((memory[:_MARGIN], memory[-_MARGIN:]) for memory in self._memory)
        return all(bool((margin == self._byte).all()) for pair in margins for margin in pair)
