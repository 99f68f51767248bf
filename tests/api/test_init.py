import pytest

from autopipe.api.init import starter
from autopipe.config.load import load
from autopipe.config.model import Input, Weights
from autopipe.config.paths import model_path
from autopipe.errors import ModelError
from autopipe.stages.import_model import ImportStage
from tests.compiler.frontends.models import dense, model, node, save, tensor, value


def written(path, output):
    output.write_text(starter(path, output), encoding="utf-8")
    return load(output)


def test_a_file_that_runs(tmp_path):
    """Also one folder up, with a name and symbols that YAML and its comments must not trip over."""
    folder = tmp_path / "models"
    folder.mkdir()
    made = model(
        [node("Conv", ["a: #\"'\u2028{x}", "kernel"])],
        [value("a: #\"'\u2028{x}", ["n\n  evil: 1", 3, 8, 8])],
        [value("y", None)],
        [tensor("kernel", 4, 3, 3, 3, fill=0.02)],
    )
    path = save(made, folder, "my model, v1.onnx")
    output = tmp_path / "pipeline.yaml"
    pipeline = written(path, output)
    assert pipeline.name == "my-model-v1"
    assert pipeline.model.inputs == {"a: #\"'\u2028{x}": Input(shape=(1, 3, 8, 8), dtype="float32")}
    assert pipeline.model.weights == Weights()
    assert pipeline.layout == {"conv2d": ("NHWC", "HWIO")}
    assert "# a guess: the model leaves dimension 0 (n?  evil: 1) open" in output.read_text()
    assert model_path(pipeline.model, tmp_path).samefile(path)
    out = tmp_path / "out"
    assert ImportStage.of(pipeline, tmp_path).sources()["model"].samefile(path)
    assert not out.exists()


def test_nothing_that_is_not_needed(tmp_path):
    output = tmp_path / "pipeline.yaml"
    pipeline = written(save(dense(), tmp_path), output)
    assert pipeline.model.weights is None
    assert pipeline.layout is None
    assert "guess" not in output.read_text()


@pytest.mark.parametrize("rank", [3, 4, 5])
def test_a_layout_for_each_kind_of_convolution(tmp_path, rank):
    spatial = rank - 2
    made = model(
        [node("Conv", ["x", "kernel"])],
        [value("x", [1, 3, *[8] * spatial])],
        [value("y", None)],
        [tensor("kernel", 4, 3, *[3] * spatial)],
    )
    pipeline = written(save(made, tmp_path), tmp_path / "pipeline.yaml")
    assert list(pipeline.layout) == [f"conv{spatial}d"]


def test_a_guess_that_does_not_fit_the_model_is_written_all_the_same(tmp_path):
    """Only a height of 4 makes as many features as the weight has rows; who knows it writes it."""
    made = model(
        [node("Flatten", ["x"], "flat"), node("Gemm", ["flat", "weight"])],
        [value("x", ["batch", "height", 3])],
        [value("y", None)],
        [tensor("weight", 12, 5)],
    )
    output = tmp_path / "pipeline.yaml"
    pipeline = written(save(made, tmp_path), output)
    assert pipeline.model.inputs["x"].shape == (1, 1, 3)
    assert "leaves dimension 0 (batch), dimension 1 (height) open" in output.read_text()


def test_a_model_that_can_not_be_used_has_no_pipeline(tmp_path):
    made = dense()
    made.graph.node[0].domain = "com.evil"
    with pytest.raises(ModelError, match=r"model\.onnx: .*com\.evil"):
        starter(save(made, tmp_path), tmp_path / "pipeline.yaml")
