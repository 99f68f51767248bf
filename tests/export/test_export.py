"""An exported folder runs without Python, without TVM's compiler and without autopipe."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from autopipe.cli.app import build_app
from autopipe.errors import ConfigError, PackageError
from autopipe.export import bench
from autopipe.export.folder import export_package
from autopipe.packaging.open import open_package
from autopipe.runtime import folder as loader
from autopipe.signing.signers import UnsignedError
from tests.export.forging import forge_folder, replace_file
from tests.signing import keys
from tests.signing.keys import NEEDED

HERE = Path(__file__).parent
LOADER = """
import sys
sys.path.insert(0, sys.argv[1] + "/python")
import numpy as np
import autopipe_runtime as runtime
with runtime.open_package(sys.argv[1], threads=1, instances=2, verify=True) as model:
    x = np.arange(32, dtype="float32").reshape(4, 8)
    outputs = model({"data/x": x[::1], "ids": np.arange(4)})
    print(model.inputs, outputs["scores"].shape, outputs["best"].dtype)
    try:
        model({"data/x": x})
    except runtime.CallError as error:
        print(error.status, error)
    try:
        model({"data/x": x, "ids": np.arange(4)}, limit=0)
    except runtime.CallError as error:
        print(isinstance(error, TimeoutError), error)
    try:
        model({"data/x": x.astype(">f4"), "ids": np.arange(4)})
    except runtime.CallError as error:
        print(error.status, error)
    model.cancel()
    model({"data/x": x, "ids": np.arange(4)}, limit=float("inf"))
