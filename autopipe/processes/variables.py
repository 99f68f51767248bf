"""Which environment variables the processes get that work on models.

Whatever else is in the environment, such as the credentials of a shared cache, is none of a
compiler's business, and cannot end up in what it writes.
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
    """Return the variables that a process is started with, and `more` that replace them."""
    known = {
        name: value
        for name, value in os.environ.items()
        if name in _NAMES or name.startswith(_BEGINNINGS)
    }
    return {**known, **more}
