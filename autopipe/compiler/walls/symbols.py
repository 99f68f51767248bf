"""Symbols of machine code: those that generated code defines, and those it may import."""

import re
from functools import cache
from typing import Final

from autopipe.compiler.walls import names
from autopipe.libraries import LIBRARIES
from autopipe.libraries.library import CBlas

_MEMORY: Final = frozenset({"memcpy", "memmove", "memset", "memcmp", "bcmp", "bzero"})

_COMPILER: Final = re.compile(
    r"__(trunc|extend)([sdthbx]f){2}2|__(float|fix|fixuns|floatun)([sdth][if]){2}|"
    r"__(mul|div|udiv|mod|umod|ashl|lshr|ashr)[sdt]i3|__(mul|div)[sd]c3|__powi[sd]f2|"
    r"__gnu_(h2f|f2h)_ieee|__popcount[sdt]i2"
)
"""Functions of the compiler's runtime library, for operations without an instruction."""

_RUNTIME: Final = names.split_words(
    """
    TVMBackendAllocWorkspace TVMBackendFreeWorkspace TVMBackendParallelBarrier
    TVMBackendParallelLaunch TVMFFIEnvModLookupFromImports TVMFFIErrorSetRaisedFromCStr
    TVMFFIErrorSetRaisedFromCStrParts TVMFFIFunctionCall TVMFFIHandleInitOnce
    """
)
"""Functions of TVM's runtime, which stores their addresses in variables of the same names."""

_OURS: Final = re.compile(
    r"__tvm_ffi_(?!_)[A-Za-z_]\w*|__tvm_ffi__library_(ctx|bin)|__tvm_ffi__metadata_\w+|"
    r"__truncsfhf2|__extendhfsf2"
)

_INSTRUCTIONS: Final = re.compile(
    r"llvm\.(?!eh\.|init\.|adjust\.|write_|read_|returnaddress|addressofreturn|sponentry|"
    r"frameaddress|local|coro\.|call\.|gc|stack|clear_cache|thread\.|x86\.(rd|wr|int|flags|xbegin|"
    r"xend|seh)|load\.relative|icall|type\.)[a-z0-9_.]+",
    re.IGNORECASE,
)


@cache
def list_callable_names() -> frozenset[str]:
    """Return the names of the functions that code may call."""
    interfaces = [
        library.interface for library in LIBRARIES if isinstance(library.interface, CBlas)
    ]
    libraries = {interface.threads for interface in interfaces}
    libraries.update(symbol for interface in interfaces for symbol in interface.gemm.values())
    return names.EXTERNS | _MEMORY | libraries


def is_called(name: str) -> bool:
    """Tell whether code may import this symbol."""
    return (
        name in list_callable_names() or name in _RUNTIME or _COMPILER.fullmatch(name) is not None
    )


def is_ours(name: str) -> bool:
    """Tell whether generated code exports this symbol."""
    return name.removeprefix("__") in _RUNTIME or _OURS.fullmatch(name) is not None


def is_instruction(name: str) -> bool:
    """Tell whether this is an LLVM intrinsic that becomes instructions without a jump."""
    return _INSTRUCTIONS.fullmatch(name) is not None
