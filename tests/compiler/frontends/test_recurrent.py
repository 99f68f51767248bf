import re
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.node import gru, lstm, rnn
from onnx.reference import ReferenceEvaluator

from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.errors import ModelError
from tests.compiler.frontends.models import model, run, save, value
from tests.compiler.frontends.recurrent import GATES, Layers, compiled
from tests.support.table import each_row

FUNCTIONS = [
    "Affine", "Elu", "HardSigmoid", "LeakyRelu", "Relu", "ScaledTanh", "Sigmoid", "Softplus",
    "Softsign", "Tanh", "ThresholdedRelu",
]  # fmt: skip


def agree(made, feeds, expected, tmp_path, tolerance=2e-6):
    """Import and compile a model, and compare its outputs."""
    imported = load_model(save(made, tmp_path), {}, None, None)
    found = compiled(imported, feeds)
    names = [output.name for output in made.graph.output]
    for name, ours, right in zip(names, found, expected, strict=True):
        assert ours.dtype == right.dtype
        np.testing.assert_allclose(ours, right, tolerance, tolerance, err_msg=name)


def test_layers_of_all_forms_compute_what_onnxruntime_does(tmp_path):
    layers = Layers()
    for kind, direction in zip(GATES, ("bidirectional", "reverse", "forward"), strict=True):
        layers.add(kind, direction=direction, lengths=[2, 5, 0], given="B initial_h")
    for kind, direction in zip(GATES, ("forward", "bidirectional", "reverse"), strict=True):
        layers.add(kind, direction=direction, given="initial_h initial_c", clip=0.3)
    layers.add("LSTM", (1, 1, 3, 5), outputs=["", "Y_h"], direction="reverse")
    layers.add("RNN", (4, 2, 3, 7), outputs=["Y"], stored=False)
    layers.add(
        "GRU", given="B initial_h", direction="bidirectional", linear_before_reset=1, clip=0.4
    )
    layers.add("GRU", given="", linear_before_reset=1, lengths=[4, 5, 1])
    layers.add("LSTM", given="B P initial_c", direction="bidirectional", clip=0.5)
    layers.add("LSTM", given="B P initial_h", input_forget=1, lengths=[1, 5, 3])
    agree(layers.model(), layers.feeds, run(layers.model(), layers.feeds), tmp_path)


def test_activations_compute_what_onnxruntime_does(tmp_path):
    layers = Layers()
    alpha, beta = {"activation_alpha": [0.3, 0.4]}, {"activation_beta": [0.2, 0.1]}
    for name in FUNCTIONS:  # three steps: some grow without bounds
        layers.add("RNN", (3, 2, 2, 4), activations=[name], **alpha, **beta)
    for name in ("Affine", "Elu", "HardSigmoid", "LeakyRelu", "ScaledTanh", "ThresholdedRelu"):
        layers.add("RNN", (3, 2, 2, 4), activations=[name])
    layers.add("GRU", (3, 2, 2, 4), activations=["hardsigmoid", "affine"], **alpha, **beta)
    layers.add(
        "LSTM", direction="bidirectional", activation_alpha=[0.3, 0.05], activation_beta=[0.2],
        activations=["Sigmoid", "Tanh", "Relu", "HardSigmoid", "Softsign", "LeakyRelu"],
    )  # fmt: skip
    agree(layers.model(), layers.feeds, run(layers.model(), layers.feeds), tmp_path)


def test_layouts_and_dtypes_that_onnxruntime_does_not_take_compute_what_onnx_says(tmp_path):
    layers = Layers()
    layers.add("LSTM", given="B initial_h initial_c", direction="bidirectional", layout=1)
    layers.add("GRU", given="B initial_h", layout=1)
    layers.add("RNN", given="B", layout=1, direction="reverse")
    for kind in GATES:
        layers.add(kind, given="B initial_h", dtype="float64")
    made = layers.model()
    right = ReferenceEvaluator(made).run(None, layers.feeds)
    agree(made, layers.feeds, right, tmp_path)


def test_halves_are_computed_in_single_precision(tmp_path):
    layers, wide = Layers(), Layers()
    for made, dtype in ((layers, "float16"), (wide, "float32")):
        made.add("LSTM", dtype=dtype, given="B initial_h", stored=False)
    feeds = {name: values.astype("float32") for name, values in layers.feeds.items()}
    right = [output.astype("float16") for output in run(wide.model(), feeds)]
    agree(layers.model(), layers.feeds, right, tmp_path, tolerance=1e-3)


