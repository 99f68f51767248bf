"""Memory for the weights of a model: one arena, in huge pages where the system provides them.

A model reads all of its weights in each run, once. In pages of 4 KiB a processor looks up where
each of them lies, some ten thousand times in a run that reads 40 MiB; in huge pages of 2 MiB twenty
times. Linux provides such pages on request (`madvise`), unless it is configured otherwise.
"""

import mmap
from contextlib import suppress
from typing import Final

import numpy as np

from autopipe.compiler.library.loaded_model import allocate_aligned
from autopipe.runtime.weights import ALIGNMENT

PAGE: Final = 2 << 20
"""Bytes of a huge page; smaller arenas do not use one."""

_ADVICE: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)


def copy_array(array: np.ndarray) -> np.ndarray:
    """Copy an array to an arena of its own."""
    copy = Arena(array.nbytes).take(array.shape, array.dtype)
    np.copyto(copy, array)
    return copy


class Arena:
    """A block of memory from which arrays are allocated one behind the other."""

    def __init__(self, size: int) -> None:
        """Reserve `size` bytes; pages that are never written take no memory."""
        self._free = np.empty(0, np.uint8)
        if size < PAGE or _ADVICE is None:
            return
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        with suppress(OSError):  # no such pages, or not so much memory
            memory = mmap.mmap(-1, -(-size // PAGE) * PAGE + PAGE, flags=flags)
            memory.madvise(_ADVICE)
            pages = np.frombuffer(memory, np.uint8)
            self._free = pages[-pages.ctypes.data % PAGE :]

    def take(self, shape: tuple[int, ...], dtype: np.typing.DTypeLike) -> np.ndarray:
        """Allocate an array aligned to `ALIGNMENT` bytes, outside of the arena if it is full."""
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        if size > self._free.size:
            return allocate_aligned(shape, dtype)
        slot, self._free = self._free[:size], self._free[-(-size // ALIGNMENT) * ALIGNMENT :]
        return slot.view(dtype).reshape(shape)
