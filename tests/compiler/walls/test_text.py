"""The wall before LLVM IR is run, and before CUDA C++ is compiled."""

import pytest

from autopipe.compiler.codegen.compile_kernels import compile_kernel
from autopipe.compiler.codegen.configure_tiles import SYSTEM_CALL
from autopipe.compiler.walls import module, text
from autopipe.compiler.walls.foreign_code import ForeignCode
from tests.compiler import graphs
from tests.compiler.walls import hostile
from tests.support.table import each_row


@pytest.fixture(scope="module")
def sound():
    """Return the LLVM IR of a kernel."""
    return compile_kernel(hostile.doubled()[0].mod, graphs.TARGET).inspect_source("ll")


DEFINED = "define void @{name}() {{\nentry:\n  ret void\n}}"

ASKS = f"define private void @f() {{\n  %a = call i64 {SYSTEM_CALL}\n  ret void\n}}"

LINES = {
    "assembly of the module": ('module asm "hostile:"', "assembly"),
    "assembly in a function": (
        'define private void @f() {\n  call void asm sideeffect "syscall", ""()\n  ret void\n}',
        "assembly"),
    "assembly with all its words": (
        'define private void @f() {\n  tail call void asm alignstack inteldialect "nop", ""()\n}',
        "assembly"),
    "another call of the kernel": (ASKS.replace("i64 158", "i64 59"), "assembly"),
    "a call of the kernel for something else": (ASKS.replace("i64 4131", "i64 4098"), "assembly"),
    "a call of the system": ("declare i32 @system(ptr)", "calls 'system'"),
    "a call by a quoted name": ('declare i32 @"dlopen"(ptr, i32)', "calls 'dlopen'"),
    "a call with attributes": ("declare noundef i32 @execve(ptr, ptr, ptr) #2", "calls 'execve'"),
    "a jump": ("declare void @llvm.eh.sjlj.longjmp(ptr)", "calls 'llvm.eh.sjlj.longjmp'"),
    "a trampoline": ("declare void @llvm.init.trampoline(ptr, ptr, ptr)", "calls 'llvm.init"),
    "a register": ("declare void @llvm.write_register.i64(metadata, i64)", "calls 'llvm.write"),
    "a function for others": (DEFINED.format(name="getenv"), "defines 'getenv'"),
    "a function of C": (DEFINED.format(name="expf"), "defines 'expf'"),
    "a hidden function of C": (
        DEFINED.format(name="memcpy").replace("void", "internal void", 1), "'memcpy' of its own"),
    "a function for others, weak": (
        DEFINED.format(name="open").replace("void", "weak void", 1), "defines 'open'"),
    "constructors": (
        "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32 } { i32 65535 }]",
        "llvm.global_ctors"),
    "destructors": (
        "@llvm.global_dtors = appending global [1 x { i32, ptr, ptr }] undef", "llvm.global_dtors"),
    "what must be kept": (
        '@llvm.used = appending global [1 x ptr] [ptr @f], section "llvm.metadata"', "llvm.used"),
    "another name": ("@getenv = alias void (), ptr @__tvm_ffi_main", "another name"),
    "an indirect function": ("@sinf = ifunc float (float), ptr @f", "another name"),
    "data for others": ("@environ = global ptr null, align 8", "defines 'environ'"),
    "data of others": ("@stdin = external global ptr", "defines 'stdin'"),
    "a section of data": (
        '@x = internal global ptr @f, section ".init_array"', "section '.init_array'"),
    "a section of code": (
        'define internal void @f() section ".init" {\n  ret void\n}', "section '.init'"),
    "data in front": ("define internal void @f() prologue i8 -112 {\n}", "in front of"),
    "a personality": ("define internal void @f() personality ptr @g {\n}", "in front of"),
    "a library to be linked": ("!llvm.dependent-libraries = !{!0}", "metadata"),
    "options of the linker": ("!llvm.linker.options = !{!0}", "metadata"),
    "what LLVM may bring next": ("hostile thing", "has 'hostile thing'"),
}  # fmt: skip


