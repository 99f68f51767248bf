"""Folders in a Debian that has nothing: `python minimal_root.py FOLDERS` (as root).

The root has the files of Debian's libc6, libgcc-s1 and libstdc++6 as they are installed here, and
/proc/cpuinfo: no shell, no Python. There `run --self-test`, a C and a C++ program run each folder.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

PACKAGES: Final = ("libc6", "libgcc-s1", "libstdc++6")
SOURCES: Final = Path(__file__).parent
PROGRAMS: Final = {"c": ("cc", "-std=c11", "forged.c"), "c++": ("c++", "-std=c++17", "client.cpp")}


def main() -> int:
    """Run each folder; return 1 where a program fails."""
    failed = 0
    for folder in map(Path, sys.argv[1:]):
        with tempfile.TemporaryDirectory() as work:
            root = make_root(Path(work, "root"), folder)
            for name, command in commands(root, folder):
                done = run_within(root, command)
                failed |= done.returncode
                lines = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
                print(f"{folder.name:<14} {name:<10} exit {done.returncode}: {lines[-1]}")  # noqa: T201 - what it is for
    return int(failed != 0)


def make_root(root: Path, folder: Path) -> Path:
    """Write a root file system with the C and C++ libraries, and an exported folder as /model."""
    command = ["dpkg", "-L", *PACKAGES]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    for path in map(Path, listed.stdout.splitlines()):
        if path.is_file() and (".so" in path.name or path.name.startswith("ld-")):
            to = root / path.relative_to("/")
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, to)
    shutil.copytree(folder, root / "model")
    (root / "proc" / "self").mkdir(parents=True)
    shutil.copy("/proc/cpuinfo", root / "proc" / "cpuinfo")
    return root


def commands(root: Path, folder: Path) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the programs to run, each with its name; C and C++ are compiled here."""
    yield "self-test", ["/model/bin/run", "--folder", "/model", "--self-test"]
    for language, (compiler, standard, source) in PROGRAMS.items():
        command = [
            compiler, standard, f"-I{folder}/include", str(SOURCES / source), "-o",
            str(root / language), f"-L{folder}/lib", "-lautopipe", "-Wl,-rpath,/model/lib",
        ]  # fmt: skip
        subprocess.run(command, check=True)
        yield language, [f"/{language}", "/model"]


def run_within(root: Path, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a program that sees the root alone."""
    link = root / "proc" / "self" / "exe"  # by which $ORIGIN is known
    link.unlink(missing_ok=True)
    link.symlink_to(command[0])
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={}, timeout=300,
        preexec_fn=lambda: os.chroot(root),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
