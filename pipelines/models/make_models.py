"""Make the small models beside this file: python pipelines/models/make_models.py [FOLDER].

The same bytes on every machine: weights are small integers, scaled.
"""

# ruff: noqa: INP001  a script

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_OPSET = 17
_IR = 8
_WIDTH, _HEADS, _HIDDEN, _LAYERS = 128, 4, 256, 2
_UNITS, _TAGS = 48, 12
_STATE, _FRAME, _BANDS = 32, 160, 24
_SIDE, _CLASSES = 64, 4


class Graph:
    """Collects the nodes and weights of a graph."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self._random = np.random.Generator(np.random.PCG64(seed))

    def numbers(self, shape: tuple[int, ...]) -> Any:  # noqa: ANN401  an array
        """Return integers of -127 to 127."""
        return self._random.integers(-127, 128, shape).astype(np.float32)

    def kernel(self, name: str, fan_in: int, fan_out: int) -> str:
        """Add a matrix of variance 1 / fan_in: integers of -127 to 127, scaled."""
        numbers = self._random.integers(-127, 128, (fan_in, fan_out)).astype(np.float32)
        return self.weight(name, numbers * np.float32(np.sqrt(3 / fan_in) / 127))

    def vector(self, name: str, size: int, around: float = 0) -> str:
        """Add a vector of numbers within 0.1 of a number."""
        numbers = self._random.integers(-127, 128, size).astype(np.float32)
        return self.weight(name, numbers * np.float32(0.1 / 127) + np.float32(around))

    def weight(self, name: str, values: Any) -> str:  # noqa: ANN401  array or number
        """Add a tensor."""
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def op(self, kind: str, name: str, *inputs: str, **attributes: Any) -> str:  # noqa: ANN401
        """Add a node and return the name of its output."""
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def dense(self, name: str, data: str, fan_in: int, fan_out: int) -> str:
        """Add a matrix product and a bias."""
        kernel = self.kernel(f"{name}.weight", fan_in, fan_out)
        product = self.op("MatMul", f"{name}.matmul", data, kernel)
        return self.op("Add", name, product, self.vector(f"{name}.bias", fan_out))

    def model(self, name: str, data: list[int | str], result: list[int | str]) -> bytes:
        """Return the model's file, its data called `input` and its result `output`."""
        return self.file(name, {"input": data}, {"output": result})

    def file(
        self,
        name: str,
        inputs: Mapping[str, Sequence[int | str]],
        outputs: Mapping[str, Sequence[int | str]],
        read: int = TensorProto.FLOAT,
    ) -> bytes:
        """Return the file of a model with these inputs of type `read`, and outputs of float32."""
        given, made = _values(inputs, read), _values(outputs)
        graph = helper.make_graph(self.nodes, name, given, made, self.weights)
        opsets = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="autopipe")
        model.ir_version = _IR
        onnx.checker.check_model(model, full_check=True)
        file: bytes = model.SerializeToString(deterministic=True)
        return file


def _values(shapes: Mapping[str, Sequence[int | str]], dtype: int = TensorProto.FLOAT) -> list[Any]:
    return [
        helper.make_tensor_value_info(name, dtype, list(shape)) for name, shape in shapes.items()
    ]


def mlp() -> bytes:
    """Return a perceptron of two hidden layers, classifying vectors of 128 into 10 classes."""
    graph = Graph(seed=1)
    hidden = "input"
    for index, (fan_in, fan_out) in enumerate([(128, 256), (256, 256)]):
        dense = graph.dense(f"hidden{index}", hidden, fan_in, fan_out)
        hidden = graph.op("Relu", f"relu{index}", dense)
    graph.op("Softmax", "output", graph.dense("logits", hidden, 256, 10), axis=-1)
    return graph.model("mlp", ["batch", 128], ["batch", 10])


