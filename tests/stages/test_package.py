import json
import tarfile
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from autopipe.artifacts.library import BuiltLibrary, Rejected
from autopipe.artifacts.tuning import ContenderResult, ListedFailure
from autopipe.config.pipeline import Pipeline
from autopipe.libraries import LIBRARIES
from autopipe.packaging import manifest
from autopipe.stages.package import PackageStage
from tests.artifacts.examples import checked_case, comparison, library_task, verification
from tests.support import small_build

STAGE = PackageStage(pipeline="small", configuration={"version": 1, "model": {"weights": None}})


@pytest.fixture
def report(tmp_path):
    folder = tmp_path / "report"
    folder.mkdir()
    cases = (checked_case("a", comparison()), checked_case("b", comparison()), checked_case("c"))
    verification(*cases).write(folder)
    return folder


def packed(ctx):
    STAGE.run(ctx)
    return ctx.out / "small.tar"


def read(path, name="manifest.json"):
    with tarfile.open(path, "r:") as tar:
        file = tar.extractfile(name)
        assert file is not None
        return json.load(file)


@pytest.mark.fault("E10")
def test_packing_twice_gives_the_same_bytes(context, tmp_path, library, report):
    ctx = context(verify=report)
    first = packed(ctx).read_bytes()
    moved = tmp_path / "moved"
    moved.mkdir()
    for file in sorted(library.iterdir(), reverse=True):
        (moved / file.name).write_bytes(file.read_bytes())
    assert packed(context(build=moved, verify=report)).read_bytes() == first
    assert list(ctx.work.iterdir()) == []


@pytest.mark.fault("E10")
def test_building_twice_gives_the_same_package(context, tmp_path):
    packages = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        small_build.save_library(folder)
        packages.append(packed(context(build=folder)).read_bytes())
    assert packages[0] == packages[1]


def rebuilt(library, folder, **changes):
    """Copy a LIBRARY artifact of which another thing is said."""
    folder.mkdir()
    for file in library.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    BuiltLibrary.read(folder).model_copy(update=changes).write(folder)
    return folder


@pytest.mark.fault("E10")
def test_how_checking_and_building_went_is_left_out(context, tmp_path, library):
    """Else a package made from a lock would not be the one that was made when tuning."""
    row: dict[str, Any] = {
        "name": "f", "workload": "0" * 16, "calls": 2, "engine": "static",
        "implementation": "direct",
    }  # fmt: skip
    who = {"engine": "ansor", "implementation": "direct"}
    ran: dict[str, Any] = {
        "checked": True, "unchecked": None, "reason": "its record is wrong", "rule": 0,
        "rejected": (Rejected(**who, reason="off by 1", folder="/x"),),
        "contenders": (ContenderResult(**who, trials=1, failed=0, seconds=None, stopped=None),),
        "failures": (
            ListedFailure(**who, doing="planning", how="it hung", retried=True, folder="failed/1"),
        ),
    }  # fmt: skip
    tasks = library_task(**row, **ran, seconds=1e-3), library_task(**row, checked=False)
    packages = [
        packed(context(build=rebuilt(library, tmp_path / name, tasks=(task,)))).read_bytes()
        for name, task in zip(("first", "second"), tasks, strict=True)
    ]
    assert packages[0] == packages[1]
    assert needs(read(tmp_path / "out" / "small.tar"))["tasks"] == [row]


def test_nothing_of_this_machine_is_inside(context, tmp_path, library):
    content = packed(context()).read_bytes()
    folders = (tmp_path, library, Path.home(), Path(tempfile.gettempdir()), Path.cwd())
    for folder in folders:
        assert f"{folder}/".encode() not in content


def needs(statement):
    return statement["predicate"]["buildDefinition"]["internalParameters"]


def test_the_manifest_says_what_is_needed(context, library, report):
    found = needs(read(packed(context(verify=report))))
    built = json.loads((library / "library.json").read_text())
    assert found["signature"]["inputs"] == built["inputs"]
    assert found["signature"]["outputs"] == built["outputs"]
    assert found["signature"]["threads"] == 2
    assert found["runtime"] == manifest.read_installed_runtime()
    assert found["processor"]["mcpu"] == "x86-64-v2"
    assert "sse4.2" in found["processor"]["features"]
    assert "avx2" not in found["processor"]["features"]
    (task,), (told,) = built["tasks"], found["tasks"]
    assert told == {name: task[name] for name in told}
    assert told.keys() == {"name", "workload", "calls", "engine", "implementation"}
    assert found["verification"] == "onnxruntime 1.31.1, 2 cases"


