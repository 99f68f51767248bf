"""Random small ONNX graphs, and numbers to run them with."""

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

from autopipe.compiler.frontends.onnx.rewriting.constants import evaluate_node
from tests.compiler.frontends import random_layers, random_steps

OPSETS = (11, 12, 13, 17, 18, 21)
_TYPES = (np.float32, np.float32, np.float16, np.float64, np.int32, np.int64)
_EDGES = (-0.0, 0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 70000.0, 3e38, 1e-42)
_MOST = 4096
"""Elements of a value; larger ones are not kept."""


@dataclass
class RandomGraph:
    """A graph that grows by nodes whose values are known."""

    seed: int
    """Every second one makes a graph of float64 with sums, the others one of edge cases."""
    opset: int = 0
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    stored: list[onnx.TensorProto] = field(default_factory=list)
    values: dict[str, np.ndarray] = field(default_factory=dict)
    """Every value by name, as the reference of onnx computes it."""
    inputs: list[str] = field(default_factory=list)

    def __post_init__(self):
        self.random = np.random.default_rng(self.seed)
        self.opset = int(self.pick(OPSETS))
        self.is_rounded = self.seed % 2 == 1
        for number in range(1 + int(self.random.integers(2))):
            shape = self.pick(([2, 3], [1, 4, 4], [2, 4, 5, 5], [1, 4, 4, 4], [4], [2, 1, 3], []))
            self.inputs.append(f"x{number}")
            self.values[f"x{number}"] = self.numbers(
                shape, np.float64 if self.is_rounded else self.pick(_TYPES)
            )
        for _ in range(int(self.random.integers(3, 14))):
            self.grow()

    def pick(self, choices):
        return choices[int(self.random.integers(len(choices)))]

    def chance(self, share=0.5):
        return bool(self.random.random() < share)

    def numbers(self, shape, dtype):
        values = self.random.standard_normal(shape) * 3
        if not self.is_rounded and np.dtype(dtype).kind == "f":
            places = self.random.random(shape) < 0.2
            values = np.where(places, self.random.choice(_EDGES, shape), values)
        with np.errstate(all="ignore"):
            return np.asarray(values).astype(dtype)

    def constant(self, values):
        name = f"c{len(self.stored)}"
        if self.chance(0.15):
            tensor = numpy_helper.from_array(np.asarray(values), name)
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        self.stored.append(numpy_helper.from_array(np.asarray(values), name))
        self.values[name] = np.asarray(values)
        return name

    def any_value(self, kinds="fiub", rank=None):
        """Return the name of a value, mostly of a late one."""
        names = [
            name for name, value in self.values.items()
            if value.dtype.kind in kinds and (rank is None or value.ndim == rank)
            and not (name.startswith("c") and self.chance(0.9))
        ]  # fmt: skip
        if not names:
            return None
        late = names[-3:] if self.chance(0.7) else names
        return self.pick(late)

    def add(self, kind, inputs, outputs=1, **attributes):
        """Add a node if the reference takes it; return the names of its results."""
        made = [f"v{len(self.nodes)}_{index}" for index in range(outputs)]
        node = helper.make_node(kind, inputs, made, name=f"n{len(self.nodes)}", **attributes)
        known = {name: self.values[name] for name in inputs if name}
        values = evaluate_node(node, known, self.opset)
        if values is None or any(value.size > _MOST for value in values.values()):
            return None
        self.nodes.append(node)
        self.values.update(values)
        return made

    def grow(self):
        """Add one node, or a few that belong together."""
        steps = random_layers.STEPS if self.is_rounded else random_steps.EDGY
        self.pick(random_steps.EXACT + steps)(self)

    def to_model(self):
        """Return the model: its last value is an output, and up to two others."""
        made = [name for node in self.nodes for name in node.output if node.op_type != "Constant"]
        assert made, "a graph of constants alone"
        names = list(
            dict.fromkeys([made[-1], *(self.pick(made) for _ in range(2) if self.chance())])
        )
        constants = {node.output[0] for node in self.nodes if node.op_type == "Constant"}
        graph = helper.make_graph(
            self.nodes,
            "random",
            [_typed(name, self.values[name]) for name in self.inputs],
            [_typed(name, self.values[name]) for name in names],
            [tensor for tensor in self.stored if tensor.name not in constants],
        )
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _typed(name, value):
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
    )