print([name for name in sys.modules if name.startswith(("tvm", "autopipe."))])
"""


def run(folder, *words):
    command = [str(folder / "bin" / "run"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={}, timeout=60)


def test_a_folder_runs_and_states_what_it_needs(folder, package, tmp_path):
    tested = run(folder, "--self-test", "--verify")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert tested.stdout.splitlines()[-1] == "2 of 2 cases right"
    x = np.random.default_rng(0).standard_normal((4, 8)).astype("float32")
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "ids.npy", np.arange(4))
    given = ("--input", f"data/x={tmp_path}/x.npy", "--input", f"ids={tmp_path}/ids.npy")
    done = run(folder, *given, "--output", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    expected = open_package(package)({"data/x": x, "ids": np.arange(4)})
    for name, array in expected.items():
        np.testing.assert_array_equal(np.load(tmp_path / "out" / f"{name}.npy"), array)
    assert "input data/x: float32 [4, 8]" in run(folder, "--describe").stdout
    assert "glibc 2." in (folder / "REQUIREMENTS").read_text()


def test_the_same_package_exports_to_the_same_bytes(folder, package, tmp_path):
    again = export_package(package, tmp_path / "again")
    digests = [(one / "SHA256SUMS").read_text() for one in (folder, again)]
    assert digests[0] == digests[1]
    listed = {line[66:]: line[:64] for line in digests[0].splitlines()}
    files = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert files == {*listed, "SHA256SUMS"}
    assert all(sha256((folder / n).read_bytes()).hexdigest() == d for n, d in listed.items())


def test_an_existing_folder_is_not_overwritten(folder, package):
    with pytest.raises(ConfigError, match="exists"):
        export_package(package, folder)


def test_the_header_compiles_as_cpp(folder, tmp_path):
    source = tmp_path / "client.cpp"
    source.write_text(
        '#include <cstdio>\n#include "autopipe.hpp"\n'
        "int main(int, char **words) {\n"
        "  autopipe::Model model(words[1]);\n"
        "  std::vector<float> x(32, 1.0f); std::vector<int64_t> ids{0, 1, 2, 3};\n"
        '  auto given = {autopipe::input("data/x", x), autopipe::input("ids", ids)};\n'
        '  std::printf("%zu\\n", model.run(given)["scores"].size());\n'
        "  std::vector<int64_t> best(4, -1);\n"
        '  std::vector<autopipe_tensor> into{autopipe::output("best", best)};\n'
        "  model.run_into(given, into);\n"
        '  std::printf("%d %d\\n", best[3] >= 0, into[0].rank);\n'
        "  try { model.run({}); } catch (const autopipe::Error &e) {\n"
        '    std::printf("%d\\n", e.status); }\n'
        "}\n"
    )
    lib = folder / "lib"
    subprocess.run(
        ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{folder}/include", source, "-o",
         tmp_path / "client", f"-L{lib}", "-lautopipe", f"-Wl,-rpath,{lib}"],
        check=True,
    )  # fmt: skip
    done = subprocess.run(
        [tmp_path / "client", folder], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "32\n1 1\n1\n"


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no CMake")
def test_cmake_finds_the_library(folder, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(client C CXX)\n"
        "find_package(autopipe CONFIG REQUIRED)\n"
        f"add_executable(c {HERE}/forged.c)\nadd_executable(cpp {HERE}/client.cpp)\n"
        "set_property(TARGET cpp PROPERTY CXX_STANDARD 17)\n"
        "target_link_libraries(c autopipe::autopipe)\n"
        "target_link_libraries(cpp autopipe::autopipe)\n"
    )
    made = tmp_path / "made"
    for command in (
        ["cmake", "-S", tmp_path, "-B", made, f"-DCMAKE_PREFIX_PATH={folder}"],
        ["cmake", "--build", made],
    ):
        subprocess.run(command, check=True, capture_output=True)
    for name, expected in (("c", "0 run "), ("cpp", "scores: float32 [ 4 8 ]")):
        done = subprocess.run([made / name, folder], capture_output=True, text=True, check=False)
        assert (done.returncode, expected in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="no pkg-config")
def test_pkg_config_states_how_to_link(folder, tmp_path):
    found = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "autopipe"], capture_output=True, text=True,
        check=True, env={**os.environ, "PKG_CONFIG_PATH": str(folder / "lib" / "pkgconfig")},
    )  # fmt: skip
    client = tmp_path / "client"
    command = ["cc", HERE / "forged.c", *found.stdout.split(), "-o", client]
    subprocess.run(command, check=True)
    done = subprocess.run([client, folder], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0 run \n"), done.stderr


def test_the_python_loader_needs_numpy_alone(folder):
    done = subprocess.run(
        [sys.executable, "-c", LOADER, folder], capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "(4, 8) int64" in lines[0]
    late = "True the call did not end within 0 ms"
    swapped = "1 input 'data/x' is >f4 [4, 8]; no model takes it"
    assert lines[1:] == ["1 input ids is missing", late, swapped, "[]"]


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="no large pages"
)
def test_weights_are_mapped_in_large_pages_if_the_system_has_them(folder):
    with loader.open_package(folder, threads=1):
        mappings = Path("/proc/self/smaps").read_text().split(f"{folder}/weights.safetensors")
    assert len(mappings) == 2
    flags = mappings[1].partition("VmFlags:")[2].partition("\n")[0]
    assert "hg" in flags.split()


def test_a_bench_counts_calls(folder):
    printed = bench.bench_package(folder, ["--seconds", "0.1", "--warmup", "0", "--callers", "2"])
    assert "2 instances, 2 callers" in printed
    with pytest.raises(ConfigError, match="no such file"):
        bench.bench_package(folder, ["--input", "ids=/nowhere.npy"])
    with pytest.raises(PackageError, match="not a folder"):
        bench.bench_package(folder / "include", [])


@pytest.mark.parametrize(
    ("name", "change", "code", "reason"),
    [
        ("weights.safetensors", lambda data: data[:-200], 3, "not a description"),
        ("weights.safetensors", None, 3, "No such file"),
        ("model.txt", lambda data: data[:-4], 3, "it has no end"),
        ("model.txt", lambda data: data.replace(b"feature", b"feature x9 x9\nfeature", 1), 4, "x9"),
        ("model.txt", lambda data: data.replace(b"x86_64", b"mips64"), 4, "built for mips64"),
        ("lib.so", lambda data: data[:1000], 3, "lib.so"),
        ("lib.so", None, 3, "lib.so"),
    ],
)
def test_a_damaged_folder_is_one_line_and_a_code(folder, name, change, code, reason):
    data = (folder / name).read_bytes()
    (folder / name).unlink()
    if change:
        (folder / name).write_bytes(change(data))
    done = run(folder, "--self-test")
    assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
    assert reason in done.stderr


def test_a_folder_is_inspected_as_its_package_is(folder, package):
    runner = CliRunner()
    lines = [
        runner.invoke(build_app(), ["inspect", str(path)]).stdout.splitlines()
        for path in (folder, package)
    ]
    assert lines[0][1:] == lines[1][1:]
    document = json.loads(runner.invoke(build_app(), ["inspect", str(folder), "--json"]).stdout)
    assert document["bytes"]["bin/run"] == (folder / "bin" / "run").stat().st_size
    (folder / "model.txt").write_text("x")
    found = runner.invoke(build_app(), ["inspect", str(folder)])
    assert "model.txt: damaged" in str(found.exception)


def test_digests_find_what_loading_does_not(folder):
    (folder / "cases" / "cases.txt").write_text("case x\n")
    done = run(folder, "--verify", "--describe")
    assert (done.returncode, "cases.txt: damaged" in done.stderr) == (3, True)


def test_a_wrong_answer_fails_the_self_test(folder):
    output = next((folder / "cases").glob("*.output.0.npy"))
    np.save(output, np.load(output) + 1)
    done = run(folder, "--self-test")
    assert (done.returncode, "is wrong" in done.stdout) == (1, True)


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("dpkg") is None, reason="takes root, and Debian's packages"
)
def test_a_folder_runs_in_a_root_with_nothing_but_libc(folder):
    """The self-test, a C and a C++ program."""
    script = HERE / "minimal_root.py"
    done = subprocess.run(
        [sys.executable, script, folder], capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stdout.count("exit 0")) == (0, 3), done.stdout + done.stderr


def test_the_structures_of_the_loader_are_those_of_the_header(folder, tmp_path):
    source = tmp_path / "sizes.c"
    source.write_text(
        '#include <stdio.h>\n#include "autopipe.h"\n'
        'int main(void) { printf("%zu %zu %zu\\n", sizeof(autopipe_options),'
        " sizeof(autopipe_port), sizeof(autopipe_tensor)); }\n"
    )
    subprocess.run(["cc", f"-I{folder}/include", source, "-o", tmp_path / "sizes"], check=True)
    printed = subprocess.run([tmp_path / "sizes"], capture_output=True, text=True, check=True)
    sizes = [ctypes.sizeof(kind) for kind in (loader.Options, loader._Port, loader._Tensor)]
    assert printed.stdout.split() == [str(size) for size in sizes]


@NEEDED
def test_a_folder_is_signed_and_verified_as_packages_are(folder, tmp_path):
    key = keys.key(tmp_path, "release")
    allowed = keys.signers(tmp_path, f"release@example.com {keys.public(key)}")
    runner = CliRunner()
    assert runner.invoke(build_app(), ["sign", str(folder), "--key", str(key)]).exit_code == 0
    found = runner.invoke(build_app(), ["verify", str(folder), "--signers", str(allowed)])
    assert (found.exit_code, "signed by release@example.com" in found.stdout) == (0, True), (
        found.exception
    )
    (folder / "added").write_text("x")
    found = runner.invoke(build_app(), ["verify", str(folder)])
    assert "'added' is not in SHA256SUMS" in str(found.exception)
    (folder / "added").unlink()
    (folder / "model.txt").write_text("x")
    found = runner.invoke(build_app(), ["verify", str(folder)])
    assert "model.txt: damaged" in str(found.exception)
    (folder / "SHA256SUMS").write_text("0" * 64 + "  model.txt\n")
    found = runner.invoke(build_app(), ["verify", str(folder), "--signers", str(allowed)])
    assert isinstance(found.exception, UnsignedError)


def test_openblas_is_loaded_without_threads_of_its_own(folder, tmp_path):
    """A library prints what OpenBLAS would read when it is loaded."""
    source = tmp_path / "library.c"
    source.write_text(
        "#include <stdio.h>\n#include <stdlib.h>\n"
        "__attribute__((constructor)) static void tell(void) {\n"
        '  fprintf(stderr, "threads: %s\\n", getenv("OPENBLAS_NUM_THREADS")); }\n'
    )
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", tmp_path / "library.so"], check=True)
    change = replace_file("lib.so", (tmp_path / "library.so").read_bytes())
    forged = forge_folder(folder, tmp_path / "forged", change)
    done = run(folder, "--folder", str(forged), "--describe")
    assert "threads: 1\n" in done.stderr
    assert (done.returncode, "not one of a compiled model" in done.stderr) == (3, True)
