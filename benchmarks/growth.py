"""How cost grows with the size of a model: `python benchmarks/growth.py`, `--nodes 100 1000`.

Generated ONNX models of four shapes, each in several numbers of nodes, are taken through the stages
up to *tasks*, untuned and in an empty store; those of at most `--build` nodes are built, too:

    residual       blocks of convolution, ReLU, convolution, sum and ReLU: 3 tasks
    transformer    blocks of dense layers around a GELU, a residual sum, LayerNormalization: 4 tasks
    elementwise    one chain of activations and arithmetic, which fusion cuts into pieces
    reused         the same, of which each value is read twice, as in x * sigmoid(x)
    distinct       matrix products of different sizes with a ReLU each: half as many tasks as nodes

Printed are seconds on the clock and of all processors by stage, start of its process included, the
peak memory of the largest process, and the exponent of the processor time against the next smaller
model of the shape: 1 is a straight line, 2 a parabola. "to tasks" is one command that runs all
stages up to *tasks*, as users run it.
"""

import argparse
import math
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from build_time import STAGES, measure_stages, measure_until
from onnx import TensorProto, helper, numpy_helper
from turns import Cost, add_against, head_table, list_checkouts

HEADER: Final = (
    "model",
    "nodes",
    "checkout",
    "stage",
    "wall, s",
    "CPU, s",
    "peak, MiB",
    "exponent",
)
NODES: Final = (100, 1000, 5000, 10000)
IMAGE: Final = (1, 16, 8, 8)
ROWS: Final = (32, 64)
HIDDEN: Final = 128
PIPELINE: Final = """version: 1
name: {name}
model: {{path: {name}.onnx}}
layout: {{conv2d: [NHWC, HWIO]}}
"""


