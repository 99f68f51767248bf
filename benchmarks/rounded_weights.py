"""Dense layers in float32 and bfloat16: `python benchmarks/rounded_weights.py FOLDER`.

Leaves FOLDER/dense.onnx, three dense layers of 1024, 4096, 4096 and 1000 that take one row, with
weights drawn from a seed, and for `race.py` a pipeline file for each: float32, weights in bfloat16,
and products in bfloat16, which a processor with AVX512_BF16 computes. Many rows (`--rows 128`) are
bound by arithmetic, one by memory.
"""

import argparse
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZES: Final = (1024, 4096, 4096, 1000)
"""Values of a row before, between and after the layers."""
_FILE: Final = "version: 1\nname: dense_{kind}\nmodel: {{path: dense.onnx}}\n"
_KINDS: Final = {
    "float32": "",
    "bfloat16": "numerics: {weights: bfloat16}\n",
    "products": "numerics: {compute: bfloat16}\n",
}


def model(rows: int) -> onnx.ModelProto:
    """Return the layers, with a Relu between two of them."""
    values = np.random.default_rng(0)
    nodes, weights, row = [], [], "x"
    for place, (given, made) in enumerate(pairwise(SIZES)):
        scale = np.float32((2 / given) ** 0.5)  # or rows would grow from layer to layer
        weight = values.standard_normal((given, made), "f") * scale
        weights.append(numpy_helper.from_array(weight, f"w{place}"))
        nodes.append(helper.make_node("MatMul", [row, f"w{place}"], [row := f"y{place}"]))
        if made != SIZES[-1]:
            nodes.append(helper.make_node("Relu", [row], [row := f"r{place}"]))
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (rows, size))
        for name, size in (("x", SIZES[0]), (row, SIZES[-1]))
    )
    graph = helper.make_graph(nodes, "dense", [x], [y], weights)
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8)


def main() -> None:
    """Write the model and the pipeline files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=1, help="rows that a call takes")
    given = parser.parse_args()
    folder: Path = given.folder
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model(given.rows), folder / "dense.onnx")
    for kind, section in _KINDS.items():
        (folder / f"dense_{kind}.yaml").write_text(_FILE.format(kind=kind) + section)


if __name__ == "__main__":
    main()
