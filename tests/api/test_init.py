import numpy as np
import pytest
from onnx import numpy_helper

from autopipe.api.init import draft_pipeline, write_pipeline_file
from autopipe.config.dimension import Dimension
from autopipe.config.load import load
from autopipe.config.model import Input, Weights
from autopipe.config.paths import find_model_path
from autopipe.errors import ConfigError, ModelError
from autopipe.stages.import_model import ImportStage
from tests.compiler.frontends.models import dense, ints, model, node, save, tensor, value
from tests.compiler.frontends.recurrent import Layers
from tests.support.table import each_row


def written(path, output, *shapes):
    write_pipeline_file(str(path), output, shapes=shapes)
    return load(output)


def draft(path, *shapes):
    """Return the sizes of the inputs of a model, and the text of its pipeline file."""
    inputs, _, text = draft_pipeline(path, "model.onnx", shapes, name="model", dynamic_sizes=False)
    return inputs, text


def images(*sizes):
    """A convolution on images of these sizes."""
    return model(
        [node("Conv", ["x", "kernel"])],
        [value("x", sizes)],
        [value("y", None)],
        [tensor("kernel", 4, 3, 3, 3)],
    )


def test_a_file_that_runs(tmp_path):
    """Also one folder up, with a name and symbols that YAML and its comments must not trip over."""
    folder = tmp_path / "models"
    folder.mkdir()
    made = model(
        [node("Conv", ["a: #\"'\u2028{x}", "kernel"])],
        [value("a: #\"'\u2028{x}", ["batch\n  evil: 1", 3, 8, 8])],
        [value("y", None)],
        [tensor("kernel", 4, 3, 3, 3, fill=0.02)],
    )
    path = save(made, folder, "my model, v1.onnx")
    output = tmp_path / "my pipeline, v1.yaml"
    pipeline = written(path, output)
    assert pipeline.name == "my-pipeline-v1"
    assert pipeline.model.inputs == {"a: #\"'\u2028{x}": Input(shape=(1, 3, 8, 8), dtype="float32")}
    assert pipeline.model.weights == Weights()
    assert pipeline.layout == {"conv2d": ("NHWC", "HWIO")}
    assert "# assumed: the batch, dimension 0 (batch?  evil: 1), is 1" in output.read_text()
    assert find_model_path(pipeline.model, tmp_path).samefile(path)
    out = tmp_path / "out"
    assert ImportStage.of(pipeline, tmp_path).sources()["model"].samefile(path)
    assert not out.exists()


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("other", "other"),
        ("r\u00e9sum\u00e9", "resume"),
        ("e\u0301t\u00e9", "ete"),
        ("\u6a21\u578b", "model"),
    ],
)
def test_a_pipeline_is_called_after_its_file(tmp_path, file, name):
    assert written(save(dense(), tmp_path), tmp_path / f"{file}.yaml").name == name


def test_nothing_that_is_not_needed(tmp_path):
    output = tmp_path / "pipeline.yaml"
    pipeline = written(save(dense(), tmp_path), output)
    assert pipeline.model.weights is None
    assert pipeline.layout is None
    assert "assumed" not in output.read_text()


@pytest.mark.parametrize(
    ("rank", "operator"), [(3, "Conv"), (4, "Conv"), (5, "Conv"), (4, "ConvTranspose")]
)
def test_a_layout_for_each_kind_of_convolution(tmp_path, rank, operator):
    spatial = rank - 2
    made = model(
        [node(operator, ["x", "kernel"])],
        [value("x", [1, 3, *[8] * spatial])],
        [value("y", None)],
        [tensor("kernel", 3, 3, *[3] * spatial)],
    )
    pipeline = written(save(made, tmp_path), tmp_path / "pipeline.yaml")
    assert list(pipeline.layout) == [f"conv{spatial}d"]


@pytest.mark.fault("B10")
@each_row(
    "sizes, shape",
    [
        (("batch", 3, "height", "width"), '[1, 3, "?", "?"]'),
        (("N", 3, 8, 8), "[1, 3, 8, 8]"),
        ((-1, 3, "?", "?"), '[1, 3, "?", "?"]'),
        (("p2o.DynamicDimension.0", 3, "?", "p2o.DynamicDimension.1"), '[1, 3, "?", "?"]'),
        (("unk__749", 3, 8, None), '[1, 3, 8, "?"]'),
        (("tiles", 3, 8, 8), '["?", 3, 8, 8]'),
        ((8, 3, 8, "time"), '[8, 3, 8, "?"]'),
    ],
)
def test_a_size_that_nobody_gave_is_open(tmp_path, sizes, shape):
    """The batch may be assumed; a file with an open size is refused wherever it is read."""
    _, text = draft(save(images(*sizes), tmp_path))
    assert f'"x": {{shape: {shape}, dtype: float32}}' in text
    output = tmp_path / "x.yaml"
    output.write_text(text)
    if "?" not in shape:
        load(output)
        return
    with pytest.raises(ConfigError, match=r"^\S+:\d+:\d+: model\.inputs\.x\.shape: leaves dimen"):
        load(output)
    given = shape.replace('"?"', "16").replace(" ", "")
    assert load(output, [f"model.inputs.x.shape={given}"]).model.inputs["x"].shape


