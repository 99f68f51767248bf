"""A decoder with a key-value cache against onnxruntime: `python benchmarks/decoder.py --folder F`.

Writes F/decoder.onnx, with weights drawn from a seed, and its pipeline file: 4 layers of 512, 8
heads and 2 heads of keys, rotary embeddings, RMS norms, SwiGLU of 1376, a vocabulary of 32000.
`new` tokens are 1 to 128, `past` ones 1 to 512. Builds and verifies it, and times one new token
after 16, 128 and 512 past ones as `race.py` does: each contender in a process of its own, in turn.

The work can be done in parts, as that of `race.py`: `write`, `build`, `time` and `table`. Layers
and sizes may be others: `--layers 1 --width 128 --vocabulary 256` is quick to build.
"""

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import in_parts
import numpy as np
import onnx
import race
from onnx import TensorProto, helper, numpy_helper

PARTS: Final = ("write", "build", "time", "table")
PAST: Final = (16, 128, 512)
"""Tokens in the cache at which one more is timed."""
_DEPTH: Final = 64
"""Values of a head."""
_FILE: Final = """version: 1
name: decoder
model:
  path: decoder.onnx
  inputs:
    input_ids: {{shape: [1, new], dtype: int64}}
    position_ids: {{shape: [1, new], dtype: int64}}
{caches}
  dimensions:
    new: {{min: 1, max: 128, likely: [1]}}
    past: {{min: 1, max: 512, likely: {likely}}}
tasks: {{allow_empty: true}}
"""


@dataclass(frozen=True)
class Shape:
    """Sizes of the decoder."""

    layers: int
    width: int
    key_heads: int
    inner: int
    vocabulary: int

    @property
    def heads(self) -> int:
        """Heads of queries."""
        return self.width // _DEPTH


