"""Make the small models beside this file: python pipelines/models/make_models.py [FOLDER].

The same bytes on every machine: weights are small integers, scaled.
"""

# ruff: noqa: INP001  a script

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_OPSET = 17
_IR = 8
_WIDTH, _HEADS, _HIDDEN, _LAYERS = 128, 4, 256, 2
_UNITS, _TAGS = 48, 12


class _Graph:
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
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, data)],
            [helper.make_tensor_value_info("output", TensorProto.FLOAT, result)],
            self.weights,
        )
        opsets = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="autopipe")
        model.ir_version = _IR
        onnx.checker.check_model(model, full_check=True)
        file: bytes = model.SerializeToString(deterministic=True)
        return file


def mlp() -> bytes:
    """Return a perceptron of two hidden layers, classifying vectors of 128 into 10 classes."""
    graph = _Graph(seed=1)
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
    graph = _Graph(seed=2)
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


def _attention(graph: _Graph, name: str, data: str) -> str:
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


def _feed_forward(graph: _Graph, name: str, data: str) -> str:
    hidden = graph.dense(f"{name}.hidden", data, _WIDTH, _HIDDEN)
    divided = graph.op("Div", f"{name}.divided", hidden, "root_two")
    above = graph.op("Add", f"{name}.above", graph.op("Erf", f"{name}.erf", divided), "one")
    weighed = graph.op("Mul", f"{name}.weighed", hidden, above)
    gelu = graph.op("Mul", f"{name}.gelu", weighed, "half")
    return _normed(graph, name, data, graph.dense(f"{name}.out", gelu, _HIDDEN, _WIDTH))


def _normed(graph: _Graph, name: str, data: str, change: str) -> str:
    total = graph.op("Add", f"{name}.sum", data, change)
    gamma = graph.vector(f"{name}.norm.weight", _WIDTH, around=1)
    beta = graph.vector(f"{name}.norm.bias", _WIDTH)
    return graph.op("LayerNormalization", f"{name}.norm", total, gamma, beta, axis=-1)


def tagger() -> bytes:
    """Return a bidirectional LSTM (Graves and Schmidhuber, 2005) that gives each step one tag."""
    graph = _Graph(seed=3)
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


def main(folder: Path) -> None:
    """Write the models into a folder."""
    for name, made in {
        "mlp": mlp(),
        "tagger": tagger(),
        "transformer": transformer(),
    }.items():
        (folder / f"{name}.onnx").write_bytes(made)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
