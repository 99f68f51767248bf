"""Single recurrent layers: `python benchmarks/recurrent.py`.

Times of an untuned build and of onnxruntime, by kind, hidden units, steps, batch and directions;
the input has as many numbers as there are hidden units. Each contender runs in a process of its
own, in turn. The ratio is that of the least times, below 1 where the build is faster; the other
one is that of the medians.
"""

import argparse
import itertools
import math
import os
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

import autopipe
from autopipe.benchmarking.contender import time_contender
from autopipe.config import Benchmark

GATES: Final = {"LSTM": 4, "GRU": 3}
ROUNDS: Final = 5


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer, and what it is given."""

    kind: str
    hidden: int
    steps: int
    batch: int
    directions: int

    def __str__(self) -> str:
        """Name it."""
        both = ", both ways" if self.directions > 1 else ""
        return f"{self.kind} {self.hidden}, {self.steps} x {self.batch}{both}"

    def model(self) -> onnx.ModelProto:
        """Return the model: one layer as PyTorch exports it."""
        random = np.random.default_rng(0)
        ways, columns = self.directions, GATES[self.kind] * self.hidden
        shapes = {
            "W": (ways, columns, self.hidden),
            "R": (ways, columns, self.hidden),
            "B": (ways, 2 * columns),
        }
        weights = [
            numpy_helper.from_array(
                random.uniform(-1, 1, shape).astype("float32") / np.float32(self.hidden**0.5), name
            )
            for name, shape in shapes.items()
        ]
        after: dict[str, Any] = {"linear_before_reset": 1} if self.kind == "GRU" else {}
        node = helper.make_node(
            self.kind, ["X", *shapes], ["Y", "Y_h"], hidden_size=self.hidden,
            direction="bidirectional" if ways > 1 else "forward", **after,
        )  # fmt: skip
        data = [self.steps, self.batch, self.hidden]
        graph = helper.make_graph(
            [node],
            "layer",
            [helper.make_tensor_value_info("X", TensorProto.FLOAT, data)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("Y", "Y_h")],
            weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def layers() -> Iterator[Layer]:
    """Yield the layers."""
    for hidden, steps, batch, ways in itertools.product(
        (64, 128, 256, 512), (1, 32, 256), (1, 8), (1, 2)
    ):
        yield Layer("LSTM", hidden, steps, batch, ways)
    for hidden, batch, ways in itertools.product((64, 256), (1, 8), (1, 2)):
        yield Layer("GRU", hidden, 32, batch, ways)


def main() -> None:
    """Measure all layers, and print one row each and the geometric mean."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each contender")
    parser.add_argument("--only", default="", help="layers whose name has this in it")
    options = parser.parse_args()
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    chosen = [layer for layer in layers() if options.only in str(layer)]
    print(f"{'layer':<34} {'autopipe':>10} {'onnxruntime':>12} {'ratio':>6} {'medians':>8}")
    ratios = []
    for layer in chosen:
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = _rounds(_built(layer, Path(folder)), Path(folder), options.rounds)
        ratios.append(min(ours) / min(theirs))
        middle = statistics.median(ours) / statistics.median(theirs)
        times = f"{min(ours) * 1e6:8.1f}us {min(theirs) * 1e6:10.1f}us"
        print(f"{layer!s:<34} {times} {ratios[-1]:6.2f} {middle:8.2f}", flush=True)
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"geometric mean of {len(ratios)}: {mean:.2f}, worst {max(ratios):.2f}")


def _built(layer: Layer, folder: Path) -> Path:
    """Write the model and an input, build it without tuning, and return the artifact."""
    onnx.save(layer.model(), folder / "layer.onnx")
    text = "version: 1\nname: layer\nmodel: {path: layer.onnx}\ntuning: null\n"
    (folder / "layer.yaml").write_text(text, encoding="utf-8")
    shape = (layer.steps, layer.batch, layer.hidden)
    data = np.random.default_rng(1).standard_normal(shape).astype("float32")
    save_file({"X": data}, folder / "inputs.safetensors")
    built = autopipe.run(folder / "layer.yaml", store=folder / "store", until="build")["build"]
    return Path(built.path)


def _rounds(library: Path, folder: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each run, ours and theirs."""
    ours: list[float] = []
    theirs: list[float] = []
    inputs, options = folder / "inputs.safetensors", Benchmark()
    for _ in range(rounds):
        ours += time_contender("autopipe", library, inputs, options).seconds
        theirs += time_contender("onnxruntime", folder / "layer.onnx", inputs, options).seconds
    return ours, theirs


if __name__ == "__main__":
    main()
