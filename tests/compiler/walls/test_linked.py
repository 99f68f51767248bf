"""The walls around the linker: objects before it, the library after it."""

import random
import subprocess

import pytest
import tvm

from autopipe.compiler.codegen.compile_kernels import compile_kernel, export_library
from autopipe.compiler.walls import check_objects, elf
from autopipe.compiler.walls.foreign_code import ForeignCode
from tests.compiler import graphs
from tests.compiler.walls import hostile

SOUND = "#include <math.h>\nfloat __tvm_ffi_main(float x) { return expf(x); }\n"


def _library(folder, source, *options):
    """Link a library from C, whatever a compiler of C is asked for."""
    code = folder / "code.c"
    code.write_text(source)
    out = folder / "lib.so"
    command = ["cc", "-shared", "-fPIC", "-fno-builtin", "-w", "-o", out, code, "-lm", *options]
    subprocess.run(command, check=True, capture_output=True)
    return out.read_bytes()


RESOLVER = "static void *r(void) { return 0; }\n"

LIBRARIES = {
    "constructor": ("__attribute__((constructor)) static void f(void) {}", (), "2 functions"),
    "destructor": ("__attribute__((destructor)) static void f(void) {}", (), "2 functions"),
    "constructor alone": (
        '__attribute__((section(".init_array"), used)) static void *start = __tvm_ffi_main;',
        ("-nostartfiles",), "another function than frame_dummy"),
    "first code": (
        "void __tvm_ffi_f(void) {}", ("-Wl,-init,__tvm_ffi_f",), "code of its own in .init"),
    "last code": (
        "void __tvm_ffi_f(void) {}", ("-Wl,-fini,__tvm_ffi_f",), "code of its own in .fini"),
    "longer first code": (
        '__asm__(".section .init,\\"ax\\"\\n.fill 80,1,0x90\\n.text");', (), "code of its own"),
    "indirect function": (
        f'{RESOLVER}__attribute__((ifunc("r"), visibility("default"))) void __tvm_ffi_g(void);', (),
        "indirect function"),
    "hidden indirect function": (
        f'{RESOLVER}__attribute__((ifunc("r"))) static void g(void);\nvoid *__tvm_ffi_g = g;', (),
        "called for an address"),
    "call of the system": (
        'int system(const char *);\nint __tvm_ffi_g(void) { return system("id"); }', (),
        "a call of 'system'"),
    "name for others": ("char *getenv(const char *n) { return 0; }", (), "name 'getenv'"),
    "function of C": ("void *memcpy(void *a) { return a; }", (), "'memcpy' of its own"),
    "hidden function of C": (
        "static void *memcpy(void *a) { return a; }\nvoid *__tvm_ffi_g = memcpy;", (),
        "'memcpy' of its own"),
    "rpath": ("", ("-Wl,-rpath,/tmp/hostile", "-Wl,--disable-new-dtags"), "RPATH '/tmp/hostile'"),
    "runpath": ("", ("-Wl,-rpath,$ORIGIN/x", "-Wl,--enable-new-dtags"), "RUNPATH"),
    "a folder beside nothing": (
        "", ("-Wl,-rpath,$ORIGIN", "-Wl,--disable-new-dtags"), "RPATH '\\$ORIGIN'"),
    "audit": ("", ("-Wl,--audit=/tmp/hostile.so",), "watch"),
    "watching dependents": ("", ("-Wl,--depaudit=/tmp/hostile.so",), "watch"),
    "filter": ("", ("-Wl,--filter=/tmp/hostile.so",), "filter"),
    "auxiliary": ("", ("-Wl,--auxiliary=/tmp/hostile.so",), "auxiliary"),
    "executable stack": ("", ("-Wl,-z,execstack",), "executable stack"),
    "changed text": (
        '__asm__(".text\\n.quad __tvm_ffi_main\\n");', ("-Wl,-z,notext",),
        "relocations of its text"),
}  # fmt: skip


