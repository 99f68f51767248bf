"""Which functions code may call: those of a declared library, of LLVM and of TVM's runtime."""

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
    """Return the library that is named in the label of a function, or None if it is not ours."""
    found = _LABEL.fullmatch(label)
    return find_library(found[1]) if found else None


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
    """Return the numbers of LLVM's intrinsics. Asking LLVM for the name of any other crashes."""
    return frozenset(codegen.llvm_lookup_intrinsic_id(name) for name in names.INTRINSICS) - {0}


@cache
def is_graph_op(name: str) -> bool:
    """Tell whether an op of the graph is harmless: TVM can lower it to PrimFuncs, or we know it."""
    family, _, rest = name.removeprefix("relax.").rpartition(".")
    if not name.startswith("relax.") or not rest:
        return False
    made = family in names.RELAX_FAMILIES and Op.get(name).get_attr("FLegalize") is not None
    return made or name in names.RELAX_OPS