@dataclass
class Graph:
    """An ONNX graph while it is written."""

    shape: Shape
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def node(self, kind: str, *inputs: str, name: str = "", **attributes: object) -> str:
        """Add an operator with one result, and return the name of that."""
        name = name or f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, value: object, dtype: str = "int64") -> str:
        """Add a constant, and return its name."""
        name = f"constant_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def weight(self, rows: int, columns: int) -> str:
        """Add a random matrix that keeps the size of what it multiplies, and return its name."""
        scale = np.float32(rows**-0.5)
        return self.constant(self.random.standard_normal((rows, columns), "f") * scale, "float32")

    def norm(self, x: str) -> str:
        """Divide rows by the root of the mean of their squares."""
        squares = self.node("Pow", x, self.constant(2.0, "float32"))
        mean = self.node("ReduceMean", squares, self.constant([-1]), keepdims=1)
        root = self.node("Sqrt", self.node("Add", mean, self.constant(1e-6, "float32")))
        scaled = self.node("Mul", x, self.node("Reciprocal", root))
        return self.node("Mul", self.constant(np.ones(self.shape.width), "float32"), scaled)

    def split_heads(self, x: str, heads: int) -> str:
        """Turn [1, new, heads * depth] into [1, heads, new, depth]."""
        apart = self.node("Reshape", x, self.constant([1, -1, heads, _DEPTH]))
        return self.node("Transpose", apart, perm=[0, 2, 1, 3])

    def rotate(self, x: str, cosine: str, sine: str) -> str:
        """Apply rotary embeddings."""
        half, split = f"half_{len(self.nodes)}", self.constant([_DEPTH // 2, _DEPTH // 2])
        halves = [f"{half}_0", f"{half}_1"]
        self.nodes.append(helper.make_node("Split", [x, split], halves, axis=3))
        turned = self.node("Concat", self.node("Neg", halves[1]), halves[0], axis=-1)
        return self.node("Add", self.node("Mul", x, cosine), self.node("Mul", turned, sine))

    def repeat_heads(self, x: str) -> str:
        """Give each head of queries its head of keys or values."""
        heads, times = self.shape.heads, self.shape.heads // self.shape.key_heads
        apart = self.node("Unsqueeze", x, self.constant([2]))
        wide = self.node("Expand", apart, self.constant([1, 1, times, 1, 1]))
        return self.node("Reshape", wide, self.constant([1, heads, -1, _DEPTH]))

    def attend(self, x: str, layer: int, angles: tuple[str, str], mask: str) -> str:
        """Write attention over past and new tokens, which leaves the new cache as outputs."""
        width, keys = self.shape.width, self.shape.key_heads
        q, k, v = (
            self.split_heads(self.node("MatMul", x, self.weight(width, heads * _DEPTH)), heads)
            for heads in (self.shape.heads, keys, keys)
        )
        k = self.node(
            "Concat", f"past_k.{layer}", self.rotate(k, *angles),
            name=f"present_k.{layer}", axis=2,
        )  # fmt: skip
        v = self.node("Concat", f"past_v.{layer}", v, name=f"present_v.{layer}", axis=2)
        turned = self.node("Transpose", self.repeat_heads(k), perm=[0, 1, 3, 2])
        scores = self.node("MatMul", self.rotate(q, *angles), turned)
        scaled = self.node("Div", scores, self.constant(_DEPTH**0.5, "float32"))
        shares = self.node("Softmax", self.node("Add", scaled, mask), axis=-1)
        mixed = self.node("MatMul", shares, self.repeat_heads(v))
        joined = self.node("Transpose", mixed, perm=[0, 2, 1, 3])
        flat = self.node("Reshape", joined, self.constant([1, -1, width]))
        return self.node("MatMul", flat, self.weight(width, width))

    def feed_forward(self, x: str) -> str:
        """Write SwiGLU."""
        width, inner = self.shape.width, self.shape.inner
        gate = self.node("MatMul", x, self.weight(width, inner))
        silu = self.node("Mul", gate, self.node("Sigmoid", gate))
        wide = self.node("Mul", silu, self.node("MatMul", x, self.weight(width, inner)))
        return self.node("MatMul", wide, self.weight(inner, width))

    def angles(self) -> tuple[str, str]:
        """Write cosine and sine of each position and frequency, [1, 1, new, depth]."""
        steps = np.arange(0, _DEPTH, 2) / _DEPTH
        place = self.node("Unsqueeze", "position_ids", self.constant([2]))
        turns = self.node(
            "Mul", self.node("Cast", place, to=TensorProto.FLOAT),
            self.constant(10000.0**-steps, "float32"),
        )  # fmt: skip
        both, one = self.node("Concat", turns, turns, axis=-1), self.constant([1])
        cosine, sine = (self.node("Unsqueeze", self.node(kind, both), one)
                        for kind in ("Cos", "Sin"))  # fmt: skip
        return cosine, sine

    def mask(self) -> str:
        """Write the mask [new, past + new]: -1e9 for tokens that are still to come."""
        zero, one = self.constant(0), self.constant(1)
        new, past = (
            self.node("Squeeze", self.node("Shape", name, start=axis, end=axis + 1))
            for name, axis in (("input_ids", 1), ("past_k.0", 2))
        )
        keys = self.node("Range", zero, self.node("Add", past, new), one)
        queries = self.node("Add", self.node("Range", zero, new, one), past)
        seen = self.node(
            "LessOrEqual", self.node("Unsqueeze", keys, self.constant([0])),
            self.node("Unsqueeze", queries, self.constant([1])),
        )  # fmt: skip
        return self.node(
            "Where", seen, self.constant(0.0, "float32"), self.constant(-1e9, "float32")
        )


def model(shape: Shape) -> onnx.ModelProto:
    """Return the decoder."""
    graph = Graph(shape)
    x = graph.node("Gather", graph.weight(shape.vocabulary, shape.width), "input_ids", axis=0)
    angles, mask = graph.angles(), graph.mask()
    for layer in range(shape.layers):
        x = graph.node("Add", x, graph.attend(graph.norm(x), layer, angles, mask))
        x = graph.node("Add", x, graph.feed_forward(graph.norm(x)))
    graph.node("MatMul", graph.norm(x), graph.weight(shape.width, shape.vocabulary), name="logits")
    tokens = [
        helper.make_tensor_value_info(name, TensorProto.INT64, [1, "new"])
        for name in ("input_ids", "position_ids")
    ]
    past, present = (
        [
            helper.make_tensor_value_info(
                f"{name}_{side}.{layer}", TensorProto.FLOAT, [1, shape.key_heads, length, _DEPTH]
            )
            for layer in range(shape.layers)
            for side in "kv"
        ]
        for name, length in (("past", "past"), ("present", "past + new"))
    )
    logits = helper.make_tensor_value_info(
        "logits", TensorProto.FLOAT, [1, "new", shape.vocabulary]
    )
    made = helper.make_graph(
        graph.nodes, "decoder", [*tokens, *past], [logits, *present], graph.weights
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def write(folder: Path, shape: Shape, likely: list[int]) -> None:
    """Write the model and its pipeline file."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model(shape), folder / "decoder.onnx")
    caches = "\n".join(
        f"    past_{side}.{layer}:"
        f" {{shape: [1, {shape.key_heads}, past, {_DEPTH}], dtype: float32}}"
        for layer in range(shape.layers)
        for side in "kv"
    )
    text = _FILE.format(caches=caches, likely=likely)
    (folder / "decoder.yaml").write_text(text, encoding="utf-8")


def subjects(options: argparse.Namespace) -> Iterator[race.Subject]:
    """Yield the decoder at each size of the cache, with each number of threads."""
    folder = options.folder.absolute()
    for threads in options.threads or [1, 2]:
        for past in options.past or PAST:
            yield race.Subject(
                folder / "decoder.yaml", folder, threads, options.tuned, {"new": 1, "past": past}
            )


def main() -> None:
    """Do the parts that are asked for."""
    parser = in_parts.parser((__doc__ or "").partition("\n")[0], PARTS, race.ROUNDS)
    parser.add_argument("--threads", type=int, action="append", help="of each; else 1, and then 2")
    parser.add_argument("--past", type=int, action="append", help="tokens in the cache")
    parser.add_argument("--likely", type=int, action="append", help="cache that is built for")
    parser.add_argument("--tuned", help="budget of tuning, as in a pipeline file; else untuned")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--key-heads", type=int, default=2)
    parser.add_argument("--inner", type=int, default=1376)
    parser.add_argument("--vocabulary", type=int, default=32000)
    options = parser.parse_intermixed_args()
    parts, named = in_parts.asked(options.parts, PARTS)
    if named or options.folder is None:
        parser.error("name parts and a folder")
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    shape = Shape(
        options.layers, options.width, options.key_heads, options.inner, options.vocabulary
    )
    if "write" in parts:
        write(options.folder, shape, options.likely or [128])
    race.do(parts, list(subjects(options)), options.rounds)


if __name__ == "__main__":
    main()
