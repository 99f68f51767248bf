"""TVM's runtime in an exported folder that is missing, damaged or another: a status and a line."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from autopipe.export.folder import _write_digests, export_package
from tests.export.sanitized import ADDRESS, HERE, compile_client, has_sanitizer, run_checked

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

RUNTIME = ("libtvm_ffi.so", "libtvm_runtime.so", "libtvm_runtime_extra.so")
MACHINE = slice(18, 20)
"""Where an ELF file states its architecture."""
OPEN = """
import sys
sys.path.insert(0, sys.argv[1] + "/python")
import autopipe_runtime as runtime
for folder in sys.argv[2:]:
    try:
        runtime.open_package(folder).close()
        print(0)
    except runtime.CallError as error:
        print(error.status, error)
"""


def cut(size):
    return lambda path, data: path.write_bytes(data[:size])


def overwrite(place, new):
    """Return a change of a part of a file."""

    def change(path, data):
        changed = bytearray(data)
        changed[place] = new
        path.write_bytes(changed)

    return change


def to_mips(path, data):
    overwrite(MACHINE, b"\x08\0")(path, data)


CHANGES = {
    "missing": lambda path, data: None,
    **{f"cut to {size}": cut(size) for size in (0, 1, 63, 64, 1000, 4096, 100_000, -100_000, -1)},
    "noise": lambda path, data: path.write_bytes(os.urandom(len(data))),
    "noise behind its header": overwrite(slice(64, 4096), os.urandom(4032)),
    "noise within": overwrite(slice(200_000, 300_000), os.urandom(100_000)),
    "another architecture": to_mips,
    "a folder": lambda path, data: path.mkdir(),
    "a link to nothing": lambda path, data: path.symlink_to("nothing"),
    "a link to itself": lambda path, data: path.symlink_to(path.name),
    "a pipe": lambda path, data: os.mkfifo(path),
}  # fmt: skip


def copy_folder(folder, to):
    return Path(shutil.copytree(folder, to, copy_function=os.link))


def change_library(folder, name, change):
    path = folder / "lib" / name
    data = path.read_bytes()
    path.unlink()
    change(path, data)


def list_digests(folder):
    (folder / "SHA256SUMS").unlink()
    _write_digests(folder)


def run(folder, *before):
    command = [*before, folder / "bin" / "run", "--self-test"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def open_each(folder, work, folders):
    """Open the folders in one process, and run what opens; return a line for each."""
    options = ADDRESS if has_sanitizer(ADDRESS) else ()
    client = compile_client(HERE / "forged.c", folder, work / "client", options)
    done = run_checked([client, *folders], work)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.fixture
def damaged(folder, tmp_path):
    """A folder for each change of each library of the runtime."""
    folders = {}
    for name in RUNTIME:
        for what, change in CHANGES.items():
            made = folders[name, what] = copy_folder(
                folder, tmp_path / "damaged" / f"{name} {what}"
            )
            change_library(made, name, change)
    return folders


@pytest.mark.fault("K7")
def test_the_program_states_which_library_is_damaged(damaged):
    for (name, what), folder in damaged.items():
        done = run(folder)
        assert (done.returncode, done.stderr.count("\n")) == (3, 1), (name, what, done)
        assert f"lib/{name}: " in done.stderr, (name, what, done.stderr)


@pytest.mark.fault("K7")
def test_a_process_goes_on_after_a_damaged_runtime(folder, damaged, tmp_path):
    """From C and from Python: it opens one folder after the other, and a sound one at last."""
    folders = [*damaged.values(), folder]
    answers = open_each(folder, tmp_path, folders)
    assert [answer[:7] for answer in answers] == ["3 open "] * len(damaged) + ["0 run "]
    done = subprocess.run(
        [sys.executable, "-c", OPEN, folder, *folders], capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [line[:2] for line in done.stdout.splitlines()] == ["3 "] * len(damaged) + ["0"]


@pytest.mark.fault("K7")
def test_the_loader_for_python_compares_the_c_library(folder, tmp_path):
    folders = []
    for what in CHANGES.keys() - {"a pipe", "cut to 100000"}:  # one waits, one keeps all of it
        folders.append(copy_folder(folder, tmp_path / what))
        change_library(folders[-1], "libautopipe.so", CHANGES[what])
    done = subprocess.run(
        [sys.executable, "-c", OPEN, folder, *folders, folder], capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert (done.returncode, lines[-1]) == (0, "0"), done.stderr
    assert len(lines) == len(folders) + 1
    assert all(line.startswith("3 ") and "libautopipe.so" in line for line in lines[:-1]), lines


def test_a_library_that_the_user_may_not_read_is_named(folder):
    drop = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("root reads everything")
    (folder / "lib" / "libtvm_runtime.so").chmod(0)
    done = run(folder, *(drop if os.geteuid() == 0 else ()))
    assert done.returncode == 3
    assert done.stderr.endswith("lib/libtvm_runtime.so: Permission denied\n")


@pytest.mark.parametrize("name", RUNTIME)
def test_a_listed_library_of_another_architecture_is_refused_by_the_loader(folder, name):
    change_library(folder, name, to_mips)
    list_digests(folder)
    done = run(folder)
    assert (done.returncode, done.stderr.count("\n")) == (4, 1), done.stderr
    assert name in done.stderr


def test_another_runtime_in_the_process_is_refused(folder, package, tmp_path):
    """A folder of the same runtime in other files is opened, one of another runtime is not."""
    other = export_package(package, tmp_path / "other")
    assert open_each(folder, tmp_path, [folder, other, other]) == ["0 run "] * 3
    change_library(other, "libtvm_runtime.so", lambda path, data: path.write_bytes(data + b"later"))
    list_digests(other)
    opened, refused, again = open_each(folder, tmp_path, [folder, other, folder])
    assert (opened, refused[:7], again) == ("0 run ", "4 open ", "0 run ")
    assert "another TVM runtime" in refused
    opened, refused = open_each(folder, tmp_path, [other, folder])
    assert (opened, refused[:7]) == ("0 run ", "4 open ")
