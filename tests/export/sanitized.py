"""The C library, compiled with the checks of the compiler's sanitizers."""

import resource
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from autopipe.export import compile_native
from autopipe.export.compile_native import SOURCES, Compiler
from autopipe.export.folder import _write_digests
from autopipe.export.runtime_files import _find_package_folder

HERE = Path(__file__).parent
ADDRESS = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
THREAD = ("-g", "-O1", "-fsanitize=thread")
_SUPPRESSED = "race:libtvm_runtime.so\nrace:libtvm_ffi.so\n"
"""TVM's runtime is not compiled with the sanitizer, which does not see its atomic counters."""


@cache
def has_sanitizer(options: Sequence[str]) -> bool:
    """Whether the C compiler links programs with a sanitizer, and they run here."""
    with tempfile.TemporaryDirectory() as work:
        source = Path(work, "program.c")
        source.write_text("int main(void) { return 0; }\n")
        command = ["cc", *options, str(source), "-o", f"{work}/program"]
        if shutil.which("cc") is None or subprocess.run(command, check=False).returncode:
            return False
        return subprocess.run([f"{work}/program"], check=False).returncode == 0


def needs(options: Sequence[str]) -> pytest.MarkDecorator:
    """Skip a test where the compiler lacks a sanitizer."""
    return pytest.mark.skipif(not has_sanitizer(options), reason=f"no {options[2]}")


def compile_native_part(folder: Path, options: Sequence[str]) -> None:
    """Put a library and a program with checks into a folder, and list the digests anew."""
    compiler = Compiler(("cc", *options))
    headers = _find_package_folder("tvm_ffi") / "include"
    compile_native.compile_library(compiler, headers, folder / "lib" / "libautopipe.so")
    compile_native.compile_program(compiler, headers, folder / "bin" / "run")
    (folder / "SHA256SUMS").unlink()
    _write_digests(folder)


def compile_client(source: Path, folder: Path, out: Path, options: Sequence[str] = ()) -> Path:
    """Compile a program that is linked with the library of a folder."""
    lib = folder / "lib"
    subprocess.run(
        ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", *options, f"-I{folder}/include", "-o",
         out, source, f"-L{lib}", "-lautopipe", "-lpthread",
         f"-Wl,-rpath,{lib}"],
        check=True,
    )  # fmt: skip
    return out


def compile_reader(out: Path) -> Path:
    """Compile a program that reads the description of each folder, and prints a status for each."""
    source = out.with_suffix(".c")
    source.write_text(
        '#include <stdio.h>\n#include "description.h"\n'
        "int main(int n, char **w) { static description d; autopipe_status s = AUTOPIPE_OK;\n"
        "  for (int i = 1; i < n; i++) { s = read_description(w[i], 0, 1 << 20, &d);\n"
        '    printf("%d %s\\n", s, s ? autopipe_last_error() : d.missing);\n'
        "    free_description(&d); } }\n"
    )
    names = ("error.c", "files.c", "sha256.c", "processor.c", "description.c")
    files = [str(SOURCES / name) for name in names]
    headers = _find_package_folder("tvm_ffi") / "include"
    subprocess.run(
        ["cc", "-std=c11", *ADDRESS, f"-I{SOURCES}", f"-I{headers}", source, *files, "-o", out],
        check=True,
    )
    return out


def run_checked(command: Sequence[object], work: Path) -> subprocess.CompletedProcess[str]:
    """Run a program with checks; a finding of theirs, or a signal, fails the test."""
    (work / "suppressed").write_text(_SUPPRESSED)
    environment = {
        "ASAN_OPTIONS": "exitcode=99",
        "TSAN_OPTIONS": f"exitcode=99:suppressions={work}/suppressed",
    }
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, timeout=300,
        env=environment, preexec_fn=_lift_limit, errors="replace",
    )  # fmt: skip
    assert done.returncode >= 0, done.stderr[-4000:]
    assert "Sanitizer" not in done.stderr, done.stderr[-4000:]
    assert "runtime error:" not in done.stderr, done.stderr[-4000:]
    return done


def _lift_limit() -> None:
    """Let the sanitizer reserve addresses, where other tests left this process a limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