def test_operands_are_cast_in_the_order_of_the_node(tmp_path):
    layers = Layers()
    layers.add("LSTM", dtype="float16", given="B initial_h initial_c", stored=False)
    module = load_model(save(layers.model(), tmp_path), {}, None, None).module
    casts = re.findall(r"R\.astype\(layer0_(\w+),", module.script())
    assert casts == ["X", "W", "R", "B", "initial_h", "initial_c"]


def test_the_cases_of_the_onnx_package_hold(tmp_path, monkeypatch):
    nodes: list[Any] = []
    feeds: dict[str, Any] = {}
    right: dict[str, Any] = {}

    def take(node, inputs, outputs, name):
        """Put a case into a model of all of them."""
        made = onnx.NodeProto()
        made.CopyFrom(node)
        for names in (made.input, made.output):
            names[:] = [port and f"{name}.{port}" for port in names]
        feeds.update(zip(filter(None, made.input), inputs, strict=True))
        if f"{name}.sequence_lens" in feeds:  # which are floats there
            feeds[f"{name}.sequence_lens"] = feeds[f"{name}.sequence_lens"].astype("int32")
        right.update(zip(filter(None, made.output), outputs, strict=True))
        nodes.append(made)

    for module, kind in ((lstm, "LSTM"), (gru, "GRU"), (rnn, "RNN")):
        monkeypatch.setattr(module, "expect", take)
        for name, export in vars(getattr(module, kind)).items():
            if name.startswith("export"):
                export.__func__()
    assert len(nodes) > 10
    inputs, outputs = (
        [
            value(name, values.shape, helper.np_dtype_to_tensor_dtype(values.dtype))
            for name, values in named.items()
        ]
        for named in (feeds, right)
    )
    agree(model(nodes, inputs, outputs), feeds, right.values(), tmp_path, tolerance=1e-5)


