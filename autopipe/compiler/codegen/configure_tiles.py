"""Configure AMX tiles once for all blocks that a thread computes.

Schedules configure and release the tiles for each block, by a call with 16 words. This takes as
long as a whole block of few channels, so as the last step before code generation it is hoisted out
of the loop over blocks, to where each thread begins:

    for block in parallel(56):                 in each thread:
        llvm.x86.ldtilecfg(1, 0, ...)              autopipe_tiles_5c1e()
        ...                                        for block in its share of 56:
        llvm.x86.tilerelease()                         ...
                                                   llvm.x86.tilerelease()

A process that did not ask Linux for AMX is ended by SIGILL at its first tile. A package may be
loaded by any program, so its library asks by itself: the function, in LLVM IR, does so by a
system call the first time. A refusal by Linux is not reported here: the check of a package's
features asks, too, before the library is loaded.

The IR is a constant of this file but for the words. Modules that bring IR of their own are refused
before.
"""

import hashlib
from typing import Final

import tvm
import tvm_ffi
from tvm import tirx
from tvm.target import codegen

from autopipe.compiler.target.cpu import ASKS

CONFIGURE: Final = "llvm.x86.ldtilecfg"
"""LLVM's name of the instruction that sets the rows and bytes of each tile. Schedules
call it with the words of a configuration; LLVM takes their address."""
RELEASE: Final = "llvm.x86.tilerelease"

_IMPORT: Final = "pragma_import_llvm"
_LAUNCH: Final = "pragma_parallel_launch_point"
"""Its body runs in each thread; a parallel loop in it is shared among them."""
_CALLS: Final = "tirx.call_llvm_intrin"

SYSTEM_CALL: Final = (
    'asm sideeffect "syscall", "={rax},{rax},{rdi},{rsi},~{rcx},~{r11},~{memory}"'
    f"(i64 {ASKS[0]}, i64 {ASKS[1]}, i64 {ASKS[2]})"
)
"""The only assembly that kernels may have."""

_BODY: Final = """
@autopipe_tiles_asked = internal global i8 0
@{name}_words = internal constant [16 x i32] [{words}], align 64
define void @{name}() {{
  %asked = load atomic i8, ptr @autopipe_tiles_asked monotonic, align 1
  %first = icmp eq i8 %asked, 0
  br i1 %first, label %ask, label %configure
ask:
  %answer = call i64 {system_call}
  store atomic i8 1, ptr @autopipe_tiles_asked monotonic, align 1
  br label %configure
configure:
  call void @{configure}(ptr @{name}_words)
  ret void
}}
declare void @{configure}(ptr)
"""


def configure_tiles(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Hoist the configuration of AMX tiles out of the loops of a kernel."""
    if not _collect_settings(function.body):
        return function
    body = tvm_ffi.structural_map(function.body, (tirx.For, _configure_loop))
    for words in _collect_settings(body):
        operands = ", ".join(f"i32 {word}" for word in words)
        text = _BODY.format(
            name=_name_function(words), words=operands, system_call=SYSTEM_CALL, configure=CONFIGURE
        )
        body = tirx.AttrStmt(tirx.const(0, "int32"), _IMPORT, tvm.ir.StringImm(text), body)
    return function.with_body(tvm_ffi.structural_map(body, (tvm.ir.Call, _to_extern_call)))


def _configure_loop(loop: tirx.For) -> tirx.Stmt:
    """Move the configuration in a loop around it, if all of its body use the same one.

    Loops come innermost first, so it ends at the outermost one, or where threads begin.
    """
    settings = list(_collect_settings(loop.body))
    if len(settings) != 1 or _has_threads(loop.body):
        return loop

    def remove_setting(statement: tirx.Evaluate) -> tirx.Stmt:
        instruction = _is_intrinsic_call(statement.value, CONFIGURE) or _is_intrinsic_call(
            statement.value, RELEASE
        )
        return tirx.Evaluate(tirx.const(0)) if instruction else statement

    bare = tirx.For(
        loop.loop_var, loop.min, loop.extent, loop.kind,
        tvm_ffi.structural_map(loop.body, (tirx.Evaluate, remove_setting)), loop.thread_binding,
        loop.annotations, loop.step,
    )  # fmt: skip
    first = tirx.call_llvm_intrin("void", CONFIGURE, *map(tirx.const, settings[0]))
    last = tirx.call_llvm_intrin("void", RELEASE)
    configured_loop = tirx.SeqStmt([tirx.Evaluate(first), bare, tirx.Evaluate(last)])
    if loop.kind != tirx.ForKind.PARALLEL:
        return configured_loop
    return tirx.AttrStmt(tirx.const(0, "int32"), _LAUNCH, tirx.const(1), configured_loop)


def _to_extern_call(call: tvm.ir.Call) -> tvm.ir.Expr:
    """Replace a configuration by a call of the function that this file writes for it."""
    if not _is_intrinsic_call(call, CONFIGURE):
        return call
    return tirx.call_extern("void", _name_function(_read_words(call)))


def _collect_settings(body: tirx.Stmt) -> dict[tuple[int, ...], None]:
    """Return the words of all distinct configurations in a body."""
    configurations: dict[tuple[int, ...], None] = {}

    def look(call: tvm.ir.Call) -> None:
        if _is_intrinsic_call(call, CONFIGURE):
            configurations[_read_words(call)] = None

    tvm_ffi.structural_walk(body, (tvm.ir.Call, look))
    return configurations


def _has_threads(body: tirx.Stmt) -> bool:
    """Tell whether a body contains a parallel launch point."""
    launch_points: list[bool] = []
    tvm_ffi.structural_walk(
        body, (tirx.AttrStmt, lambda attr: launch_points.append(str(attr.attr_key) == _LAUNCH))
    )
    return any(launch_points)


def _is_intrinsic_call(value: tvm.ir.Expr, name: str) -> bool:
    """Tell whether an expression calls an LLVM intrinsic."""
    if getattr(getattr(value, "op", None), "name", "") != _CALLS:
        return False
    return int(value.args[0]) == codegen.llvm_lookup_intrinsic_id(name)


def _read_words(call: tvm.ir.Call) -> tuple[int, ...]:
    return tuple(int(word) for word in call.args[1:])


def _name_function(words: tuple[int, ...]) -> str:
    """Return the name of the function that sets a configuration."""
    return f"autopipe_tiles_{hashlib.sha256(repr(words).encode()).hexdigest()[:16]}"
