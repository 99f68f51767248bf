"""The functions that code may call: of a declared library, of LLVM and of TVM's runtime."""

import re
from functools import cache
from typing import Final

from tvm.ir import Op
from tvm.target import codegen

from autopipe.compiler.walls import names
from autopipe.libraries import find_library
from autopipe.libraries.library import CBlas, Library, Packed

_LABEL: Final = re.compile(r"(\w+) [\w.+-]+( \w+)*", re.ASCII)


def find_labelled_library(label: str) -> Library | None:
    """Return the declared library that the label of a function names, or None."""
    match = _LABEL.fullmatch(label)
    return find_library(match[1]) if match else None


def list_externs(library: Library | None) -> frozenset[str]:
    """Return the names of the C functions that code may call."""
    interface = library.interface if library else None
    if not isinstance(interface, CBlas):
        return names.EXTERNS
    return names.EXTERNS | {interface.threads, *interface.gemm.values()}


def list_packed(library: Library | None) -> frozenset[str]:
    """Return the names of the functions that code may look up in TVM's runtime."""
    interface = library.interface if library else None
    return names.PACKED | {interface.function} if isinstance(interface, Packed) else names.PACKED


@cache
def list_intrinsics() -> frozenset[int]:
    """Return the IDs of the allowed LLVM intrinsics; looking up the name of others crashes."""
    return frozenset(codegen.llvm_lookup_intrinsic_id(name) for name in names.INTRINSICS) - {0}


@cache
def is_graph_op(name: str) -> bool:
    """Tell whether a Relax op is harmless: TVM can legalize it to PrimFuncs, or it is listed."""
    family, _, rest = name.removeprefix("relax.").rpartition(".")
    if not name.startswith("relax.") or not rest:
        return False
    is_legalizable = (
        family in names.RELAX_FAMILIES and Op.get(name).get_attr("FLegalize") is not None
    )
    return is_legalizable or name in names.RELAX_OPS
