"""Single recurrent layers: `python benchmarks/recurrent.py`.

Times of an untuned build and of onnxruntime, by kind, hidden units, steps, batch and directions;
the input has as many numbers as there are hidden units. Each contender runs in a process of its
own, in turn. The ratio is that of minimum times, below 1 where the build is faster; the other
one is that of the medians.

Builds and times are kept in a folder, so the work can be done in parts:
`recurrent.py build --folder F` builds only, `recurrent.py time --folder F --seconds 200` times
what has no times yet and begins no layer after 200 seconds, `recurrent.py table --folder F` prints
what is known.
"""

import argparse
import itertools
import json
import math
import os
import re
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

import autopipe
from autopipe.benchmarking.contender import time_contender
from autopipe.config.benchmark import Benchmark

GATES: Final = {"LSTM": 4, "GRU": 3}
ROUNDS: Final = 5
PARTS: Final = ("build", "time", "table")

Times = dict[str, list[float]]
"""Seconds of each run by contender."""


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
    """Build and measure the layers, and print one row each and the geometric mean."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all if none is named")
    parser.add_argument("--folder", type=Path, help="keeps builds and times; else nothing is kept")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each contender")
    parser.add_argument("--only", default="", help="layers whose name has this in it")
    parser.add_argument("--seconds", type=float, default=math.inf, help="time for the timing")
    options = parser.parse_args()
    parts = options.parts or PARTS
    if not set(parts) <= set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}")
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        chosen = [Kept(layer, folder) for layer in layers() if options.only in str(layer)]
        if "build" in parts:
            for kept in chosen:
                kept.build()
        if "time" in parts:
            _time(chosen, options.rounds, options.seconds)
        if "table" in parts:
            _print(chosen)


@dataclass(frozen=True, slots=True)
class Kept:
    """A layer with its files."""

    layer: Layer
    kept: Path
    """The folder of all layers."""

    @property
    def folder(self) -> Path:
        """Its own folder."""
        return self.kept / re.sub(r"\W+", "-", str(self.layer))

    @property
    def times(self) -> Times | None:
        """The seconds of each run, ours and theirs, or None if it was not timed."""
        path = self.folder / "times.json"
        return json.loads(path.read_text()) if path.exists() else None

    def build(self) -> None:
        """Write the model and an input, and build it without tuning, if that is not done."""
        layer, folder = self.layer, self.folder
        if (folder / "built").exists():
            return
        folder.mkdir(parents=True, exist_ok=True)
        onnx.save(layer.model(), folder / "layer.onnx")
        text = "version: 1\nname: layer\nmodel: {path: layer.onnx}\ntuning: null\n"
        (folder / "layer.yaml").write_text(text, encoding="utf-8")
        shape = (layer.steps, layer.batch, layer.hidden)
        data = np.random.default_rng(1).standard_normal(shape).astype("float32")
        save_file({"X": data}, folder / "inputs.safetensors")
        built = autopipe.run(folder / "layer.yaml", store=self.kept / "store", until="build")
        (folder / "built").symlink_to(built["build"].path)

    def time(self, rounds: int) -> None:
        """Time both contenders in turn, and keep the times."""
        options = Benchmark()
        models = {"autopipe": self.folder / "built", "onnxruntime": self.folder / "layer.onnx"}
        times: Times = {name: [] for name in models}
        for _ in range(rounds):
            for name, path in models.items():
                inputs = self.folder / "inputs.safetensors"
                times[name] += time_contender(name, path.resolve(), inputs, options).seconds
        (self.folder / "times.json").write_text(json.dumps(times), encoding="utf-8")


def _time(chosen: Sequence[Kept], rounds: int, seconds: float) -> None:
    """Time what has no times yet, and begin nothing after so many seconds."""
    end = time.monotonic() + seconds
    left = [kept for kept in chosen if kept.times is None]
    while left and time.monotonic() < end:
        left.pop(0).time(rounds)
    print(f"{len(left)} layers are left to time", flush=True)


def _print(chosen: Sequence[Kept]) -> None:
    print("| layer | autopipe | onnxruntime | ratio | of medians |")
    print("|---|---|---|---|---|")
    ratios = []
    for kept in chosen:
        if times := kept.times:
            ours, theirs = times["autopipe"], times["onnxruntime"]
            ratios.append(min(ours) / min(theirs))
            middle = statistics.median(ours) / statistics.median(theirs)
            least = f"{min(ours) * 1e6:.1f} us | {min(theirs) * 1e6:.1f} us"
            print(f"| {kept.layer} | {least} | {ratios[-1]:.2f} | {middle:.2f} |")
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"\ngeometric mean of {len(ratios)}: {mean:.2f}, worst {max(ratios):.2f}")


if __name__ == "__main__":
    main()
