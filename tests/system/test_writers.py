"""Whole runs with TVM on a disk, and under limits, that leave too little room for them."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.system.writers import KINDS, ROOT, SHORT

SIZES = [round(50 * (4096 / 50) ** (step / 39)) for step in range(40)]
"""KiB, from 50 to 4096."""

DESCRIPTORS = range(3, 43)
"""A run takes 20 or so beyond those of the tests."""

LEFT = [
    "dist",
    "one.lock",
    "one.records.jsonl",
    "one.tar",
    "one.yaml",
    "report.json",
    "store",
    "tmp",
]


def runs(folder: Path, kind: str, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Make the runs in a process of their own, with a library before libc where a kind needs it."""
    argv = [sys.executable, "-m", "tests.system.writers", kind, str(folder), *map(str, sizes)]
    env = dict(os.environ)
    if kind == "disk":
        argv = ["unshare", "--map-root-user", "--mount", *argv]
        if subprocess.run([*argv[:3], "true"], capture_output=True, check=False).returncode:
            pytest.skip("nothing may be mounted here")
    if kind in SHORT:
        (folder / "control").write_bytes(b"\xff" * 16)
        library = folder / "short_writes.so"
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            pytest.skip("no C compiler")
        source = ROOT / "tests" / "system" / "short_writes.c"
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
        env |= {
            "LD_PRELOAD": str(library), "AUTOPIPE_SHORT_FOLDER": str(folder / "disk"),
            "AUTOPIPE_SHORT_CONTROL": str(folder / "control"),
        }  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT, env=env)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(run: dict[str, Any]) -> None:
    """See that a run without room says so in a line, and that the next one loses nothing of it."""
    first, second = run["first"], run["second"]
    assert first["code"] in {0, 5}, run
    assert len(first["said"].splitlines()) == (1 if first["code"] else 0), run
    assert first["said"].startswith("error: /" if first["code"] else ""), run
    assert (second["code"], second["said"]) == (0, ""), run
    assert second["cached"] == first["finished"], "what was finished is not done again"
    assert [each["code"] for each in run["checks"]] == [0, 0, 0], run
    assert set(LEFT) <= set(run["left"])
    assert {name for name in run["left"] if not name.startswith("tmp")} <= set(LEFT), run


@pytest.mark.fault("M1", "M2")
def test_a_writer_without_room_is_a_line_and_the_next_run_ends_right(tmp_path: Path) -> None:
    """Where safetensors writes in *import*, LLVM or the linker in *build*, and in *verify*."""
    found = runs(tmp_path, "ENOSPC", [60, 900, 1350])
    for run in found:
        check(run)
    assert [run["first"]["code"] for run in found] == [5, 5, 5]
    stages = [len(run["first"]["finished"]) for run in found]
    assert stages[0] == 0
    assert len(set(stages)) == 3, "each failed in another one"


@pytest.mark.slow
@pytest.mark.fault("M1", "M2")
@pytest.mark.parametrize("kind", KINDS)
def test_every_writer_at_forty_sizes(tmp_path: Path, kind: str) -> None:
    found = runs(tmp_path, kind, DESCRIPTORS if kind == "descriptors" else SIZES)
    assert len(found) == 40
    for run in found:
        check(run)
    assert found[0]["first"]["code"] == 5
    assert found[-1]["first"]["code"] == 0
