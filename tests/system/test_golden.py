"""What earlier versions wrote is read by the code of today."""

import re
import tomllib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from autopipe import open_package
from autopipe.benchmarking import baseline
from autopipe.comparison.difference import compare_builds
from autopipe.comparison.reading import read_build
from autopipe.config.load import load
from autopipe.config.pipeline import Pipeline
from autopipe.errors import PackageError, SetupError
from autopipe.lock import file as locks
from autopipe.lock import records as beside
from autopipe.lock import text
from autopipe.packaging.examine import examine_package
from autopipe.report import document
from autopipe.store.files import sha256

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
FOLDERS = sorted(GOLDEN.glob("v*/"))
PIPELINES = [path for folder in FOLDERS for path in sorted(folder.glob("*.yaml"))]
CURRENT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

pytestmark = pytest.mark.fault("C14")


def folder_of(version):
    return f"v{'.'.join(version.split('.')[:2])}"


def released(changelog):
    return re.findall(r"^## \[?v?(\d+\.\d+\.\d+)", changelog, re.MULTILINE)


def shown(path):
    return str(path.relative_to(GOLDEN))


def test_every_released_version_has_its_folder():
    versions = [*released((ROOT / "CHANGELOG.md").read_text()), CURRENT]
    missing = {folder_of(version) for version in versions} - {folder.name for folder in FOLDERS}
    assert missing == set(), "tests/golden/README.md says how to make it"


def test_releases_are_found_in_a_changelog():
    found = released("## Unreleased\n### Added\n## 0.2.0 - 2027-01-01\n## [0.1.1]\n## v0.1.0\n")
    assert found == ["0.2.0", "0.1.1", "0.1.0"]


@pytest.mark.parametrize("folder", FOLDERS, ids=shown)
def test_nothing_was_edited(folder):
    sums = (folder / "SHA256SUMS").read_text().splitlines()
    listed = {name: digest for digest, name in (line.split("  ") for line in sums)}
    files = [path for path in folder.iterdir() if path.name != "SHA256SUMS"]
    assert {path.name: sha256(path) for path in files} == listed


@pytest.mark.parametrize("path", PIPELINES, ids=shown)
def test_pipeline_files_are_read(path):
    assert load(path).name == path.stem


def test_the_pipeline_files_of_this_version_have_every_section():
    if CURRENT in released((ROOT / "CHANGELOG.md").read_text()):
        pytest.skip("a released version is never edited; the next one has its own folder")
    paths = (GOLDEN / folder_of(CURRENT)).glob("*.yaml")
    written = {
        name for path in paths for name in re.findall(r"^(\w+):", path.read_text(), re.MULTILINE)
    }
    assert written == set(Pipeline.model_fields)


@pytest.mark.parametrize("folder", FOLDERS, ids=shown)
def test_a_lock_and_its_records_are_read(folder):
    path = folder / "tiny.lock"
    lock = locks.read_lock(path)
    assert text.format_lock(lock) == path.read_text()
    assert {task.engine for task in lock.tasks} == {"ansor", "autotvm"}
    records = folder / "tiny.records.jsonl"
    assert sha256(records) == lock.records
    tuned = beside.read_records(records.read_text(), records)
    assert len(tuned.records) == len(lock.tasks)


@pytest.mark.parametrize("folder", FOLDERS, ids=shown)
def test_a_package_is_sound_and_what_the_lock_says(folder):
    lock = locks.read_lock(folder / "tiny.lock")
    assert examine_package(folder / "tiny.tar").differences(lock.artifacts) == []


@pytest.mark.parametrize("folder", FOLDERS, ids=shown)
def test_a_package_runs_where_it_can(folder):
    try:
        model = open_package(folder / "tiny.tar")
    except (SetupError, PackageError) as error:  # another TVM by now, or another machine
        pytest.skip(str(error))
    x = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32)
    weights = numpy_helper.to_array(onnx.load(folder / "tiny.onnx").graph.initializer[0])
    relu = np.maximum(x @ weights, 0)
    expected = np.exp(relu) / np.exp(relu).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(model({"x": x})["probabilities"], expected, rtol=1e-4)


@pytest.mark.parametrize("folder", FOLDERS, ids=shown)
def test_report_and_baseline_are_read(folder):
    report = document.read_report(folder / "tiny.report.json")
    assert (report.pipeline, report.outcome, len(report.tasks)) == ("tiny", "finished", 2)
    times = baseline.read_baseline(folder / "tiny.baseline.json", "tiny")
    assert report.benchmark is not None
    assert len(times.rounds["autopipe"]) == len(report.benchmark.ours.latency.rounds)


@pytest.mark.parametrize("folder", FOLDERS, ids=shown)
def test_lock_package_and_report_of_one_build_do_not_differ(folder):
    lock, package, report = (
        read_build(folder / f"tiny{end}") for end in (".lock", ".tar", ".report.json")
    )
    for other in (package, report):
        found = compare_builds(lock, other)
        assert found.same
        assert {"configuration", "versions", "artifacts"} <= found.facts.keys()
        assert len(found.tasks or ()) == 2
