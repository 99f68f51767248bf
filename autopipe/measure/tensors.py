"""Made-up arguments of kernels, in memory of the kind in which a package has them.

Activations lie in TVM's storage, in pages of 4 KiB. Weights lie in an arena, in pages of 2 MiB
where the system gives them. A kernel that reads 37 MiB of weights in small pages has the processor
look up 9216 places of pages, of which it remembers some 2000: Winograd with windows of four took
1.3 times what it takes in a package, and lost to windows of two, which read less.
"""

from collections.abc import Sequence
from typing import cast

import numpy as np
import tvm

from autopipe.compiler.library.arena import PAGE
from autopipe.compiler.library.runtime import as_tensor
from autopipe.measure import values
from autopipe.measure.values import Port


def make_tensor(shape: Sequence[int], dtype: str) -> tvm.runtime.Tensor:
    """Return a tensor of such values, the same ones every time, as activations lie."""
    tensor = tvm.runtime.empty(list(shape), dtype)
    short = dtype == "bfloat16"  # numpy takes no tensor of it
    words = tensor._create_view(list(shape), "uint16") if short else tensor  # noqa: SLF001
    values.fill_array(np.from_dlpack(words).reshape(-1).view(np.dtype(dtype)))
    return tensor


def make_weight_tensors(ports: Sequence[Port]) -> list[tvm.runtime.Tensor]:
    """Return such tensors as the weights of a model lie, one behind the other."""
    arrays = values.make_weight_arrays(ports, least=PAGE)
    return [cast("tvm.runtime.Tensor", as_tensor(array)) for array in arrays]  # as tvm is loaded
