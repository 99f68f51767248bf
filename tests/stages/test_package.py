import json
import tarfile
import tempfile
from pathlib import Path

import pytest

from autopipe.config import Pipeline
from autopipe.packaging import manifest
from autopipe.stages.package import Package
from tests import small_build

STAGE = Package(pipeline="small", digest="cd" * 32)


@pytest.fixture
def report(tmp_path):
    folder = tmp_path / "report"
    folder.mkdir()
    cases = [{"skipped": False}, {"skipped": False}, {"skipped": True}]
    document = {"reference": "onnxruntime", "reference_version": "1.31.1", "cases": cases}
    (folder / "verify.json").write_text(json.dumps(document))
    return folder


def packed(ctx):
    STAGE.run(ctx)
    return ctx.out / "small.tar"


def read(path):
    with tarfile.open(path, "r:") as tar:
        file = tar.extractfile("manifest.json")
        assert file is not None
        return json.load(file)


def test_packing_twice_gives_the_same_bytes(context, tmp_path, library, report):
    ctx = context(verify=report)
    first = packed(ctx).read_bytes()
    moved = tmp_path / "moved"
    moved.mkdir()
    for file in sorted(library.iterdir(), reverse=True):
        (moved / file.name).write_bytes(file.read_bytes())
    assert packed(context(build=moved, verify=report)).read_bytes() == first
    assert list(ctx.work.iterdir()) == []


def test_building_twice_gives_the_same_package(context, tmp_path):
    packages = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        small_build.save_library(folder)
        packages.append(packed(context(build=folder)).read_bytes())
    assert packages[0] == packages[1]


def test_where_things_were_put_aside_is_left_out(context, tmp_path, library):
    moved = tmp_path / "moved"
    moved.mkdir()
    for file in library.iterdir():
        (moved / file.name).write_bytes(file.read_bytes())
    document = json.loads((moved / "library.json").read_text())
    failure = {"doing": "planning", "folder": "/home/somebody/failed/1"}
    document["tasks"] = [{"name": "f", "failures": [failure], "rejected": [{"folder": "/x"}]}]
    (moved / "library.json").write_text(json.dumps(document))
    (task,) = read(packed(context(build=moved)))["tasks"]
    assert (task["failures"], task["rejected"]) == ([{"doing": "planning"}], [{}])


def test_nothing_of_this_machine_is_inside(context, tmp_path, library):
    content = packed(context()).read_bytes()
    folders = (tmp_path, library, Path.home(), Path(tempfile.gettempdir()), Path.cwd())
    for folder in folders:
        assert f"{folder}/".encode() not in content


def test_the_manifest_says_what_it_is(context, library, report):
    found = read(packed(context(verify=report)))
    built = json.loads((library / "library.json").read_text())
    assert found["name"] == "small"
    assert found["source"] == {"model": "ab" * 32, "synthesized": True, "pipeline": "cd" * 32}
    assert found["signature"]["inputs"] == built["inputs"]
    assert found["signature"]["outputs"] == built["outputs"]
    assert found["signature"]["threads"] == 2
    assert found["runtime"] == manifest.installed_runtime()
    assert found["processor"]["mcpu"] == "x86-64-v2"
    assert "sse4.2" in found["processor"]["features"]
    assert "avx2" not in found["processor"]["features"]
    assert found["tasks"] == built["tasks"]
    assert found["verification"] == "onnxruntime 1.31.1, 2 cases"
    size = (library / "lib.so").stat().st_size
    assert found["files"]["lib.so"]["size"] == size


def test_an_unchecked_build_says_so(context):
    assert read(packed(context()))["verification"] is None


def test_the_stage_follows_the_pipeline():
    document = {"version": 1, "name": "m", "model": {"path": "m.onnx"}}
    stage = Package.of(Pipeline.model_validate(document), Path())
    assert stage is not None
    assert stage.pipeline == "m"
    other = Package.of(Pipeline.model_validate(document | {"tuning": None}), Path())
    assert other is not None
    assert other.digest != stage.digest
    assert Package.of(Pipeline.model_validate(document | {"package": None}), Path()) is None
