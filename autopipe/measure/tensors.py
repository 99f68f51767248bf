"""Create synthetic arguments of kernels, in the same kind of memory as in a package.

Activations lie in TVM's storage, in pages of 4 KiB. Weights lie in an arena, in pages of 2 MiB
where the system provides them. A kernel that reads 37 MiB of weights in small pages needs 9216 page
translations, of which the TLB holds some 2000: Winograd with windows of four took 1.3 times as long
as in a package, and lost to windows of two, which read less.
"""

from collections.abc import Sequence
from typing import cast

import numpy as np
import tvm
from tvm.s_tir.meta_schedule.arg_info import ArgInfo

from autopipe.compiler.library.arena import PAGE
from autopipe.compiler.library.runtime import as_tensor
from autopipe.measure import values
from autopipe.measure.values import Port


def list_ports(function: tvm.tirx.PrimFunc) -> list[tuple[tuple[int, ...], str]]:
    """List shape and dtype of the tensors that a function takes."""
    infos = ArgInfo.from_prim_func(function)
    return [(tuple(map(int, info.shape)), str(info.dtype)) for info in infos]


def make_tensor(shape: Sequence[int], dtype: str) -> tvm.runtime.Tensor:
    """Create a tensor in the memory of activations, with the same values every time."""
    tensor = tvm.runtime.empty(list(shape), dtype)
    short = dtype == "bfloat16"  # numpy does not import it by DLPack
    words = tensor._create_view(list(shape), "uint16") if short else tensor  # noqa: SLF001
    values.fill_array(np.from_dlpack(words).reshape(-1).view(np.dtype(dtype)))
    return tensor


def make_weight_tensors(ports: Sequence[Port]) -> list[tvm.runtime.Tensor]:
    """Create synthetic tensors in an arena like that of a model's weights."""
    arrays = values.make_weight_arrays(ports, least=PAGE)
    return [cast("tvm.runtime.Tensor", as_tensor(array)) for array in arrays]  # as tvm is loaded
