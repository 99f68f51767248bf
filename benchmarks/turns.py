"""A pipeline's build against onnxruntime, in turn: `python benchmarks/turns.py PIPELINE`.

Each contender runs in a process of its own, one round after the other. The ratio is that of the
least times, below 1 where the build is faster; the other one is that of the medians.
"""

import argparse
import os
import statistics
import tempfile
from pathlib import Path

from safetensors.numpy import save_file

import autopipe
from autopipe.artifacts.model import ImportedModel
from autopipe.benchmarking.contender import time_contender
from autopipe.config import Benchmark
from autopipe.verification.inputs import draw
from autopipe.verification.limits import input_limits


def main() -> None:
    """Build what is not built yet, time, and print a row."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contender")
    parser.add_argument("--store", type=Path, help="where results are kept; else none are")
    parser.add_argument("--set", action="append", default=[], help="as for `autopipe run`")
    options = parser.parse_args()
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    with tempfile.TemporaryDirectory() as scratch:
        store = options.store or Path(scratch, "store")
        made = autopipe.run(options.pipeline, overrides=options.set, store=store, until="build")
        imported, build = Path(made["import"].path), Path(made["build"].path)
        inputs = Path(scratch, "inputs.safetensors")
        ports = ImportedModel.read(imported).inputs
        save_file(draw(ports, input_limits(imported, ports), (2026, 11)), inputs)
        contenders = {"autopipe": build, "onnxruntime": imported / "reference.onnx"}
        times: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(options.rounds):
            for name, path in contenders.items():
                times[name] += time_contender(name, path, inputs, Benchmark()).seconds
    ours, theirs = ([min(found), statistics.median(found)] for found in times.values())
    print(
        f"{options.pipeline.stem}: {ours[0] * 1e3:.2f} ms, onnxruntime {theirs[0] * 1e3:.2f} ms,"
        f" ratio {ours[0] / theirs[0]:.2f}, of medians {ours[1] / theirs[1]:.2f}"
    )


if __name__ == "__main__":
    main()