def quantized(ways=1, *, lengths=None, per_column=False, kind="int8", **attributes):
    """A layer as onnxruntime's `quantize_dynamic` writes it, and what it is given."""
    random, (steps, batch, size, hidden) = np.random.default_rng(ways), (4, 3, 5, 6)
    scales = (ways, 4 * hidden) if per_column else (ways,)
    info = np.iinfo(kind)
    stored = {
        "W": random.integers(info.min, info.max, (ways, size, 4 * hidden), kind),
        "R": random.integers(info.min, info.max, (ways, hidden, 4 * hidden), kind),
        "B": random.uniform(-1, 1, (ways, 8 * hidden)).astype("float32"),
    }
    for name in "WR":
        stored[f"{name}_scale"] = random.uniform(0.002, 0.01, scales).astype("float32")
        zero = 0 if per_column or kind == "int8" else 128
        stored[f"{name}_zero"] = np.full(scales, zero, kind)
    feeds = {"X": random.standard_normal((steps, batch, size)).astype("float32")}
    inputs = [value("X", [steps, batch, size])]
    if lengths:
        feeds["lengths"] = np.array(lengths, "int32")
        inputs.append(value("lengths", [batch], TensorProto.INT32))
    read = ["X", "W", "R", "B", "lengths" if lengths else "", "", "", ""]
    read += ["W_scale", "W_zero", "R_scale", "R_zero"]
    names = ["Y", "Y_h", "Y_c"]
    made = helper.make_node(
        "DynamicQuantizeLSTM", read, names, domain="com.microsoft", hidden_size=hidden, **attributes
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    kept = [numpy_helper.from_array(values, name) for name, values in stored.items()]
    outputs = [value(name, None) for name in names]
    return model([made], inputs, outputs, kept, opsets=opsets), feeds


@each_row(
    "made, feeds",
    [
        quantized(per_column=True),
        quantized(2, direction="bidirectional", lengths=[2, 4, 1]),
        quantized(kind="uint8", direction="reverse"),
    ],
)
def test_layers_of_bytes_compute_what_onnxruntime_does(made, feeds, tmp_path):
    agree(made, feeds, run(made, feeds, "ENABLE"), tmp_path, tolerance=1e-5)


def test_lengths_that_are_all_the_steps_are_none(tmp_path):
    layers = Layers()
    layers.add("GRU", given="B length", lengths=[5, 5, 5])
    imported = load_model(save(layers.model(), tmp_path), {}, None, None)
    assert '\\"lengths\\":false' in imported.module.script()
    agree(layers.model(), layers.feeds, run(layers.model(), layers.feeds), tmp_path)


def test_a_state_of_zero_is_multiplied_only_with_what_may_be_infinite(tmp_path):
    layers = Layers()
    layers.add("LSTM", (1, 2, 3, 4))
    layers.add("GRU", (2, 2, 3, 4))
    layers.add("RNN", (2, 2, 3, 4))
    layers.add("RNN", given="B initial_h")
    layers.add("RNN", stored=False)
    made = layers.model()
    agree(made, layers.feeds, run(made, layers.feeds), tmp_path)
    infinite = numpy_helper.from_array(np.full((1, 4, 4), np.inf, "float32"), "layer2.R")
    next(t for t in made.graph.initializer if t.name == "layer2.R").CopyFrom(infinite)
    imported = load_model(save(made, tmp_path), {}, None, None)
    text = imported.module.script()
    assert [text.count(f'\\"resting\\":{said}') for said in ("true", "false")] == [2, 3]


def test_lengths_out_of_range_end_in_range(tmp_path):
    layers = Layers()
    layers.add("LSTM", direction="bidirectional", lengths=[5, 2, 0])
    right = run(layers.model(), layers.feeds)
    feeds = layers.feeds | {"layer0.sequence_lens": np.array([2**31 - 1, 2, -(2**31)], "int32")}
    agree(layers.model(), feeds, right, tmp_path)


def changed(change):
    layers = Layers()
    layers.add("LSTM", given="B length", lengths=[1, 2, 3])
    made = layers.model()
    change(made.graph)
    return made


def attribute(name, given, **more):
    def change(graph):
        new = {name: given, **more}
        kept = [old for old in graph.node[0].attribute if old.name not in new]
        del graph.node[0].attribute[:]
        graph.node[0].attribute.extend([*kept, *map(helper.make_attribute, new, new.values())])

    return changed(change)


def reshaped(name, *shape):
    def change(graph):
        for tensor in graph.initializer:
            if tensor.name == f"layer0.{name}":
                tensor.CopyFrom(numpy_helper.from_array(np.ones(shape, "float32"), tensor.name))

    return changed(change)


def lengths(*given):
    def change(graph):
        for tensor in graph.initializer:
            if tensor.name == "layer0.sequence_lens":
                tensor.CopyFrom(numpy_helper.from_array(np.array(given, "int32"), tensor.name))

    return changed(change)


def without(place, graph):
    del graph.node[0].input[place:]


@each_row(
    "made, said",
    [
        (attribute("hidden_size", 7), "hidden_size is 7, and input R is for 6"),
        (attribute("hidden_size", -(2**63)), "hidden_size"),
        (attribute("direction", "sideways"), "direction 'sideways' is none of forward"),
        (attribute("activations", ["Tanh"]), "activations has 1 names, and 3 are needed"),
        (attribute("activations", ["Tanh", "Tanh", "Gelu"]), "activation 'Gelu' is unknown"),
        (attribute("clip", -1.0), "clip is -1"),
        (attribute("clip", float("nan")), "clip is nan"),
        (
            attribute("activation_alpha", [float("inf")], activations=["Elu", "Tanh", "Tanh"]),
            "activation_alpha holds inf",
        ),
        (reshaped("W", 1, 24, 5), "input W has shape [1, 24, 5], and [1, 24, 4] fits"),
        (reshaped("R", 1, 23, 6), "input R has shape [1, 23, 6]"),
        (reshaped("R", 24, 6), "input R has shape [24, 6], not 3 dimensions"),
        (reshaped("B", 1, 24), "input B has shape [1, 24]"),
        (lengths(1, 2, 6), "sequence_lens is [1, 2, 6], and there are 5 steps"),
        (lengths(1, -2, 3), "sequence_lens is [1, -2, 3]"),
        (lengths(1, 2), "input sequence_lens has shape [2], and [3] fits"),
        (changed(lambda graph: without(2, graph)), "input"),
    ],
)
def test_what_does_not_fit_ends_in_one_line(made, said, tmp_path):
    with pytest.raises(ModelError) as caught:
        load_model(save(made, tmp_path), {}, None, None)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_input_left_out_by_an_empty_name_is_told(tmp_path):
    made = changed(lambda graph: graph.node[0].input.__setitem__(2, ""))
    with pytest.raises(ModelError, match="is not given its input 'R'"):
        load_model(save(made, tmp_path), {}, None, None)
