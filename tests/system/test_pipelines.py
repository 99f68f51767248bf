# mypy: disable-error-code="call-overload"

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from autopipe import open_package
from autopipe.api import flow
from autopipe.config.load import load
from autopipe.stages.import_model import ImportStage
from tests.compiler.frontends.models import compiled, run
from tests.support.table import each_row

FOLDER = Path(__file__).parents[2] / "pipelines"
FILES = sorted(FOLDER.glob("*.yaml"))
OPEN = ("encoder", "finder", "recognizer", "sequences")
"""Models with open sizes."""
CLOSED = [file for file in FILES if file.stem not in OPEN]
USE_CASES = sorted((FOLDER / "use-cases").glob("*.yaml"))
TASKS = sorted((FOLDER / "tasks").glob("*.yaml"))


def imported(file):
    from autopipe.compiler.frontends.loaders import LOADERS

    stage = ImportStage.of(load(file), FOLDER)
    return LOADERS[stage.format](
        stage.path, stage.inputs, stage.weights, stage.sha256, stage.dimensions
    )


def test_there_are_some():
    assert len(FILES) >= 8


@each_row("file", [*FILES, *USE_CASES, *TASKS])
def test_a_pipeline_is_valid_and_says_what_it_proves(file):
    pipeline = load(file)
    assert pipeline.name == file.stem
    lines = file.read_text(encoding="utf-8").splitlines()
    up = "../" * len(file.relative_to(FOLDER).parts)
    assert lines[0] == f"# yaml-language-server: $schema={up}schemas/pipeline.schema.json"
    assert any(line.startswith("# Proves ") for line in lines)


@pytest.mark.parametrize("name", ["detector", "listener", "mlp", "reader", "tagger", "transformer"])
def test_own_models_compute_what_the_reference_does(tmp_path, name):
    model = imported(FOLDER / f"{name}.yaml")
    random = np.random.default_rng(0)
    feeds = {each.name: drawn(each, random) for each in model.inputs}
    model.write_reference(tmp_path)
    reference = run(tmp_path / "reference.onnx", feeds)
    assert any(output.std() > 0.1 * abs(output).mean() for output in reference)
    for ours, expected in zip(compiled(model, feeds), reference, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5 * abs(expected).max())


def drawn(port, random):
    """Return normal numbers, or zeros and ones where the input takes whole numbers."""
    if np.dtype(port.dtype).kind == "i":
        return random.integers(0, 2, port.shape).astype(port.dtype)
    return random.standard_normal(port.shape, "f")


@pytest.mark.slow
@pytest.mark.parametrize("name", OPEN)
def test_own_open_models_become_packages_for_every_size(tmp_path, name):
    flow.run(
        FOLDER / f"{name}.yaml",
        overrides=["tuning=null", "verify=null", "benchmark=null"],
        store=tmp_path / "store",
        output=tmp_path / "dist",
    )
    model, package = load(FOLDER / f"{name}.yaml").model, tmp_path / "dist" / f"{name}.tar"
    opened, random = open_package(package), np.random.default_rng(0)
    for sizes in sizes_of(model.dimensions, 18, random):
        feeds = {"input": random.standard_normal(model.inputs["input"].at(sizes).shape, "f")}
        (expected,) = run(FOLDER / model.path, feeds)
        np.testing.assert_allclose(
            opened(feeds)["output"], expected, rtol=1e-4, atol=1e-5 * abs(expected).max()
        )


def sizes_of(dimensions, count, random):
    """Yield the ends that are small, the likely sizes, and some between."""
    yield {name: each.first for name, each in dimensions.items()}
    yield {name: each.likely[0] for name, each in dimensions.items()}
    for _ in range(count):
        steps = {name: random.integers(0, 9) for name in dimensions}
        yield {
            name: min(each.first + int(steps[name]) * each.multiple, each.last)
            for name, each in dimensions.items()
        }


@pytest.mark.slow
@pytest.mark.parametrize("file", CLOSED, ids=lambda file: file.stem)
def test_every_model_computes_what_the_reference_does(tmp_path, file):
    test_own_models_compute_what_the_reference_does(tmp_path, file.stem)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["detector", "listener", "reader"])
def test_own_models_become_packages(tmp_path, name):
    flow.run(
        FOLDER / f"{name}.yaml",
        overrides=["tuning=null", "benchmark=null"],
        store=tmp_path / "store",
        output=tmp_path / "dist",
    )
    assert (tmp_path / "dist" / f"{name}.tar").exists()


def test_own_models_are_what_the_script_makes(tmp_path):
    for name in ("make_models.py", "make_open_models.py", "make_mask_rcnn.py", "make_networks.py"):
        script = FOLDER / "models" / name
        subprocess.run([sys.executable, script, tmp_path], check=True)
    made = sorted(tmp_path.glob("*.onnx"))
    assert [file.name for file in made] == sorted(
        file.name for file in (FOLDER / "models").glob("*.onnx")
    )
    for file in made:
        same = file.read_bytes() == (FOLDER / "models" / file.name).read_bytes()
        assert same, f"{file.name}: run the scripts in {script.parent.relative_to(FOLDER.parent)}"
    assert sum(file.stat().st_size for file in made) < 3_000_000
