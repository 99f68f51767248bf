"""The cases of a package that cannot run here are answered by a reference."""

from hashlib import sha256

import numpy as np
import pytest

from autopipe.environment.facet import Facet
from autopipe.errors import ConfigError, PackageError, SetupError
from autopipe.export import bench
from autopipe.export.folder import export_package
from autopipe.packaging.contents import opened
from autopipe.stages.package import PackageStage
from tests.artifacts.examples import imported
from tests.export.test_export import run
from tests.support.small_build import INPUTS, OUTPUTS, TARGET, expected, save_model, weights

CONFIGURATION = {
    "version": 1,
    "model": {"inputs": {"data/x": {"shape": [4, 8]}, "ids": {"shape": [4]}}},
    "numerics": {"fast_algorithms": True},
}
FOREIGN = {"mcpu": "cortex-a72", "mtriple": "aarch64-linux-gnu"}


@pytest.fixture
def source(tmp_path):
    """The small model as an artifact of *import*, and as the file that was imported."""
    folder = tmp_path / "imported"
    folder.mkdir()
    save_model(folder)
    digest = sha256((folder / "reference.onnx").read_bytes()).hexdigest()
    imported(
        name="small", inputs=INPUTS, outputs=OUTPUTS, weights=tuple(weights()),
        source_sha256=digest,
    ).write(folder)  # fmt: skip
    return folder


@pytest.fixture
def pack(context, source):
    def make(configuration=CONFIGURATION, **target):
        ctx = context(**{"import": source})
        ctx.facts[Facet.TARGET] = {**TARGET, **target}
        PackageStage(pipeline="small", configuration=configuration).run(ctx)
        return ctx.out / "small.tar"

    return make


def test_expected_outputs_are_those_of_the_reference(pack, source, tmp_path):
    made = export_package(pack(), tmp_path / "to", model=str(source / "reference.onnx"))
    tested = run(made, "--self-test")
    assert (tested.returncode, tested.stdout.splitlines()[-1]) == (0, "2 of 2 cases right")
    assert (made / "cases" / "ORIGIN").read_text().startswith("onnxruntime 1.")
    x, ids = (np.load(made / "cases" / f"0.input.{place}.npy") for place in range(2))
    scores, best = (np.load(made / "cases" / f"0.output.{place}.npy") for place in range(2))
    known = expected(x, ids)
    np.testing.assert_allclose(scores, known[0], rtol=1e-5)
    np.testing.assert_array_equal(best, known[1])
    np.save(made / "cases" / "0.output.0.npy", scores * 1.01)
    assert run(made, "--self-test").returncode == 1


def test_another_model_is_refused(pack, source, tmp_path):
    other = tmp_path / "other.onnx"
    data = (source / "reference.onnx").read_bytes()
    other.write_bytes(data.replace(b"small", b"large"))
    for model, said in ((other, "not the model of the package"), ("nowhere.onnx", "--model: ")):
        with pytest.raises(ConfigError, match=said):
            export_package(pack(), tmp_path / "to", model=str(model))
    assert not (tmp_path / "to").exists()


def test_a_package_with_rounded_products_has_no_reference(pack, source, tmp_path):
    package = pack({**CONFIGURATION, "numerics": {"compute": "bfloat16"}})
    with pytest.raises(ConfigError, match="rounds products to bfloat16"):
        export_package(package, tmp_path / "to", model=str(source / "reference.onnx"))


def test_a_manifest_without_its_model_is_refused(pack, source, tmp_path):
    for model in ({}, {"model": 3}, {"model": {"inputs": {"x": {"shape": [0]}}}}):
        with pytest.raises(PackageError, match="does not describe the model"):
            export_package(pack({"version": 1, **model}), tmp_path / "to",
                           model=str(source / "reference.onnx"))  # fmt: skip


def test_a_package_for_another_machine_says_what_it_takes(pack, source, tmp_path):
    package = pack(**FOREIGN)
    with opened(package) as contents:
        assert contents.manifest.needs.processor.machine == "aarch64"
    with pytest.raises(SetupError, match=r"built for aarch64.* pip download .*_aarch64 -d wheels"):
        export_package(package, tmp_path / "to", model=str(source / "reference.onnx"))
    with pytest.raises(ConfigError, match=r"built for aarch64.* name its model with --model"):
        export_package(package, tmp_path / "to", wheels=[tmp_path])
    with pytest.raises(PackageError, match="built for aarch64, this machine is x86_64"):
        bench.bench_package(package, [])
