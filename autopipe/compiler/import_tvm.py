"""Imports TVM in four fifths of the time, by listing the names of its functions once.

Each of TVM's 50 `_ffi_api` modules asks for the names of all 2,000 functions and takes those with
its prefix. What each of them takes was registered by C++ when the library was loaded.
PyTorch, which TVM would import if it is installed, is left out.
"""

import sys
from collections.abc import Callable
from functools import cache

from autopipe.compiler.without_torch import without_torch

with without_torch():
    from tvm_ffi import registry


def _once(names: Callable[[], list[str]]) -> Callable[[], list[str]]:
    """Return a function that lists the names anew only until TVM's libraries are loaded."""
    kept = cache(names)
    return lambda: kept() if "tvm.base" in sys.modules else names()


_names = registry.list_global_func_names
registry.list_global_func_names = _once(_names)
try:
    with without_torch():
        import tvm  # noqa: F401 - loads it
finally:
    registry.list_global_func_names = _names

from autopipe.compiler import libm, reducers  # noqa: E402, F401 - wherever kernels are made