@pytest.mark.fault("I2")
@each_row("what", LINES)
def test_a_line_that_does_more_than_to_compute_is_refused(what, sound):
    line, why = LINES[what]
    text.check_llvm_ir(sound)
    with pytest.raises(ForeignCode, match=rf".*{why}"):
        text.check_llvm_ir(f"{sound}\n{line}\n")


@pytest.mark.fault("I2")
@pytest.mark.parametrize("what", hostile.LLVM)
def test_imported_assembly_is_refused_behind_the_first_look(what, monkeypatch):
    monkeypatch.setattr(module, "look_through", lambda _: None)
    with pytest.raises(ForeignCode, match="assembly"):
        compile_kernel(hostile.importing(hostile.LLVM[what]), graphs.TARGET)


@pytest.mark.fault("I2")
@pytest.mark.parametrize("name", ["system", "dlopen", "TVMFFIFunctionGetGlobal"])
def test_calls_by_name_are_refused_behind_the_first_look(name, monkeypatch):
    monkeypatch.setattr(module, "look_through", lambda _: None)
    with pytest.raises(ForeignCode, match=f"calls '{name}'"):
        compile_kernel(hostile.calling(name, "id"), graphs.TARGET)


def test_texts_in_constants_and_names_are_no_code(sound):
    text.check_llvm_ir(
        f'{sound}\n@.str.9 = private constant [9 x i8] c"module asm; @system = ifunc"\n'
    )
    text.check_llvm_ir(f'{sound}\n!999 = !DILocalVariable(name: "asm", scope: !1)\n')


KERNEL = """\
#ifdef __CUDACC_RTC__
  #define __asm__ asm
#else
  #include <cstdint>
#endif
#define uint unsigned int
extern "C" __global__ void __launch_bounds__(64) main_kernel(float* __restrict__ y_ptr) {
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    y_ptr[i] = expf(y_ptr[i]);  // asm
  }
}
"""


@pytest.mark.fault("I2")
@each_row(
    "line",
    ['#include "/etc/passwd"', "#include </etc/passwd", "#embed </etc/passwd>",
     "#define x asm", "#pragma nv_diag_suppress 1", '# 1 "/etc/passwd"', "%:include <a>",
     '#include \\\n"/etc/passwd"', 'asm volatile("trap;");', '__asm__("");',
     "__attribute__((constructor)) void hostile();", '_Pragma("unroll")'],
)  # fmt: skip
def test_text_in_kernels_of_a_gpu_that_is_no_arithmetic_is_refused(line):
    text.look_at_kernels(KERNEL)
    with pytest.raises(ForeignCode, match=r"^the kernels have "):
        text.look_at_kernels(KERNEL + line + "\n")


COPY = """\
__forceinline__ __device__ void copy(void* dst, void* src, int src_off, int predicate) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], %2;"
    :: "r"(dst_addr), "l"(src_p), "n"(16));
  __asm__ __volatile__(
    "{\\n"
    " .reg .pred p;\\n"
    " setp.eq.u32 p, %3, 1;\\n"
    " @p cp.async.ca.shared.global [%0], [%1], %2;\\n"
    " @!p st.shared.u32 [%0], {%4};\\n"
    "}\\n"
    :: "r"(dst_addr), "l"(src_p), "n"(4), "r"(predicate), "r"(0)
  );
  asm volatile("cp.async.commit_group;" :  : );
  asm volatile("cp.async.wait_group 2;" :  :  : "memory");
}
"""


@pytest.mark.fault("I2")
@each_row(
    "part, other",
    [("wait_group 2;", "wait_group 2; trap;"), ("%1], %2;", "%1], %2; trap;"),
     (" @!p st.shared.u32", " @p trap; @!p st.shared.u32"), ('"r"(0)', '"r"(0), "r"(stolen())')],
)  # fmt: skip
def test_copies_to_shared_memory_pass_and_no_other_assembly(part, other):
    text.look_at_kernels(KERNEL + COPY)
    assert part in COPY
    with pytest.raises(ForeignCode, match=r"^the kernels have "):
        text.look_at_kernels(KERNEL + COPY.replace(part, other))


def test_the_call_by_which_kernels_ask_for_tiles_passes():
    text.check_llvm_ir(ASKS)
