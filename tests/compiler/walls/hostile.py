"""Modules that bring code along, or ask for what no kernel needs."""

import tvm
from tvm import relax, te, tirx
from tvm.ir import Call, StringImm
from tvm.s_tir import SBlock, Schedule

MARKER = "MARKER"
"""Stands in code for the path of the file that it makes."""

_FUNCTION = """
module asm ".text"
module asm "{label}:"
module asm "subq $8, %rsp"
module asm "leaq hostile_command(%rip), %rdi"
module asm "call system@PLT"
module asm "addq $8, %rsp"
module asm "ret"
module asm ".section .rodata"
module asm "hostile_command: .asciz \\22touch MARKER\\22"
"""

STARTED = (
    _FUNCTION.format(label="hostile")
    + """
module asm ".section .init_array,\\22aw\\22"
module asm ".quad hostile"
"""
)
"""LLVM IR that has a command run by whoever loads the library."""

CONSTRUCTED = (
    _FUNCTION.format(label=".globl hostile\nhostile").replace("\n:", ":")
    .replace(".globl hostile\nhostile", '.globl hostile"\nmodule asm "hostile')
    + """
declare void @hostile()
@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }]
  [{ i32, ptr, ptr } { i32 65535, ptr @hostile, ptr null }]
"""
)  # fmt: skip
"""The same through LLVM's own list of constructors."""


def _asm(*lines):
    return "".join(f'module asm "{line}"\n' for line in lines)


LLVM = {
    "constructor by section": STARTED,
    "constructor by LLVM's list": CONSTRUCTED,
    "destructor": STARTED.replace(".init_array", ".fini_array"),
    "before constructors": STARTED.replace(".init_array", ".preinit_array"),
    "old constructors": STARTED.replace(".init_array", ".ctors"),
    "start of the library": _asm(".section .init,\\22ax\\22", "nop"),
    "indirect function": _asm(".text", ".globl sinf", ".type sinf, @gnu_indirect_function",
                              "sinf:", "ret"),
    "a function of the C library": _asm(".text", "expf:", "ret"),
    "the same by another name": _asm(".text", "hostile:", "ret", ".set memcpy, hostile"),
    "a name for others": _asm(".text", ".globl getenv", "getenv:", "ret"),
    "undefined symbol": _asm(".data", ".quad system"),
    "executable stack": _asm(".section .note.GNU-stack,\\22x\\22,@progbits"),
    "library to be linked": _asm(".section .deplibs,\\22MS\\22,@llvm_dependent_libraries,1",
                                 ".asciz \\22hostile\\22"),
}  # fmt: skip
"""LLVM IR for `pragma_import_llvm`, by what it brings along."""


def doubled():
    """Return a schedule of a small workload, its block, and its outermost loop."""
    x = te.placeholder((4, 32), "float32", name="x")
    y = te.compute(x.shape, lambda i, j: te.exp(x[i, j]) * 2.0, name="y")
    sch = Schedule(te.create_prim_func([x, y]))
    block = sch.get_sblock("y")
    return sch, block, sch.get_loops(block)[0]


def annotated(key, value, *, block=False):
    """Return the workload with an annotation."""
    sch, rv, loop = doubled()
    sch.annotate(rv if block else loop, key, value)
    return sch.mod


def importing(llvm, marker="/dev/null"):
    """Return the workload with LLVM IR in it."""
    return annotated("pragma_import_llvm", llvm.replace(MARKER, str(marker)))


def _within(wrap):
    """Return the workload with its innermost statement made another one."""
    sch, rv, _ = doubled()
    old = sch.get(rv)
    new = SBlock(
        old.iter_vars, old.reads, old.writes, old.name_hint, wrap(old.body), old.init,
        old.alloc_buffers, old.match_buffers, old.annotations,
    )  # fmt: skip
    sch.state.replace(sch.get_sref(rv), new, {old: new})
    return sch.mod


def _beside(expression):
    return _within(lambda store: tirx.SeqStmt([tirx.Evaluate(expression), store]))


