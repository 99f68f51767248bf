"""What a file says of a build, and which files are refused."""

import json
import os
from typing import Any

import pytest

from autopipe.comparison.build import Time
from autopipe.comparison.difference import compare_builds
from autopipe.comparison.reading import read_build
from autopipe.errors import ConfigError, LockError, PackageError
from autopipe.lock import text
from autopipe.lock.recognize import FileKind
from autopipe.store.files import sha256
from tests.artifacts.examples import checked_case, comparison, verification
from tests.lock.examples import KNOBS, LOCK
from tests.packaging import packages
from tests.report.reports import full

TASK = {
    "name": "dense", "workload": "0f", "calls": 2, "engine": "ansor", "implementation": "direct",
}  # fmt: skip
VERIFIED = verification(
    checked_case("a", comparison("y", max_abs=1e-3, used=0.5)),
    checked_case("b", comparison("y", max_abs=2e-3, max_rel=1e-2, used=0.25)),
    checked_case("c"),
    reference_version="1.31",
)


@pytest.fixture
def lock(tmp_path):
    path = tmp_path / "lock"
    path.write_text(text.format_lock(LOCK))
    return path


@pytest.fixture
def package(tmp_path):
    return packages.make(tmp_path / "made")


def report(tmp_path, **fields):
    path = tmp_path / "report"
    path.write_text(full(**fields).text())
    return path


def test_a_lock_is_known_by_its_content(lock):
    found = read_build(lock)
    assert (found.kind, found.file, found.pipeline) == (FileKind.LOCK, str(lock), "demo")
    assert found.facts["configuration"]["model.inputs.on.shape"] == [1, 3]
    assert found.facts["target"]["hardware.l1"] == 32768
    assert found.facts["versions"] == {
        "tvm": "0.27", "llvm": "22", "onnx": None, "stages.import": 3, "stages.tune": 3,
    }  # fmt: skip
    assert found.facts["artifacts"] == LOCK.artifacts
    dense, _, softmax = found.tasks or ()
    assert dense.decisions["schedule"] == KNOBS
    assert (dense.decisions["calls"], dense.decisions["ops"]) == (2, ["matmul", "add"])
    assert dense.time == Time(4.6 / 1e6, 4.5 / 1e6, 5.25 / 1e6)
    assert softmax.time is None
    assert found.machine == {"kind": "llvm", "arch": None, "mcpu": "znver4"}


def test_a_package_is_known_by_its_content(package):
    def add(document):
        build = document["predicate"]["buildDefinition"]
        build["internalParameters"]["tasks"] = [TASK]

    found = read_build(packages.changed(package, manifest=add))
    assert (found.kind, found.pipeline) == (FileKind.PACKAGE, "demo")
    whole = package.parent / "changed.tar"
    assert found.facts["artifacts"]["demo.tar"] == sha256(whole)
    assert found.facts["size"]["lib.so"] == len(packages.CONTENTS["lib.so"])
    assert found.facts["size"]["package"] == whole.stat().st_size
    assert found.facts["configuration"] == {"version": 1}
    assert found.facts["target"]["num_cores"] == 2
    assert found.facts["versions"] == {"tvm": "99", "autopipe": "0.1.0", "llvm": "22"}
    assert found.facts["sources"] == {"import.model": "ab" * 32}
    assert found.facts["accuracy"] == {"verification": "onnxruntime 1.31.1, 8 cases"}
    (task,) = found.tasks or ()
    assert (task.name, task.time, task.decisions) == (
        "dense", None, {"calls": 2, "engine": "ansor", "implementation": "direct"},
    )  # fmt: skip


def test_a_report_is_known_by_its_content(tmp_path):
    found = read_build(report(tmp_path, verification=VERIFIED))
    assert (found.kind, found.pipeline) == (FileKind.REPORT, "demo")
    assert found.facts["outcome"] == {"run": "finished"}
    assert found.facts["sources"] == {"import.model": "demo"}
    assert found.facts["size"] == {"package": 2**20}
    assert found.facts["artifacts"] == {"demo": "ab" * 32}
    assert found.facts["accuracy"] == {
        "verification": "onnxruntime 1.31, 2 cases",
        "y.max_abs": 2e-3, "y.max_rel": 1e-2, "y.used": 0.5,
    }  # fmt: skip
    assert found.latency is not None
    assert found.latency["autopipe"].time == Time(1e-3, 0.995e-3, 1.005e-3)
    assert found.latency["onnxruntime"].version == "1.31"
    assert [task.time for task in found.tasks or ()] == [Time(1e-3), None]
    assert found.machine == {"cpu": "demo"}


