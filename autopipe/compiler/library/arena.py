"""Memory for the weights of a model: one stretch, in large pages where the system gives them.

A model reads all of its weights in each run, once. In pages of 4 KiB a processor looks up where
each of them lies, some ten thousand times in a run that reads 40 MiB; in pages of 2 MiB twenty
times. Linux gives such pages to whom asks for them, unless it was told otherwise.
"""

import mmap
from contextlib import suppress
from typing import Final

import numpy as np

from autopipe.compiler.library.loaded_model import allocate_aligned
from autopipe.runtime.weights import ALIGNMENT

PAGE: Final = 2 << 20
"""Bytes of a large page; less than that is not worth one."""

_ADVICE: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)


def copy_array(array: np.ndarray) -> np.ndarray:
    """Return a copy of an array in a stretch of its own."""
    copy = Arena(array.nbytes).take(array.shape, array.dtype)
    np.copyto(copy, array)
    return copy


class Arena:
    """A stretch of memory from which arrays are taken, one behind the other."""

    def __init__(self, size: int) -> None:
        """Take how many bytes all arrays come to; of what is never written nothing is there."""
        self._free = np.empty(0, np.uint8)
        if size < PAGE or _ADVICE is None:
            return
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        with suppress(OSError):  # no such pages, or not so much memory
            memory = mmap.mmap(-1, -(-size // PAGE) * PAGE + PAGE, flags=flags)
            memory.madvise(_ADVICE)
            whole = np.frombuffer(memory, np.uint8)
            self._free = whole[-whole.ctypes.data % PAGE :]

    def take(self, shape: tuple[int, ...], dtype: np.typing.DTypeLike) -> np.ndarray:
        """Return an array at a multiple of `ALIGNMENT` bytes; of other memory if it is used up."""
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        if size > self._free.size:
            return allocate_aligned(shape, dtype)
        taken, self._free = self._free[:size], self._free[-(-size // ALIGNMENT) * ALIGNMENT :]
        return taken.view(dtype).reshape(shape)