class Chain:
    """The nodes and weights of a model whose nodes follow each other."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.input, self.output = shape, shape
        self._random = np.random.default_rng(0)

    def add_weight(self, *shape: int) -> str:
        """Add a weight that keeps the variance of what it is multiplied with."""
        scale = math.prod(shape[1:]) ** -0.5 if len(shape) > 2 else shape[0] ** -0.5  # noqa: PLR2004
        values = self._random.normal(0, scale, shape).astype(np.float32)
        name = f"weight{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def add_number(self, value: float) -> str:
        """Add a constant of one element."""
        name = f"weight{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(value, np.float32), name))
        return name

    def add_node(self, op: str, *inputs: str, **attributes: Any) -> str:  # noqa: ANN401
        """Add a node, and return the name of its result."""
        name = f"value{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def write(self, path: Path, result: str) -> None:
        """Write the model, whose result is `result`."""
        graph = helper.make_graph(
            self.nodes, path.stem,
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, self.input)],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, self.output)],
            self.weights,
        )  # fmt: skip
        opsets = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def write_residual(path: Path, nodes: int) -> None:
    """Write residual blocks of two convolutions with biases."""
    chain, channels = Chain(IMAGE), IMAGE[1]

    def convolve(data: str) -> str:
        kernel = chain.add_weight(channels, channels, 3, 3)
        return chain.add_node("Conv", data, kernel, chain.add_weight(channels), pads=[1] * 4)

    data = "input"
    while len(chain.nodes) < nodes:
        inner = convolve(chain.add_node("Relu", convolve(data)))
        data = chain.add_node("Relu", chain.add_node("Add", inner, data))
    chain.write(path, data)


def write_transformer(path: Path, nodes: int) -> None:
    """Write the feed-forward halves of transformer layers, with GELU as exporters write it."""
    chain, width = Chain(ROWS), ROWS[1]

    def connect(data: str, fan_in: int, fan_out: int) -> str:
        product = chain.add_node("MatMul", data, chain.add_weight(fan_in, fan_out))
        return chain.add_node("Add", product, chain.add_weight(fan_out))

    data = "input"
    while len(chain.nodes) < nodes:
        hidden = connect(data, width, HIDDEN)
        erf = chain.add_node("Erf", chain.add_node("Div", hidden, chain.add_number(2**0.5)))
        weighed = chain.add_node("Mul", hidden, chain.add_node("Add", erf, chain.add_number(1)))
        gelu = chain.add_node("Mul", weighed, chain.add_number(0.5))
        total = chain.add_node("Add", connect(gelu, HIDDEN, width), data)
        scale, shift = chain.add_weight(width), chain.add_weight(width)
        data = chain.add_node("LayerNormalization", total, scale, shift, axis=-1)
    chain.write(path, data)


def write_elementwise(path: Path, nodes: int) -> None:
    """Write a chain of functions of single elements."""
    chain, data = Chain(ROWS), "input"
    scale, shift = chain.add_weight(ROWS[1]), chain.add_weight(ROWS[1])
    while len(chain.nodes) < nodes:
        scaled = chain.add_node("Add", chain.add_node("Mul", data, scale), shift)
        product = chain.add_node("Mul", chain.add_node("Sigmoid", scaled), "input")
        data = chain.add_node("Tanh", product)
    chain.write(path, data)


def write_reused(path: Path, nodes: int) -> None:
    """Write a chain of functions of single elements that read each value twice."""
    chain, data = Chain(ROWS), "input"
    while len(chain.nodes) < nodes:
        shifted = chain.add_node("Add", data, chain.add_weight(ROWS[1]))
        product = chain.add_node("Mul", data, chain.add_node("Sigmoid", shifted))
        data = chain.add_node("Tanh", chain.add_node("Add", product, "input"))
    chain.write(path, data)


def write_distinct(path: Path, nodes: int) -> None:
    """Write matrix products of which no two have the same sizes, with a ReLU each."""
    chain = Chain(ROWS)
    widths = [ROWS[1], *(8 + step for step in walk_steps(nodes // 2 - 1)), ROWS[1]]
    data = "input"
    for fan_in, fan_out in pairwise(widths):
        product = chain.add_node("MatMul", data, chain.add_weight(fan_in, fan_out))
        data = chain.add_node("Relu", product)
    chain.write(path, data)


def walk_steps(count: int) -> Iterator[int]:
    """Yield numbers below a prime so that no pair of neighbours occurs twice."""
    prime, at = 73, 0
    for index in range(count):
        yield at
        at = (at + 1 + index // prime) % prime


MODELS: Final[dict[str, Callable[[Path, int], None]]] = {
    "residual": write_residual,
    "transformer": write_transformer,
    "elementwise": write_elementwise,
    "reused": write_reused,
    "distinct": write_distinct,
}


def measure_model(name: str, nodes: int, checkout: Path, *, is_built: bool) -> dict[str, Cost]:
    """Return the cost of each stage for a generated model, and of one run up to *tasks*."""
    with tempfile.TemporaryDirectory() as folder:
        pipeline = Path(folder, f"{name}.yaml")
        pipeline.write_text(PIPELINE.format(name=name), encoding="utf-8")
        MODELS[name](pipeline.with_suffix(".onnx"), nodes)
        stages = STAGES[: STAGES.index("build" if is_built else "tasks") + 1]
        costs = measure_stages(pipeline, checkout, stages)
        return {**costs, "to tasks": measure_until(pipeline, checkout, "tasks")}


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=NODES)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=tuple(MODELS))
    parser.add_argument(
        "--build", type=int, default=1000, help="most nodes of a model that is built"
    )
    add_against(parser)
    options = parser.parse_args()
    print(head_table(*HEADER))
    for name in options.models:
        smaller: dict[tuple[Path, str], tuple[int, Cost]] = {}
        for nodes in sorted(options.nodes):
            for checkout in list_checkouts(options):
                costs = measure_model(name, nodes, checkout, is_built=nodes <= options.build)
                for stage, cost in costs.items():
                    exponent = find_exponent(smaller.get((checkout, stage)), (nodes, cost))
                    smaller[checkout, stage] = nodes, cost
                    print(
                        f"| {name} | {nodes} | {checkout.name} | {stage} | {cost.wall:.2f} "
                        f"| {cost.cpu:.2f} | {cost.peak >> 20} | {exponent} |",
                        flush=True,
                    )


def find_exponent(smaller: tuple[int, Cost] | None, larger: tuple[int, Cost]) -> str:
    """Return with which power of the number of nodes processor time grew; empty at first."""
    if smaller is None:
        return ""
    growth = math.log(larger[1].cpu / smaller[1].cpu)
    return f"{growth / math.log(larger[0] / smaller[0]):.2f}"


if __name__ == "__main__":
    main()
