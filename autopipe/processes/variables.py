"""Environment variables of the processes that work on models.

All others, such as the credentials of a shared cache, are hidden from compilers, and cannot get
into their output.
"""

import os
from typing import Final

_NAMES: Final = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP",
    "VIRTUAL_ENV", "CC", "CXX", "CPATH", "LIBRARY_PATH", "COMPILER_PATH", "SOURCE_DATE_EPOCH",
})  # fmt: skip
_BEGINNINGS: Final = (
    "AUTOPIPE_", "LC_", "LD_", "XDG_", "PYTHON", "TVM_", "OMP_", "GOMP_", "KMP_", "MKL_",
    "OPENBLAS_", "CUDA_", "NVCC_", "NVIDIA_", "MALLOC_", "GLIBC_", "ORT_", "PYDANTIC_",
)  # fmt: skip


def select_variables(**more: str) -> dict[str, str]:
    """Return the inherited variables of a process, updated by `more`."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name in _NAMES or name.startswith(_BEGINNINGS)
    }
    return {**inherited, **more}
