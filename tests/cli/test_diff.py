import json
import os
import subprocess
import sys
from functools import partial

import pytest

from autopipe.lock import text
from tests.lock.examples import LOCK, TASKS
from tests.packaging import packages
from tests.report.pages import Page
from tests.report.reports import full
from tests.test_architecture import IMPORTED, ROOT, heavy_imports

pytestmark = pytest.mark.usefixtures("no_leaks")
OTHER = LOCK.model_copy(
    update={
        "configuration": {**LOCK.configuration, "layout": {"conv2d": ["NHWC", "HWIO"]}},
        "tasks": (TASKS[0].model_copy(update={"engine": "static"}), *TASKS[1:]),
    }
)


@pytest.fixture
def cli(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    return partial(call, "diff")


@pytest.fixture
def locks(tmp_path):
    for name, lock in (("old.lock", LOCK), ("new.lock", OTHER)):
        (tmp_path / name).write_text(text.format_lock(lock))
    return "old.lock", "new.lock"


TOLD = """\
old: old.lock (lock of demo)
new: new.lock (lock of demo)

configuration: 2 changed
  layout: null -> -
  layout.conv2d: - -> ["NHWC", "HWIO"]

tasks: 1 changed, 2 the same; times as tuning measured them
  fused_matmul_add
    engine: autotvm -> static
    time: 4.6 us (4.5 to 5.25) -> 4.6 us (4.5 to 5.25), the same code, not judged

the same: target, versions, sources, artifacts
"""


def test_locks_are_compared_in_whole_lines_where_no_terminal_is(cli, locks):
    assert cli(*locks).out == TOLD


def test_the_exit_code_says_whether_they_differ_if_asked(cli, locks):
    assert cli(*locks, "--exit-code", code=1).out == TOLD
    assert "no differences\n" in cli("old.lock", "old.lock", "--exit-code").out


def test_json_is_canonical(cli, locks):
    out = cli(*locks, "--format", "json").out
    found = json.loads(out)
    assert out == json.dumps(found, indent=2, sort_keys=True) + "\n"
    assert (found["version"], found["same"]) == (1, False)
    assert cli(*locks, "--format", "json").out == out


def test_markdown_for_a_pull_request(cli, locks):
    out = cli(*locks, "--format", "markdown").out
    assert out.startswith("### `demo`: what changed\n\n`old.lock` (lock) → `new.lock` (lock)\n")
    assert "| `fused_matmul_add` | `engine` | `autotvm` | `static` |  |\n" in out


def test_a_page_with_both_builds(cli, locks):
    out = cli(*locks, "--format", "html").out
    assert out.startswith("<!DOCTYPE html>\n")
    assert "demo: what changed" in Page(out).text
    assert cli(*locks, "--format", "html").out == out


def test_packages_reports_and_files_of_two_kinds(cli, locks, tmp_path):
    package = packages.make(tmp_path / "made")
    (tmp_path / "run.json").write_text(full().text())
    assert "no differences" in cli(str(package), str(package)).out
    assert "no differences" in cli("run.json", "run.json").out
    out = cli("old.lock", str(package)).out
    assert "a lock and a package: only what both say is compared\n" in out
    assert "  demo.tar: 232323232323 -> " in out
    assert "not compared:" in out


@pytest.mark.fault("C20")
def test_a_lock_that_was_merged_by_hand_is_refused(cli, locks, tmp_path):
    path = tmp_path / "new.lock"
    path.write_text(path.read_text().replace("calls: 2", "calls: 3"))
    line = len(path.read_text().splitlines())
    assert f"new.lock:{line}: " in cli(*locks, code=6).err


@pytest.mark.fault("E11")
def test_a_hostile_package_is_refused_and_nothing_is_written(cli, tmp_path):
    package = packages.make(tmp_path / "made")
    data = bytearray(package.read_bytes())
    data[156] = ord("2")  # the first file is a symbolic link
    package.write_bytes(data)
    before = sorted(tmp_path.rglob("*"))
    assert str(package) in cli(str(package), str(package), code=3).err
    assert sorted(tmp_path.rglob("*")) == before


def test_other_files_are_refused_in_words(cli, locks, tmp_path):
    (tmp_path / "demo.yaml").write_text("version: 1\nname: demo\n")
    os.mkfifo(tmp_path / "pipe")
    assert "neither a lock, nor a package" in cli("old.lock", "demo.yaml", code=2).err
    assert "pipe: not a regular file" in cli("pipe", "old.lock", code=2).err
    assert "none: No such file" in cli("none", "old.lock", code=2).err


@pytest.mark.parametrize("kind", ["lock", "package"])
def test_comparing_imports_nothing_heavy(locks, tmp_path, kind):
    path = packages.make(tmp_path / "made") if kind == "package" else tmp_path / "old.lock"
    arguments = [sys.executable, "-c", IMPORTED, "diff", path, path]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert heavy_imports(done.stderr) == (0, []), done.stderr
