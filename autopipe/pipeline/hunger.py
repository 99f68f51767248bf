"""What a process says where it gets no more memory."""

from typing import Final

_WORDS: Final = (
    "std::bad_alloc", "bad allocation", "LLVM ERROR: out of memory", "MemoryError",
    "Cannot allocate memory", "can not allocate memory", "cannot allocate memory",
    "failed to map segment from shared object", "Memory allocation still failed",
    "Unable to allocate", "Failed to allocate memory", "memory exhausted", "out of memory",
    "vector::_M_default_append", "can't start new thread", "can't allocate region",
)  # fmt: skip
"""Of C++, LLVM, Python, glibc, the dynamic linker, OpenBLAS, NumPy and onnxruntime."""


def hungry(text: str) -> bool:
    """Whether a message, or the end of what was printed, says that memory ran out."""
    return any(words in text for words in _WORDS)