def calling(name, *arguments, op="tirx.call_extern"):
    """Return the workload with a call; strings among the arguments become nodes."""
    nodes = [StringImm(each) if isinstance(each, str) else each for each in (name, *arguments)]
    return _beside(Call(op, nodes, ret_ty="int32"))


def _op(name, *arguments):
    nodes = [StringImm(each) if isinstance(each, str) else each for each in arguments]
    return _beside(Call(name, nodes, ret_ty="int32"))


def _around(key, value):
    value = StringImm(value) if isinstance(value, str) else tirx.const(value, "int32")
    return _within(lambda store: tirx.AttrStmt(tirx.const(0), key, value, store))


def _attributed(key, value):
    sch, _, _ = doubled()
    return tvm.IRModule({"main": sch.mod["main"].with_attr(key, value)})


def _renamed(name):
    sch, _, _ = doubled()
    return tvm.IRModule({name: sch.mod["main"].without_attr("global_symbol")})


def _module(key, value):
    sch, _, _ = doubled()
    return sch.mod.with_attr(key, value)


def _threads(tag):
    def wrap(store):
        axis = tirx.IterVar((0, 4), "t", tirx.IterVar.ThreadIndex, tag)
        return tirx.AttrStmt(axis, "thread_extent", tirx.const(4, "int32"), store)

    return _within(wrap)


def _scoped(scope):
    sch, rv, _ = doubled()
    copy = sch.cache_read(rv, 0, "local")
    sch.set_scope(copy, 0, scope)
    return sch.mod


def _graph(make):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(make(x)))
    return builder.get()


def _packed(name):
    kind = relax.TensorType((4,), "float32")
    return lambda x: relax.call_pure_packed(name, x, ty_args=kind)


def _external(name):
    kind = relax.TensorType((4,), "float32")
    return lambda x: relax.call_dps_packed(name, x, out_ty=kind)


_C = "__attribute__((constructor)) static void hostile(void) { system(0); }"
_TARGET = {"kind": "llvm", "cl-opt": ["-load-pass-plugin=/tmp/hostile.so"]}
_CUDA = '__device__ int hostile() { asm(".incbin 1"); return 0; }'