def test_a_run_that_did_not_get_far_says_little(tmp_path):
    absent = ("configuration", "verification", "benchmark", "package")
    nothing: dict[str, Any] = {**dict.fromkeys(absent), "sources": {}}
    path = report(tmp_path, **nothing, pipeline=None, tasks=(), outcome="failed")
    found = read_build(path)
    assert found.facts.keys() == {"outcome", "versions"}
    assert (found.tasks, found.latency) == (None, None)


def test_a_lock_and_the_package_of_its_build(lock, package, tmp_path):
    found = read_build(package)
    digests = dict(found.facts["artifacts"])
    lock.write_text(text.format_lock(LOCK.model_copy(update={"artifacts": digests})))
    assert compare_builds(read_build(lock), found).facts["artifacts"] == ()
    lock.write_text(text.format_lock(LOCK))
    changes = compare_builds(read_build(lock), found).facts["artifacts"]
    assert [change.name for change in changes] == [
        "demo.tar", "lib.so",
    ]  # fmt: skip


@pytest.mark.fault("C20")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t.replace("calls: 2", "calls: 3"), "edited"),
        (lambda t: t[: len(t) // 2], "cut short"),
        (lambda t: "<<<<<<< HEAD\n" + t, r":1: a merge conflict"),
        (lambda t: t.replace("version: 1\n", "<<<<<<< HEAD\nversion: 1\n", 1), "merge conflict"),
        (lambda t: t + "more: 1\n", "follows the digest"),
        (lambda t: t.replace("version: 1\n", "version: 2\n", 1), "version 2"),
    ],
)
def test_a_damaged_lock_is_still_told_to_be_one(lock, change, reason):
    lock.write_text(change(lock.read_text()))
    with pytest.raises(LockError, match=reason) as caught:
        read_build(lock)
    assert str(caught.value).startswith(f"{lock}:")


@pytest.mark.fault("E11")
def test_a_damaged_or_hostile_package_is_refused(package, tmp_path):
    whole = package.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for broken in (whole[:-1], whole[:600], bytes(flipped), whole + b"x"):
        package.write_bytes(broken)
        with pytest.raises(PackageError):
            read_build(package)


@pytest.mark.fault("E11")
def test_a_package_is_not_what_its_manifest_says(package):
    other = packages.changed(package, lib=b"other code" * 120, manifest=lambda _: None)
    with pytest.raises(PackageError, match=r"changed\.tar: 'lib\.so' is damaged"):
        read_build(other)


@pytest.mark.parametrize("row", [{}, {**TASK, "name": 7}, {**TASK, "calls": "many"}])
def test_a_manifest_with_odd_tasks_is_refused(package, row):
    def add(document):
        build = document["predicate"]["buildDefinition"]
        build["internalParameters"]["tasks"] = [row]

    with pytest.raises(
        PackageError, match=r"changed\.tar: manifest\.json does not fit: .*tasks\.0"
    ):
        read_build(packages.changed(package, manifest=add))


@pytest.mark.parametrize(
    "changes", [{"reference": None}, {"reference": 1}, {"cases": {}}, {"cases": [{"skipped": 3}]}]
)
def test_a_report_with_an_odd_verification_is_refused(tmp_path, changes):
    path = report(tmp_path, verification=VERIFIED)
    document = json.loads(path.read_text())
    document["verification"] |= changes
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=r"not the report of a run: verification\."):
        read_build(path)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\0", b"name: demo\nversion: 1\n", b"PK\x03\x04", b"[1]", b"\xff" * 5000,
        b"# a comment\n", b"pipeline: x\n",
    ],
)  # fmt: skip
def test_anything_else_is_refused_in_words(tmp_path, content):
    path = tmp_path / "x.lock"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="neither a lock, nor a package, nor the report of a run"):
        read_build(path)


@pytest.mark.parametrize("content", [b"{", b"{}", b'{"version": 2}', b'{"version": 1}', b"{\xff}"])
def test_what_looks_like_a_report_and_is_none(tmp_path, content):
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="not the report of a run"):
        read_build(path)


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, reason in (
        ("pipe", "regular"),
        (".", "Is a directory"),
        ("none", "No such"),
        ("a\0", "null"),
    ):
        with pytest.raises(ConfigError, match=reason):
            read_build(tmp_path / name)
