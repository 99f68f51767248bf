"""One function of several reductions against its halves: `python benchmarks/fused.py --trials 64`.

Both pipelines are tuned and built with stores of their own that are empty at the start. Then the
builds take turns, each in a process of its own; the last line is the one function's time as a
multiple of the halves'.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import autopipe
from autopipe.benchmarking.contender import time_contender
from autopipe.config import Benchmark

FOLDER = Path(__file__).parents[1] / "pipelines" / "tasks"
ROUNDS = 7


def main() -> None:
    """Tune, build, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fused", type=Path, default=FOLDER / "rfc-fused.yaml")
    parser.add_argument("--halves", type=Path, default=FOLDER / "rfc-halves.yaml")
    parser.add_argument("--trials", type=int, default=64, help="for each of the two")
    options = parser.parse_args()
    times: dict[str, list[float]] = {"fused": [], "halves": []}
    with tempfile.TemporaryDirectory() as folder:
        builds = {
            name: built(getattr(options, name), options.trials, Path(folder) / name)
            for name in times
        }
        for turn in range(ROUNDS):
            for name in times if turn % 2 == 0 else reversed(times):
                runs = time_contender("autopipe", *builds[name], Benchmark()).seconds
                times[name].append(statistics.median(runs))
    for name, medians in times.items():
        middle, low, high = statistics.median(medians), min(medians), max(medians)
        print(f"{name:<8} {middle * 1e3:8.3f} ms  ({low * 1e3:.3f} to {high * 1e3:.3f})")
    ratios = [one / two for one, two in zip(times["fused"], times["halves"], strict=True)]
    print(
        f"fused / halves {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    )


def built(pipeline: Path, trials: int, folder: Path) -> tuple[Path, Path]:
    """Tune, build and verify a pipeline; return the library, and inputs for it."""
    from safetensors.numpy import save_file

    from autopipe.artifacts.library import BuiltLibrary
    from autopipe.artifacts.model import ImportedModel
    from autopipe.verification.inputs import draw

    artifacts = autopipe.run(
        pipeline,
        overrides=(f"tuning.budget={{trials: {trials}}}", "package=null", "benchmark=null"),
        store=folder / "store",
    )
    library, inputs = artifacts["build"].path, folder / "inputs.safetensors"
    limits = ImportedModel.read(artifacts["import"].path).selects
    described = BuiltLibrary.read(library)
    save_file(draw(described.signature.inputs, limits, (0, 0)), inputs)
    won = ", ".join(f"{task.name} by {task.engine}" for task in described.tasks)
    print(f"# {pipeline.stem}: {won}", file=sys.stderr, flush=True)
    return library, inputs


if __name__ == "__main__":
    main()
