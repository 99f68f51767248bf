"""Untuned schedules against naive parallel loops: `python benchmarks/naive.py pipelines/*.yaml`.

Naive is the workload as TVM lowers it, its outer loops fused and run in parallel. Each kernel is
timed alone, and counted as often as one inference calls it.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from machine import target, workloads

import autopipe
from autopipe.config.tuning import Measure

LIMITS = Measure(run_timeout=120.0, min_repeat=0.05)


def main() -> None:
    """Measure and print a row a pipeline."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pipelines", nargs="+", type=Path)
    print(f"{'pipeline':<14} {'naive':>10} {'static':>10} {'times':>6}")
    for path in parser.parse_args().pipelines:
        naive, static = measure(path)
        print(
            f"{path.stem:<14} {naive * 1e3:7.2f} ms {static * 1e3:7.2f} ms {naive / static:5.1f}x",
            flush=True,
        )


def measure(pipeline: Path) -> tuple[float, float]:
    """Return the seconds of one inference with naive and with static schedules."""
    from autopipe.measure.local import Local
    from autopipe.measure.timing import use_threads
    from autopipe.schedules.conditions import Conditions
    from autopipe.schedules.engines.fallback import choose_fallback

    with tempfile.TemporaryDirectory() as folder:
        artifact = autopipe.run(pipeline, store=Path(folder) / "store", until="tasks")["tasks"]
        found = list(workloads(artifact.path))
    here = target()
    cores = int(str(here["num_cores"]))
    use_threads(cores)
    conditions = Conditions.of(here, fast_algorithms=True)
    local = Local(conditions.target, cores, LIMITS)

    def static(module: Any) -> Any:  # noqa: ANN401
        planned = choose_fallback(["static", "default"], module, conditions).planned
        return planned.module if planned else module

    totals = []
    for schedule in (parallel, static):
        candidates = [partial(schedule, module) for _, module in found]
        times = [result.median for result in local.measure(candidates)]
        totals.append(sum(task.calls * time for (task, _), time in zip(found, times, strict=True)))
    return totals[0], totals[1]


def parallel(module: Any) -> Any:  # noqa: ANN401
    """Run the outer loops of each block in parallel, and do nothing else."""
    from tvm.s_tir import Schedule

    from autopipe.schedules.analysis.blocks import SPATIAL

    sch = Schedule(module)
    for block in sch.get_child_blocks(sch.get_sblock("root")):
        axes, loops = sch.get(block).iter_vars, sch.get_loops(block)
        if len(axes) == len(loops):
            kinds = zip(loops, axes, strict=True)
            spatial = [loop for loop, axis in kinds if axis.iter_type == SPATIAL]
            if spatial:  # a single number has none
                sch.parallel(sch.fuse(*spatial[:-1] or spatial))
    return sch.mod


if __name__ == "__main__":
    main()