def test_a_shape_that_is_given_is_written(tmp_path):
    path = save(images("batch", 3, "height", "width"), tmp_path)
    first = written(path, tmp_path / "a.yaml", "x=2,3,16,24")
    assert first.model.inputs["x"].shape == (2, 3, 16, 24)
    assert "assumed" not in (tmp_path / "a.yaml").read_text()
    again = written(path, tmp_path / "b.yaml", "[2, 3, 16, 24]")
    assert again.model == first.model


def test_what_is_given_for_a_name_holds_wherever_it_stands(tmp_path):
    made = model(
        [node("Add", ["tokens", "mask"])],
        [value("tokens", ["n", "length"]), value("mask", [None, "length"])],
        [value("y", None)],
    )
    pipeline = written(save(made, tmp_path), tmp_path / "x.yaml", "tokens=1,7")
    assert pipeline.model.inputs["mask"].shape == (1, 7)


@each_row(
    "shape, says",
    [
        ("z=1,3,8,8", "--shape z=1,3,8,8: the model has no input of this name; it has `x`"),
        ("xx=1,3,8,8", "did you mean `x`?"),
        ("x=1,3,8", "--shape x: 3 sizes are given, the model has 4"),
        ("x=1,4,8,8", "--shape x: dimension 1 is 4, and 3 in the model or in another --shape"),
        ("x=1,3,8,9", "dimension 3 (side) is 9, and 8 in the model or in another --shape"),
        ("x=1,3,0,8", "write the sizes as whole numbers: NAME=1,3,640,640"),
        ("x=1,3,-1,8", "write the sizes as whole numbers"),
        ("x=1x3x8x8", "write the sizes as whole numbers"),
        ("x=", "write the sizes as whole numbers"),
        ("x=1,3,99999999999,8", "write the sizes as whole numbers"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(tmp_path, shape, says):
    path = save(images("batch", 3, "side", "side"), tmp_path)
    with pytest.raises(ConfigError) as refused:
        write_pipeline_file(str(path), tmp_path / "x.yaml", shapes=[shape])
    assert says in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    assert not (tmp_path / "x.yaml").exists()


def test_a_shape_is_given_once_and_to_somebody(tmp_path):
    made = model(
        [node("Add", ["a", "b"])], [value("a", ["h"]), value("b", ["h"])], [value("y", [])]
    )
    path = str(save(made, tmp_path))
    with pytest.raises(ConfigError, match="is given twice"):
        write_pipeline_file(path, tmp_path / "x.yaml", shapes=["a=1", "a=1"])
    with pytest.raises(ConfigError, match="write NAME=4; the inputs are `a`, `b`"):
        write_pipeline_file(path, tmp_path / "x.yaml", shapes=["4"])


def test_sizes_that_do_not_fit_each_other_are_told_at_once(tmp_path):
    """Only a height of 4 makes as many features as the weight has rows."""
    made = model(
        [node("Flatten", ["x"], "flat"), node("Gemm", ["flat", "weight"])],
        [value("x", ["batch", "height", 3])],
        [value("y", None)],
        [tensor("weight", 12, 5)],
    )
    path = save(made, tmp_path)
    with pytest.raises(ModelError, match="node name: Gemm of y"):
        draft(path, "x=1,5,3")
    known, text = draft(path)
    assert known["x"].open == {1: "height"}
    assert '[1, "?", 3]' in text
    draft(path, "x=1,4,3")


def test_a_batch_of_1_that_does_not_fit_is_said_to_be_assumed(tmp_path):
    made = model(
        [node("Add", ["x", "rows"], "sum"), node("MatMul", ["sum", "weight"])],
        [value("x", ["n", 3])],
        [value("y", None)],
        [tensor("rows", 1, 4), tensor("weight", 4, 5)],
    )
    with pytest.raises(ModelError, match="a batch of 1 is assumed, --shape gives another size"):
        draft(save(made, tmp_path))


def test_an_input_of_unknown_rank_needs_a_shape(tmp_path):
    made = dense()
    made.graph.input[0].type.tensor_type.ClearField("shape")
    path = save(made, tmp_path)
    with pytest.raises(ConfigError, match=r"input 'x' has no shape in the model.*--shape x="):
        draft(path)
    assert "shape: [2, 3]" in draft(path, "x=2,3")[1]


def test_a_model_that_can_not_be_used_has_no_pipeline(tmp_path):
    made = dense()
    made.graph.node[0].domain = "com.evil"
    with pytest.raises(ModelError, match=r"model\.onnx: .*com\.evil"):
        draft(save(made, tmp_path))


def test_the_file_is_called_after_the_model_and_never_overwritten_unasked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(dense(), tmp_path, "my model.onnx")
    assert str(write_pipeline_file("my model.onnx").path) == "my-model.yaml"
    (tmp_path / "my-model.yaml").write_text("mine")
    with pytest.raises(ConfigError, match=r"my-model\.yaml: is there already; say --overwrite"):
        write_pipeline_file("my model.onnx")
    assert (tmp_path / "my-model.yaml").read_text() == "mine"
    write_pipeline_file("my model.onnx", overwrite=True)
    assert load(tmp_path / "my-model.yaml").name == "my-model"


def test_a_model_in_a_package_keeps_its_way_there(tmp_path):
    found = write_pipeline_file(
        "pkg:onnx/backend/test/data/light/light_squeezenet.onnx", tmp_path / "x.yaml"
    ).path.read_text()
    assert 'path: "pkg:onnx/backend/test/data/light/light_squeezenet.onnx"' in found


def test_recurrent_layers_count_for_the_budget(tmp_path):
    layers = Layers()
    layers.add("LSTM")
    layers.add("LSTM")
    layers.add("GRU")
    written(save(layers.model(), tmp_path), tmp_path / "x.yaml")
    assert "different layers: 2, with" in (tmp_path / "x.yaml").read_text()


def test_the_budget_grows_with_the_layers_that_differ(tmp_path):
    """Two of the three products are the same."""
    weights = [tensor("a", 4, 4), tensor("b", 4, 4), tensor("c", 4, 8)]
    nodes = [node("MatMul", ["x", "a"], "p"), node("MatMul", ["p", "b"], "q")]
    nodes.append(node("MatMul", ["q", "c"]))
    made = model(nodes, [value("x", [2, 4])], [value("y", None)], weights)
    pipeline = written(save(made, tmp_path), tmp_path / "x.yaml")
    assert (pipeline.tuning.budget.trials, pipeline.tuning.budget.time) == (64, 60)
    assert "different layers: 2, with 32 trials each, at" in (tmp_path / "x.yaml").read_text()


def opened(made, folder, *shapes):
    output = folder / "open.yaml"
    write_pipeline_file(
        str(save(made, folder)), output, shapes=shapes, dynamic_sizes=True, overwrite=True
    )
    return load(output).model


def halved(*sizes):
    """Two convolutions that halve an image each, one of them scaled up again."""
    stride = {"strides": [2, 2], "pads": [1, 1, 1, 1]}
    scale = numpy_helper.from_array(np.array([1, 1, 2, 2], "float32"), "scale")
    nodes = [
        node("Conv", ["x", "kernel"], "a", **stride),
        node("Conv", ["a", "second"], "b", **stride),
        node("Resize", ["b", "", "scale"], "c", mode="nearest"),
        node("Add", ["a", "c"]),
    ]
    kernels = [tensor("kernel", 4, 3, 3, 3), tensor("second", 4, 4, 3, 3), scale]
    return model(nodes, [value("x", sizes)], [value("y", None)], kernels)


def test_dynamic_sizes_are_proposed_with_what_the_graph_says_of_them(tmp_path):
    found = opened(halved("N", 3, "height", "width"), tmp_path)
    assert found.inputs["x"].shape == ("N", 3, "height", "width")
    assert found.dimensions["N"] == Dimension(max=4, likely=(1,))
    image = Dimension(min=4, max=1280, multiple=4, likely=(640,))
    assert found.dimensions["height"] == found.dimensions["width"] == image
    assert "# strides in the model: 4" in (tmp_path / "open.yaml").read_text()


def test_a_table_of_positions_bounds_a_length(tmp_path):
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Gather", ["shape", "one"], "length"),
        node("Slice", ["positions", "zero", "length", "one"], "part"),
        node("Add", ["x", "part"]),
    ]
    stored = [tensor("positions", 1, 77, 4), ints("one", 1), ints("zero", 0)]
    made = model(nodes, [value("x", ["batch", "length", 4])], [value("y", None)], stored)
    found = opened(made, tmp_path)
    assert found.inputs["x"].shape == ("batch", "length", 4)
    assert found.dimensions["length"] == Dimension(max=77, likely=(77,))


def test_a_signal_has_room_for_its_windows(tmp_path):
    """A window of 400 samples, every 160 of them, with a border that is reflected."""
    pads = ints("pads", 0, 0, 120, 0, 0, 120)
    nodes = [
        node("Pad", ["x", "pads"], "padded", mode="reflect"),
        node("Conv", ["padded", "kernel"], strides=[160]),
    ]
    made = model(
        nodes,
        [value("x", ["batch", 1, "samples"])],
        [value("y", None)],
        [pads, tensor("kernel", 4, 1, 400)],
    )
    found = opened(made, tmp_path).dimensions
    assert found["samples"] == Dimension(min=160, max=81920, likely=(20480,))
    assert found["batch"] == Dimension(max=16, likely=(1,))
    assert "of fewer the model leaves nothing" in (tmp_path / "open.yaml").read_text()


def test_only_sizes_that_a_runtime_takes_are_proposed(tmp_path):
    """A reader of lines that are 32 to 63 high, of any width: shapes alone say nothing of it."""
    stride = {"strides": [2, 1], "pads": [1, 1, 1, 1]}
    nodes = [node("Conv", ["x", "kernel"], "a0", **stride)]
    nodes += [node("MaxPool", [f"a{n}"], f"a{n + 1}", kernel_shape=[2, 1], strides=[2, 1])
              for n in range(4)]  # fmt: skip
    nodes.append(node("Squeeze", ["a4", "rows"]))
    stored = [tensor("kernel", 4, 3, 3, 3), ints("rows", 2)]
    made = model(nodes, [value("x", [1, 3, "high", "wide"])], [value("y", None)], stored)
    found = opened(made, tmp_path)
    assert found.inputs["x"].shape == (1, 3, 32, "wide")  # of multiples of 32 only that one
    assert found.dimensions == {"wide": Dimension(max=1280, likely=(640,))}
    assert "# high is 32 here: at 64, " in (tmp_path / "open.yaml").read_text()


def test_a_dimension_that_is_closed_is_told_with_the_reason(tmp_path):
    inputs = [value("x", ["rows", "length"]), value("w", [4, "length"])]
    made = model([node("MatMul", ["x", "w"])], inputs, [value("y", None)], [])
    starter = write_pipeline_file(
        str(save(made, tmp_path)), tmp_path / "x.yaml", dynamic_sizes=True
    )
    assert starter.inputs["x"].shape == (None, 4)
    assert starter.closed.keys() == {"length"}
    assert starter.closed["length"].startswith("length is 4 here: at 5, ")
    assert f"# {starter.closed['length']}" in (tmp_path / "x.yaml").read_text()


def test_a_length_that_the_model_calls_a_sum_is_one(tmp_path):
    nodes = [node("Concat", ["keys", "x"], "all", axis=1), node("Add", ["all", "mask"])]
    shapes = {"keys": ["b", "past", 4], "x": ["b", "new", 4], "mask": ["b", "past + new", 1]}
    inputs = [value(name, shape) for name, shape in shapes.items()]
    found = opened(model(nodes, inputs, [value("y", None)], []), tmp_path)
    assert found.inputs["mask"].shape == ("b", "past + new", 1)
    assert found.dimensions.keys() == {"b", "past", "new"}


@each_row(
    "sizes, shapes, written",
    [
        (("batch", 3, "height", "width"), ["x=2,3,16,24"], (2, 3, 16, 24)),
        (("batch", 3, "height", "width"), ["x=1,3,48,?"], (1, 3, 48, "width")),
        ((None, 3, None, None), ["x=n,3,8,wide"], ("n", 3, 8, "wide")),
        (("batch", 3, 8, 8), [], ("batch", 3, 8, 8)),
        ((None, 3, "unk__7", "unk__7"), [], ("x_0", 3, "x_2", "x_2")),
        (("a b", 3, "a-b", "2x"), [], ("a_b", 3, "a_b_", "_2x")),
        ((1, 3, 8, 8), [], (1, 3, 8, 8)),
        (("\u2028", 3, "a: #\n'", "_"), [], ("size", 3, "a", "size_")),
    ],
)
def test_dynamic_sizes_have_names_that_a_pipeline_file_takes(
    tmp_path, monkeypatch, sizes, shapes, written
):
    monkeypatch.setattr("autopipe.api.tried_sizes.find_spec", lambda _: None)  # names, not sizes
    found = opened(images(*sizes), tmp_path, *shapes)
    assert found.inputs["x"].shape == written
    assert found.dimensions.keys() == {size for size in written if isinstance(size, str)}
