"""Has kernels ask Linux for the registers of tiles (Intel's AMX) before they use them first.

A process that did not ask is ended by SIGILL at its first tile. A package may be loaded by any
program, so its library asks by itself: as the last step before code generation, configurations of
the registers go to a function in LLVM IR that asks once, by a system call, and then configures:

    llvm.x86.ldtilecfg(configuration)
    autopipe_tiles(configuration)

Where Linux refuses, nothing is told here: the check of a package's features asks, too, before the
library is loaded. The IR is a constant of this file. Modules that bring IR of their own are refused
before.
"""

from typing import Final

import tvm
import tvm_ffi
from tvm import tirx
from tvm.target import codegen

from autopipe.compiler.target.cpu import ASKS

CONFIGURE: Final = "llvm.x86.ldtilecfg"
"""LLVM's name of the instruction that says how many rows and bytes each register has."""

_IMPORT: Final = "pragma_import_llvm"
_CALLS: Final = "tirx.call_llvm_intrin"
_FUNCTION: Final = "autopipe_tiles"

SYSTEM_CALL: Final = (
    'asm sideeffect "syscall", "={rax},{rax},{rdi},{rsi},~{rcx},~{r11},~{memory}"'
    f"(i64 {ASKS[0]}, i64 {ASKS[1]}, i64 {ASKS[2]})"
)
"""The only assembly that kernels may have."""

_BODY: Final = f"""
@autopipe_tiles_asked = internal global i8 0
define void @{_FUNCTION}(ptr %configuration) {{
  %asked = load atomic i8, ptr @autopipe_tiles_asked monotonic, align 1
  %first = icmp eq i8 %asked, 0
  br i1 %first, label %ask, label %configure
ask:
  %answer = call i64 {SYSTEM_CALL}
  store atomic i8 1, ptr @autopipe_tiles_asked monotonic, align 1
  br label %configure
configure:
  call void @{CONFIGURE}(ptr %configuration)
  ret void
}}
declare void @{CONFIGURE}(ptr)
"""


def asking(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a kernel that asks before its first tile."""
    number = codegen.llvm_lookup_intrinsic_id(CONFIGURE)
    met = []

    def changed(call: tvm.ir.Call) -> tvm.ir.Expr:
        if getattr(call.op, "name", "") != _CALLS or int(call.args[0]) != number:
            return call
        met.append(call)
        return tirx.call_extern("void", _FUNCTION, *call.args[1:])

    mapped = tvm_ffi.structural_map(function, (tvm.ir.Call, changed))
    if not met:
        return mapped
    text = tvm.ir.StringImm(_BODY)
    return mapped.with_body(tirx.AttrStmt(tirx.const(0, "int32"), _IMPORT, text, mapped.body))
