"""One pipeline file for several processors: a real model, its locks, and what they build again."""

import shutil

import pytest
from typer.testing import CliRunner

from autopipe.api import flow
from autopipe.api.builds import check_builds, find_builds
from autopipe.api.run_builds import run_builds
from autopipe.cli.app import build_app
from autopipe.lock import file as files
from autopipe.lock.mode import Mode
from autopipe.packaging.combine import combine_packages
from autopipe.packaging.examine import examine_package
from autopipe.pipeline.events import BuildsFinished, Event, StageCached, StageFinished
from tests.support import shared
from tests.system.checkout import edit
from tests.system.conftest import CHECKED_IN, ROOT

PIPELINE = """
version: 1
name: mlp
model:
  path: models/mlp.onnx
  inputs:
    input: {shape: [8, 128], dtype: float32}
tuning: null
benchmark: null
builds:
  v2: {target: {mcpu: x86-64-v2}}
  rounded: {target: {mcpu: x86-64-v2}, numerics: {compute: bfloat16}}
  v3:
    target: {mcpu: x86-64-v3}
    tuning: {budget: {trials: 4, time: null}, batch: 4}
"""
"""The second build is for instructions that its processor does not have."""


def run(folder, mode=Mode.AUTO):
    """Run all builds; return the exit code, what was told, and what failed."""
    told: list[Event] = []
    failed: dict[str | None, Exception] = {}
    found = find_builds([folder / "mlp.yaml"])
    check_builds(found, folder / "dist")
    code = run_builds(
        found,
        lambda build, emit: flow.run(
            build.file, build=build.name, store=folder / "store", output=folder / "dist",
            mode=mode, emit=emit,
        ),
        told.append,
        lambda build, error: failed.update({build.name: error}),
    )  # fmt: skip
    return code, told, failed


def built(folder):
    return {path.name: path.read_bytes() for path in (folder / "dist").iterdir()}


def _several(folder):
    (folder / "models").mkdir()
    shutil.copy(ROOT / "pipelines/models/mlp.onnx", folder / "models")
    (folder / "mlp.yaml").write_text(PIPELINE)
    code, told, failed = run(folder)
    (folder / "said").write_text("\n".join(each.model_dump_json() for each in told))
    assert code == 3
    assert list(failed) == ["rounded"]
    assert "avx512bf16" in str(failed["rounded"])
    end = told[-1]
    assert isinstance(end, BuildsFinished)
    assert [(each.build, each.result) for each in end.builds] == [
        ("mlp-v2", "done"), ("mlp-rounded", "failed"), ("mlp-v3", "done"),
    ]  # fmt: skip
    imports = [
        (each.build, type(each))
        for each in told
        if isinstance(each, StageFinished | StageCached) and each.stage == "import"
    ]
    assert imports == [
        ("mlp-v2", StageFinished), ("mlp-rounded", StageCached), ("mlp-v3", StageCached),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """A checked-out pipeline with the locks and packages of its builds; read only."""
    return shared.once(tmp_path_factory, "several", _several)


@pytest.mark.parametrize("build", ["v2", "v3"])
def test_each_build_of_a_combined_package_is_that_of_its_lock(several, tmp_path, build):
    parts = [several / "dist" / f"mlp-{name}.tar" for name in ("v2", "v3")]
    combine_packages(parts, combined := tmp_path / "mlp.tar")
    lock = tmp_path / "mlp.lock"
    words = ["verify", str(combined), "--lock", str(lock)]
    for suffix in ("lock", "records.jsonl"):
        if (source := several / f"mlp.{build}.{suffix}").exists():
            shutil.copy(source, lock.with_suffix(f".{suffix}"))
    done = CliRunner().invoke(build_app(), words)
    assert done.exit_code == 0, done.exception
    assert f"the build for x86-64-{build} is equal to {lock}" in done.output
    document = files.read_lock(lock)
    examined = examine_package(combined)
    changed = {**document.artifacts, "weights.safetensors": "0" * 64}
    (line,) = examined.differences(changed)
    assert line.startswith("weights.safetensors: locked 000000000000, here ")
    (line,) = examined.differences({**document.artifacts, "lib.so": "1" * 64})
    assert line.startswith("lib.so: locked 111111111111, here ")
    assert line.count(" for x86-64-v") == 2
    assert examined.differences({"lib.so": document.artifacts["lib.so"]})[0].startswith(
        "weights.safetensors: locked nothing"
    )


@pytest.fixture
def fresh(several, tmp_path):
    """A clone: what is checked in, and nothing else."""
    return shutil.copytree(several, tmp_path / "clone", ignore=CHECKED_IN)


def test_each_build_has_a_package_and_a_lock_for_its_processor(several):
    assert set(built(several)) == {"mlp-v2.tar", "mlp-v3.tar"}
    locks = {name: files.read_lock(several / f"mlp.{name}.lock") for name in ("v2", "v3")}
    assert {name: lock.target["mcpu"] for name, lock in locks.items()} == {
        "v2": "x86-64-v2", "v3": "x86-64-v3",
    }  # fmt: skip
    assert (locks["v2"].records, locks["v3"].records is None) == (None, False)
    assert (several / "mlp.v3.records.jsonl").exists()
    assert locks["v2"].artifacts["lib.so"] != locks["v3"].artifacts["lib.so"]
    assert not (several / "mlp.rounded.lock").exists()
    assert not (several / "mlp.lock").exists()


def test_their_locks_give_the_same_packages_in_a_fresh_clone(several, fresh):
    code, told, failed = run(fresh, Mode.FROZEN)
    assert code == 6
    assert list(failed) == ["rounded"]
    assert "mlp.rounded.lock: is not there" in str(failed["rounded"])
    assert built(fresh) == built(several)
    end = told[-1]
    assert [each.exit_code for each in end.builds] == [0, 6, 0]


def test_a_lock_that_is_not_current_stops_its_own_build_alone(several, fresh):
    edit(fresh, "mcpu: x86-64-v3", "mcpu: haswell")
    _, _, failed = run(fresh, Mode.FROZEN)
    assert list(failed) == ["rounded", "v3"]
    assert "target.mcpu: the lock has x86-64-v3, the pipeline file haswell" in str(failed["v3"])
    assert built(fresh) == {"mlp-v2.tar": built(several)["mlp-v2.tar"]}