def transformer() -> bytes:
    """Return a post-norm transformer encoder (Vaswani et al., 2017, arXiv:1706.03762) with GELU.

    GELU is spelled out with Erf, as exporters do below opset 20.
    """
    graph = Graph(seed=2)
    graph.weight("heads", np.array([0, 0, _HEADS, _WIDTH // _HEADS], np.int64))
    graph.weight("joined", np.array([0, 0, _WIDTH], np.int64))
    for name, value in {"root_two": 2**0.5, "one": 1, "half": 0.5}.items():
        graph.weight(name, np.float32(value))
    graph.weight("scale", np.float32((_WIDTH / _HEADS) ** -0.5))
    data = "input"
    for index in range(_LAYERS):
        data = _feed_forward(graph, f"layer{index}.ff", _attention(graph, f"layer{index}", data))
    graph.op("Identity", "output", data)
    shape: list[int | str] = ["batch", "sequence", _WIDTH]
    return graph.model("transformer", shape, shape)


def _attention(graph: Graph, name: str, data: str) -> str:
    heads = {}
    for part, order in {"query": (0, 2, 1, 3), "key": (0, 2, 3, 1), "value": (0, 2, 1, 3)}.items():
        dense = graph.dense(f"{name}.{part}", data, _WIDTH, _WIDTH)
        split = graph.op("Reshape", f"{name}.{part}.heads", dense, "heads")
        heads[part] = graph.op("Transpose", f"{name}.{part}.first", split, perm=order)
    scores = graph.op("MatMul", f"{name}.scores", heads["query"], heads["key"])
    scaled = graph.op("Mul", f"{name}.scaled", scores, "scale")
    shares = graph.op("Softmax", f"{name}.shares", scaled, axis=-1)
    mixed = graph.op("MatMul", f"{name}.mixed", shares, heads["value"])
    turned = graph.op("Transpose", f"{name}.turned", mixed, perm=(0, 2, 1, 3))
    joined = graph.op("Reshape", f"{name}.joined", turned, "joined")
    return _normed(graph, name, data, graph.dense(f"{name}.out", joined, _WIDTH, _WIDTH))


def _feed_forward(graph: Graph, name: str, data: str) -> str:
    hidden = graph.dense(f"{name}.hidden", data, _WIDTH, _HIDDEN)
    divided = graph.op("Div", f"{name}.divided", hidden, "root_two")
    above = graph.op("Add", f"{name}.above", graph.op("Erf", f"{name}.erf", divided), "one")
    weighed = graph.op("Mul", f"{name}.weighed", hidden, above)
    gelu = graph.op("Mul", f"{name}.gelu", weighed, "half")
    return _normed(graph, name, data, graph.dense(f"{name}.out", gelu, _HIDDEN, _WIDTH))


def _normed(graph: Graph, name: str, data: str, change: str) -> str:
    total = graph.op("Add", f"{name}.sum", data, change)
    gamma = graph.vector(f"{name}.norm.weight", _WIDTH, around=1)
    beta = graph.vector(f"{name}.norm.bias", _WIDTH)
    return graph.op("LayerNormalization", f"{name}.norm", total, gamma, beta, axis=-1)


def tagger() -> bytes:
    """Return a bidirectional LSTM (Graves and Schmidhuber, 2005) that gives each step one tag."""
    graph = Graph(seed=3)
    shape = (2, 4 * _UNITS, _UNITS)
    weights = [
        graph.weight(f"lstm.{name}", graph.numbers(shape) * np.float32(np.sqrt(3 / _UNITS) / 127))
        for name in ("input", "recurrent")
    ]
    bias = graph.weight("lstm.bias", graph.numbers((2, 8 * _UNITS)) * np.float32(0.1 / 127))
    states = graph.op(
        "LSTM", "lstm", "input", *weights, bias, hidden_size=_UNITS, direction="bidirectional"
    )
    turned = graph.op("Transpose", "turned", states, perm=(0, 2, 1, 3))
    graph.weight("joined", np.array([0, 0, 2 * _UNITS], np.int64))
    both = graph.op("Reshape", "both", turned, "joined")
    graph.op("Softmax", "output", graph.dense("tags", both, 2 * _UNITS, _TAGS), axis=-1)
    return graph.model("tagger", ["steps", "batch", _UNITS], ["steps", "batch", _TAGS])


def reader() -> bytes:
    """Return a GRU (Cho et al., 2014, arXiv:1406.1078) in a Loop that counts itself.

    Exporters of TensorFlow write recurrent layers like this.
    """
    graph, cell = Graph(seed=4), Graph(seed=5)
    for name, value in {"zero": 0, "one": 1}.items():
        graph.weight(name, np.int32(value))
    graph.weight("axis", np.array([0], np.int64))
    graph.weight("begin", np.zeros((1, _STATE), np.float32))
    graph.kernel("gates.weight", 2 * _STATE, 2 * _STATE)
    graph.vector("gates.bias", 2 * _STATE)
    graph.kernel("change.weight", 2 * _STATE, _STATE)
    graph.vector("change.bias", _STATE)
    graph.weight("whole", np.float32(1))
    steps = graph.op("Slice", "steps", graph.op("Shape", "sizes", "input"), "axis", "ends", "axis")
    graph.weight("ends", np.array([1], np.int64))
    length = graph.op("Cast", "length", graph.op("Squeeze", "first", steps, "axis"), to=6)
    graph.op("Less", "starts", "zero", length)
    cell.op("Gather", "now", "input", "count")
    both = cell.op("Concat", "both", "now", "state", axis=-1)
    gates = cell.op(
        "Add", "biased", cell.op("MatMul", "product", both, "gates.weight"), "gates.bias"
    )
    opened = cell.op("Sigmoid", "open", gates)
    cell.nodes.append(helper.make_node("Split", [opened], ["reset", "keep"], "split", axis=-1))
    kept = cell.op("Concat", "kept", "now", cell.op("Mul", "seen", "reset", "state"), axis=-1)
    change = cell.op("MatMul", "change", kept, "change.weight")
    new = cell.op("Tanh", "new", cell.op("Add", "raw", change, "change.bias"))
    fresh = cell.op("Mul", "fresh", cell.op("Sub", "share", "whole", "keep"), new)
    cell.op("Add", "next", cell.op("Mul", "old", "keep", "state"), fresh)
    cell.op("Identity", "row", "next")
    cell.op("Less", "goes", cell.op("Add", "counted", "count", "one"), "length")
    body = helper.make_graph(
        cell.nodes,
        "step",
        [
            helper.make_tensor_value_info("round", TensorProto.INT64, []),
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("count", TensorProto.INT32, []),
            *_values({"state": [1, _STATE]}),
        ],
        [
            helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
            helper.make_tensor_value_info("counted", TensorProto.INT32, []),
            *_values({"next": [1, _STATE], "row": [1, _STATE]}),
        ],
    )
    loop = helper.make_node(
        "Loop", ["", "starts", "zero", "begin"], ["rounds", "last", "states"], "loop", body=body
    )
    graph.nodes.append(loop)
    graph.op("Softmax", "output", graph.dense("tags", "states", _STATE, _TAGS), axis=-1)
    return graph.model("reader", ["steps", 1, _STATE], ["steps", 1, _TAGS])


def listener() -> bytes:
    """Return a detector of speech that hears a frame a call and hands its states on."""
    graph = Graph(seed=6)
    graph.weight("channel", np.array([1], np.int64))
    graph.op("Concat", "heard", "context", "frame", axis=-1)
    wave = graph.op("Unsqueeze", "wave", "heard", "channel")
    weight = graph.weight(
        "bands.weight", graph.numbers((_BANDS, 1, 64)) * np.float32(np.sqrt(3 / 64) / 127)
    )
    bands = graph.op("Conv", "bands", wave, weight, strides=[32])
    loud = graph.op("Relu", "loud", bands)
    graph.op("Transpose", "turned", loud, perm=(2, 0, 1))
    weights = [
        graph.weight(f"gru.{name}", graph.numbers(shape) * np.float32(np.sqrt(3 / _STATE) / 127))
        for name, shape in {
            "input": (1, 3 * _STATE, _BANDS),
            "recurrent": (1, 3 * _STATE, _STATE),
        }.items()
    ]
    bias = graph.weight("gru.bias", graph.numbers((1, 6 * _STATE)) * np.float32(0.1 / 127))
    graph.nodes.append(
        helper.make_node(
            "GRU",
            ["turned", *weights, bias, "", "state"],
            ["", "state_next"],
            "gru",
            hidden_size=_STATE,
            linear_before_reset=1,
        )
    )
    graph.weight("first", np.array([0], np.int64))
    flat = graph.op("Squeeze", "flat", "state_next", "first")
    graph.op("Sigmoid", "speech", graph.dense("score", flat, _STATE, 1))
    for name, value in {"from": _FRAME - 32, "to": _FRAME, "last": -1}.items():
        graph.weight(name, np.array([value], np.int64))
    graph.op("Slice", "context_next", "frame", "from", "to", "last")
    context, state = [1, 32], [1, 1, _STATE]
    return graph.file(
        "listener",
        {"frame": [1, _FRAME], "context": context, "state": state},
        {"speech": [1, 1], "context_next": context, "state_next": state},
    )


def detector() -> bytes:
    """Return a small one-stage detector (as Redmon et al., 2016), quantized as QDQ, per channel."""
    graph = Graph(seed=7)
    data, channels = _rounded(graph, "input", "input", 2 / 128, 128), 3
    for index, (wide, stride) in enumerate([(16, 2), (32, 2), (32, 1), (64, 2)]):
        data = _quantized(graph, f"conv{index}", data, (channels, wide, 3), stride)
        data = graph.op("Relu", f"relu{index}", data)
        data = _rounded(graph, f"rounded{index}", data, 4 / 255, 0)
        channels = wide
    head = _quantized(graph, "head", data, (channels, 5 + _CLASSES, 1), 1)
    found = graph.op("Sigmoid", "found", head)
    cells = (_SIDE // 8) ** 2
    graph.weight("flat", np.array([1, 5 + _CLASSES, cells], np.int64))
    flat = graph.op("Reshape", "cells", found, "flat")
    graph.op("Transpose", "output", flat, perm=(0, 2, 1))
    return graph.model("detector", [1, 3, _SIDE, _SIDE], [1, cells, 5 + _CLASSES])


def _rounded(graph: Graph, name: str, data: str, scale: float, zero: int) -> str:
    """Round to bytes and back."""
    steps = (graph.weight(f"{name}.scale", np.float32(scale)),
             graph.weight(f"{name}.zero", np.uint8(zero)))  # fmt: skip
    stored = graph.op("QuantizeLinear", f"{name}.bytes", data, *steps)
    return graph.op("DequantizeLinear", f"{name}.floats", stored, *steps)


def _quantized(graph: Graph, name: str, data: str, sizes: tuple[int, int, int], stride: int) -> str:
    """Add a convolution with weights of bytes and a scale for each of its channels."""
    few, wide, side = sizes
    numbers = graph.numbers((wide, few, side, side)).astype(np.int8)
    step = np.sqrt(3 / (few * side * side)) / 127
    scales = np.float32(step) * (np.float32(1) + np.arange(wide, dtype=np.float32) / np.float32(64))
    kernel = graph.op(
        "DequantizeLinear",
        f"{name}.kernel",
        graph.weight(f"{name}.weight", numbers),
        graph.weight(f"{name}.scales", scales),
        graph.weight(f"{name}.zeros", np.zeros(wide, np.int8)),
        axis=0,
    )
    bias = graph.vector(f"{name}.bias", wide)
    edge = side // 2
    return graph.op(
        "Conv", name, data, kernel, bias, strides=[stride] * 2, pads=[edge] * 4,
        kernel_shape=[side] * 2,
    )  # fmt: skip


def main(folder: Path) -> None:
    """Write the models into a folder."""
    for name, made in {
        "detector": detector(),
        "listener": listener(),
        "mlp": mlp(),
        "reader": reader(),
        "tagger": tagger(),
        "transformer": transformer(),
    }.items():
        (folder / f"{name}.onnx").write_bytes(made)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
