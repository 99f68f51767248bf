"""What the filters keep, by measured time: `python benchmarks/tasks.py pipelines/*.yaml`.

Every task of a pipeline is measured once, with the schedules that need no search. The last columns
are the parts of that time which the tasks hold that the pipeline's own filters keep, and that the
judge of stage `tune` would then have searched.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import autopipe
from autopipe.api import flow
from autopipe.artifacts.tuning import TuningReport
from autopipe.config.load import load
from autopipe.tasks.filters import tally

ALL = (
    "tasks.heuristics=null", "tasks.include_simple_task=true", "tasks.include=['*']",
    "tasks.exclude=[]", "tuning={}", "schedules.rules=[{engines: []}]", "verify=null",
    "benchmark=null", "package=null", "gates={}",
)  # fmt: skip
"""Overrides with which all tasks are measured, and nothing is searched."""

_TOLD = 0.005
"""Share of the time from which a dropped task is shown."""


def main() -> int:
    """Measure and print a row a pipeline; return 1 where too little of the time is kept."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pipelines", nargs="+", type=Path)
    parser.add_argument("--store", type=Path, help="a new one by default")
    parser.add_argument("--least", type=float, default=0.95, help="share that has to be kept")
    options = parser.parse_args()
    print(f"{'pipeline':<14}{'tasks':>6}{'kept':>6}{'time kept':>11}{'searched':>10}  dropped")
    worse = 0
    with tempfile.TemporaryDirectory() as folder:
        for path in options.pipelines:
            worse += row(path, options.store or Path(folder)) < options.least
    return int(worse > 0)


def row(path: Path, store: Path) -> float:
    """Print a row, and what was dropped though it takes time; return the share that is kept."""
    shares = measured(path, store)
    tasks = flow.tasks(path, store=store)
    kept = [task for task in tasks if task.dropped is None]
    held = sum(shares[task.workload] for task in kept)
    judge = load(path).tasks.judge
    least = judge.min_share if judge else 0.0
    searched = sum(s for task in kept if (s := shares[task.workload]) / held >= least)
    dropped = ", ".join(f"{count} {name}" for name, count in tally(tasks).items())
    print(
        f"{path.stem:<14}{len(tasks):>6}{len(kept):>6}{held:>11.2%}{searched:>10.2%}  {dropped}",
        flush=True,
    )
    heavy = sorted((t for t in tasks if t.dropped), key=lambda task: -shares[task.workload])
    for task in heavy:
        if shares[task.workload] >= _TOLD:
            print(f"    {shares[task.workload]:.2%} {task.name}: {task.dropped}", flush=True)
    return held


def measured(path: Path, store: Path) -> Mapping[str, float]:
    """Return each task's part of the measured time of all tasks, by workload."""
    artifacts = autopipe.run(path, overrides=ALL, store=store, until="tune")
    found = TuningReport.read(artifacts["tune"].path).tasks
    unknown = [task.name for task in found if task.seconds is None]
    if unknown:
        print(f"# {path.stem}: estimated, not measured: {', '.join(unknown)}", file=sys.stderr)
    total = sum(task.share for task in found)
    return {task.workload: task.share / total for task in found}


if __name__ == "__main__":
    sys.exit(main())