MODULES = {
    "llvm on a loop": lambda: importing(STARTED),
    "llvm on a block": lambda: annotated("pragma_import_llvm", STARTED, block=True),
    "llvm by file": lambda: annotated("pragma_import_llvm", "/tmp/hostile.ll"),
    "c on a loop": lambda: annotated("pragma_import_c", _C),
    "llvm as a statement": lambda: _around("pragma_import_llvm", STARTED),
    "c as a statement": lambda: _around("pragma_import_c", _C),
    "unknown pragma": lambda: annotated("pragma_debug_skip_region", 1),
    "unknown pragma of a processor": lambda: _around("pragma_aarch64_pstate_sm", "enabled"),
    "scope of computation": lambda: _around("compute_scope", "hostile"),
    "scope of a device": lambda: _around("device_scope", 1),
    "known pragma with code": lambda: annotated("pragma_unroll_explicit", STARTED),
    "known statement with a string": lambda: _around("pragma_unroll_explicit", "1"),
    "annotation with code": lambda: annotated("meta_schedule.tiling_structure", _C, block=True),
    "annotation with code in a list": lambda: annotated("schedule_rule", ["a", _C], block=True),
    "annotation with a map": lambda: annotated("workload", {"a": 1}, block=True),
    "unknown annotation": lambda: annotated("hostile", 1, block=True),
    "system": lambda: calling("system", "touch /tmp/hostile"),
    "pure system": lambda: calling("system", "id", op="tirx.call_pure_extern"),
    "dlopen": lambda: calling("dlopen", "/tmp/hostile.so", 1),
    "a library that nobody asked for": lambda: calling("scipy_openblas_set_num_threads", 1),
    "a string as argument": lambda: calling("sinf", "id"),
    "packed module loader": lambda: calling("ffi.Module.load_from_file", "/tmp/hostile.so",
                                             op="tirx.tvm_call_packed"),
    "packed system library": lambda: calling("runtime.SystemLib", op="tirx.tvm_call_packed"),
    "packed with a path": lambda: calling("tvm.contrib.sort.topk", "/tmp/hostile",
                                           op="tirx.tvm_call_packed"),
    "packed without a name": lambda: _op("tirx.tvm_call_packed", 1),
    "cpacked": lambda: calling("system", op="tirx.tvm_call_cpacked"),
    "lowered packed": lambda: _op("tirx.tvm_call_packed_lowered", "system", 0, 0, 0),
    "traced packed": lambda: calling("system", op="tirx.tvm_call_trace_packed"),
    "static handle": lambda: _op("tirx.tvm_static_handle"),
    "field of a struct": lambda: _op("tirx.tvm_struct_set", 0, 0, 1, 0),
    "workspace": lambda: _op("tirx.TVMBackendAllocWorkspace", 1, 0, 1, 2, 32),
    "thrown error": lambda: _op("tirx.tvm_throw_last_error"),
    "looked up parameter": lambda: _op("tirx.lookup_param", "hostile"),
    "instruction of a GPU": lambda: _beside(
        tirx.call_llvm_pure_intrin("float32", "llvm.amdgcn.rcp", tirx.const(1.0, "float32"))),
    "instruction that jumps": lambda: _beside(
        tirx.call_llvm_intrin("void", "llvm.eh.sjlj.longjmp", tirx.const(0, "int64"))),
    "instruction without a number": lambda: _op("tirx.call_llvm_intrin", "llvm.trap"),
    "instruction of no number": lambda: _op("tirx.call_llvm_intrin", 1 << 30),
    "source of CUDA": lambda: _op("tirx.cuda.func_call", "hostile", _CUDA),
    "instruction of PTX": lambda: _op("tirx.ptx.griddepcontrol", "wait"),
    "printing": lambda: _op("tirx.cuda.printf", "%s"),
    "barrier with text": lambda: _op("tirx.tvm_storage_sync", 'shared"); asm("'),
    "matrix with text": lambda: _op("tirx.tvm_load_matrix_sync", "row_major>; asm"),
    "a string alone": lambda: _beside(StringImm("hostile")),
    "assertion": lambda: _within(lambda store: tirx.SeqStmt([
        tirx.AssertStmt(tirx.const(1, "bool"), StringImm("E"), [StringImm("m")]), store])),
    "target with options": lambda: _attributed("target", tvm.target.Target(_TARGET)),
    "calling convention": lambda: _attributed("calling_conv", 1),
    "entry point": lambda: _attributed("tirx.is_entry_func", 1),
    "linker name": lambda: _attributed("linkage", "weak"),
    "unknown library": lambda: _attributed("autopipe.library", "hostile 1.0"),
    "library by path": lambda: _attributed("autopipe.library", "/tmp/hostile.so 1"),
    "library without a name": lambda: _attributed("autopipe.library", ""),
    "symbol of the runtime": lambda: _attributed("global_symbol", "_library_ctx"),
    "symbol with text": lambda: _attributed("global_symbol", 'main"; asm'),
    "name of the runtime": lambda: _renamed("__TVMFFIFunctionCall"),
    "name with text": lambda: _renamed("main(); asm"),
    "module of others": lambda: _module("external_mods", []),
    "prefix of a library": lambda: _module("system_lib_prefix", "hostile"),
    "thread with text": lambda: _threads('threadIdx.x); asm("trap;"'),
    "thread of a cluster": lambda: _threads("clusterCtaIdx.x"),
    "memory with text": lambda: _scoped("local[1]; asm"),
    "graph that loads": lambda: _graph(_packed("ffi.Module.load_from_file")),
    "graph that calls out": lambda: _graph(_external("system")),
    "graph that prints": lambda: _graph(lambda x: relax.op.print(x, format="{}")),
    "graph that asserts": lambda: _graph(
        lambda x: relax.op.assert_op(relax.const(1, "bool"), x, format="{}")),
    "graph that is another's": lambda: tvm.IRModule(
        {"main": _graph(relax.op.exp)["main"].with_attr("Codegen", "hostile")}),
    "graph that communicates": lambda: _graph(relax.op.ccl.broadcast_from_worker0),
}  # fmt: skip
"""Modules that are refused before code generation."""