def test_the_manifest_is_a_statement_of_provenance(context):
    package = packed(context())
    found = read(package)
    assert found["_type"] == "https://in-toto.io/Statement/v1"
    assert found["predicateType"] == "https://slsa.dev/provenance/v1"
    with tarfile.open(package, "r:") as tar:
        others = {name: tar.extractfile(name) for name in tar.getnames() if name != "manifest.json"}
        contents = {name: file.read() for name, file in others.items() if file}
    assert found["subject"] == [
        {
            "name": name,
            "digest": {"sha256": sha256(content).hexdigest()},
            "annotations": {"size": len(content)},
        }
        for name, content in sorted(contents.items())
    ]
    definition = found["predicate"]["buildDefinition"]
    assert definition["buildType"] == "urn:autopipe:package:2"
    assert definition["externalParameters"] == {
        "pipeline": "small", "configuration": {"version": 1, "model": {"weights": None}},
    }  # fmt: skip
    source, *packages = definition["resolvedDependencies"]
    assert source == {
        "name": "model", "digest": {"sha256": "ab" * 32}, "annotations": {"synthesized": True},
    }  # fmt: skip
    assert [each["uri"] for each in packages] == [
        "pkg:pypi/apache-tvm@0.27", "pkg:pypi/apache-tvm-ffi@0.1", "pkg:pypi/numpy@2.1.0",
        "pkg:pypi/onnx@1.21.0", "pkg:pypi/schedules-of-ours@2.0%2Bcpu",
    ]  # fmt: skip
    assert found["predicate"]["runDetails"]["builder"] == {
        "id": "urn:autopipe:run",
        "version": {"autopipe": "0.1.0", "linker": "g++ (x) 12", "llvm": "22"},
    }


@pytest.mark.parametrize("called", [{}, {"openblas": "0.3.34"}])
def test_the_component_list_is_cyclonedx(context, tmp_path, library, called):
    build = rebuilt(library, tmp_path / "build", libraries=called)
    for library_file in (file for each in LIBRARIES for file in each.files):
        (build / library_file.name).write_text(library_file.name)
    package = packed(context(build=build))
    text = json.dumps(read(package, "components.cdx.json"))
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    found = {each["name"]: each for each in json.loads(text)["components"]}
    files = {"lib.so", "weights.safetensors"}
    brought = {"libscipy_openblas.so", "libscipy_openblas.LICENSE"} if called else set()
    assert {name for name, each in found.items() if "hashes" in each} == {"model", *files, *brought}
    assert found["model"]["type"] == "machine-learning-model"
    assert found["onnx"]["purl"] == "pkg:pypi/onnx@1.21.0"
    assert found["llvm"]["version"] == "22"
    if called:
        (licence,) = found["scipy-openblas32"]["licenses"]
        assert licence == {"license": {"name": "libscipy_openblas.LICENSE"}}


def test_a_component_list_has_another_number_only_if_it_is_another(context, tmp_path, library):
    def serial(name, **changes):
        package = packed(context(build=rebuilt(library, tmp_path / name, **changes)))
        return read(package, "components.cdx.json")["serialNumber"]

    versions = {"tvm": "0.27", "tvm_ffi": "0.1", "llvm": "23", "linker": None}
    first = serial("first")
    assert first.startswith("urn:uuid:")
    assert serial("second", threads=7) == first
    assert serial("third", versions=versions) != first


def test_an_unchecked_build_says_so(context):
    assert needs(read(packed(context())))["verification"] is None


def test_the_stage_follows_the_pipeline():
    document = {"version": 1, "name": "m", "model": {"path": "m.onnx"}}
    stage = PackageStage.of(Pipeline.model_validate(document), Path())
    assert stage is not None
    assert stage.pipeline == "m"
    other = PackageStage.of(
        Pipeline.model_validate(document | {"target": {"mcpu": "x86-64-v3"}}), Path()
    )
    assert other is not None
    assert other.configuration != stage.configuration
    for searched in ({"tuning": {"budget": {"trials": 7}}}, {"tasks": {"allow_empty": True}}):
        same = PackageStage.of(Pipeline.model_validate(document | searched), Path())
        assert same == stage, "the same schedules are the same package"
    moved = PackageStage.of(
        Pipeline.model_validate(document | {"model": {"path": "/n.onnx"}}), Path()
    )
    assert moved == stage
    assert PackageStage.of(Pipeline.model_validate(document | {"package": None}), Path()) is None
