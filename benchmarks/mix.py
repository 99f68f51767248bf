"""Engines alone and mixed, at equal time: `python benchmarks/mix.py pipelines/*.yaml --seconds 60`.

Each policy tunes with a store of its own that is empty at the start, for the same wall-clock time.
Then the builds take turns, each in a process of its own, and the medians are compared: the last
column is the mix as a multiple of the best single engine.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import autopipe
from autopipe.benchmarking.contender import time_contender
from autopipe.config import Benchmark

POLICIES = {
    "mix": "[{engines: [autotvm, ansor]}]",
    "autotvm": "[{engines: [autotvm]}]",
    "ansor": "[{engines: [ansor]}]",
}
"""Rules of the schedule policy, by who is meant."""

ROUNDS = 5


def main() -> int:
    """Measure and print a row a pipeline; return 1 where the mix is clearly the slower."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pipelines", nargs="+", type=Path)
    parser.add_argument("--seconds", type=int, default=60, help="tuning time of each policy")
    parser.add_argument("--noise", type=float, default=1.05, help="multiple that counts as equal")
    options = parser.parse_args()
    print(f"{'pipeline':<14}" + "".join(f"{name:>12}" for name in POLICIES) + f"{'mix/best':>10}")
    worse = 0
    for path in options.pipelines:
        found = measure(path, options.seconds)
        ratio = found["mix"] / min(time for name, time in found.items() if name != "mix")
        cells = "".join(f"{seconds * 1e3:9.3f} ms" for seconds in found.values())
        print(f"{path.stem:<14}{cells}{ratio:10.2f}", flush=True)
        worse += ratio > options.noise
    return int(worse > 0)


def measure(pipeline: Path, seconds: int) -> dict[str, float]:
    """Return the median seconds of one inference after tuning with each policy."""
    with tempfile.TemporaryDirectory() as folder:
        builds = {
            name: _tuned(pipeline, rules, seconds, Path(folder) / name)
            for name, rules in POLICIES.items()
        }
        options = Benchmark()
        times: dict[str, list[float]] = {name: [] for name in builds}
        for turn in range(ROUNDS):
            for name in builds if turn % 2 == 0 else reversed(builds):
                library, inputs = builds[name]
                runs = time_contender("autopipe", library, inputs, options).seconds
                times[name].append(statistics.median(runs))
    return {name: statistics.median(medians) for name, medians in times.items()}


def _tuned(pipeline: Path, rules: str, seconds: int, folder: Path) -> tuple[Path, Path]:
    """Tune and build; return the library, and inputs for it."""
    from safetensors.numpy import save_file

    from autopipe.artifacts.library import BuiltLibrary
    from autopipe.artifacts.model import ImportedModel
    from autopipe.artifacts.tuning import TuningReport
    from autopipe.verification.inputs import draw

    budget = f"{{trials: 1000000, time: {seconds}s}}"
    artifacts = autopipe.run(
        pipeline,
        overrides=(
            f"tuning.budget={budget}", f"schedules.rules={rules}", "verify=null", "package=null",
            "benchmark=null", "gates={}",
        ),
        store=folder / "store",
    )  # fmt: skip
    library, inputs = artifacts["build"].path, folder / "inputs.safetensors"
    limits = ImportedModel.read(artifacts["import"].path).selects
    save_file(draw(BuiltLibrary.read(library).signature.inputs, limits, (0, 0)), inputs)
    tasks = TuningReport.read(artifacts["tune"].path).tasks
    trials = sum(task.trials for task in tasks)
    print(f"# {pipeline.stem}: {rules}: {trials} trials", file=sys.stderr, flush=True)
    return library, inputs


if __name__ == "__main__":
    sys.exit(main())