@pytest.mark.fault("I3")
@pytest.mark.parametrize("what", LIBRARIES)
def test_a_library_that_does_more_than_to_compute_is_refused(what, tmp_path):
    source, options, why = LIBRARIES[what]
    data = _library(tmp_path, SOUND + source, *options)
    with pytest.raises(ForeignCode, match=rf"^lib\.so has .*({why})"):
        check_objects.look_at_library(data, "lib.so")


@pytest.mark.fault("I3")
def test_a_library_that_needs_another_is_refused(tmp_path):
    other = tmp_path / "libhostile.so"
    subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", "-o", other], check=True)
    needed = ("-Wl,--no-as-needed", str(other), "-Wl,-soname,lib.so")
    data = _library(tmp_path, SOUND, *needed)
    with pytest.raises(ForeignCode, match=r"need of the library '.*libhostile\.so'"):
        check_objects.look_at_library(data, "lib.so")


@pytest.mark.parametrize("options", [(), ("-g",), ("-s",), ("-Wl,-z,now",), ("-O2", "-flto")])
def test_what_linkers_add_passes(tmp_path, options):
    check_objects.look_at_library(_library(tmp_path, SOUND, *options), "lib.so")


def test_a_library_beside_passes(tmp_path):
    other = tmp_path / "libscipy_openblas.so"
    soname = f"-Wl,-soname,{other.name}"
    subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", soname, "-o", other], check=True)
    beside = ("-Wl,--no-as-needed", str(other), "-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN")
    check_objects.look_at_library(_library(tmp_path, SOUND, *beside), "lib.so")


def _object(ir, folder):
    path = folder / "code.o"
    tvm.tirx.build(hostile.importing(ir), graphs.TARGET).write_to_file(str(path), "o")
    return path.read_bytes()


@pytest.mark.fault("I3")
@pytest.mark.parametrize("what", hostile.LLVM)
def test_an_object_that_does_more_than_to_compute_is_refused(what, tmp_path):
    with pytest.raises(ForeignCode, match=r"^code\.o has "):
        check_objects.look_at_object(_object(hostile.LLVM[what], tmp_path), "code.o")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return a sound object and a sound library."""
    folder = tmp_path_factory.mktemp("built")
    kernel = compile_kernel(hostile.doubled()[0].mod, graphs.TARGET)
    kernel.write_to_file(str(folder / "code.o"), "o")
    export_library(tvm.runtime.Executable(kernel), folder / "lib.so")
    return (folder / "code.o").read_bytes(), (folder / "lib.so").read_bytes()


@pytest.mark.fault("I5")
@pytest.mark.parametrize("which", [0, 1])
def test_a_damaged_file_is_told_and_nothing_else_happens(built, which):
    """It is either sound, as far as is looked at, or refused; nothing escapes and nothing hangs."""
    look = (check_objects.look_at_object, check_objects.look_at_library)[which]
    look(built[which], "file")
    dice, refused = random.Random(1), 0
    for _ in range(300):
        data = bytearray(built[which])
        for _ in range(dice.randint(1, 8)):
            data[dice.randrange(min(len(data), dice.choice((64, 1 << 16))))] = dice.randrange(256)
        try:
            look(bytes(data[: dice.choice((len(data), dice.randrange(len(data))))]), "file")
        except ForeignCode:
            refused += 1
    assert refused > 150


@pytest.mark.fault("I5")
@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"MZ" * 99, b"\x7fELF\x01\x01\x01" + bytes(99)])
def test_what_is_no_elf_file_is_refused(data):
    for look in (check_objects.look_at_object, check_objects.look_at_library):
        with pytest.raises(ForeignCode, match="cannot be read"):
            look(data, "file")


def test_one_is_not_taken_for_the_other(built):
    with pytest.raises(ForeignCode, match="another kind than a shared library"):
        check_objects.look_at_library(built[0], "file")
    with pytest.raises(ForeignCode, match="another kind than an object"):
        check_objects.look_at_object(built[1], "file")


def test_the_reader_agrees_with_the_linker(built):
    names = {symbol.name for symbol in elf.Elf.read(built[1]).symbols(elf.DYNAMIC_SYMBOLS)}
    assert {"__tvm_ffi_main", "expf"} <= names
