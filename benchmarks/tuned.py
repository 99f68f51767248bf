"""What tuning did for each task of a pipeline: `python benchmarks/tuned.py PIPELINE`.

First the tasks: how many are kept, and what the others are. Then a row a kept task, the one that
takes most of the time first: its sizes, the winner, and milliseconds of one call by plain loops
without threads, by the best schedule that needs no search, and by the winner. A name that ends in
`@100` is a kernel whose size the model computes or leaves open, as it probably is. Options behind
`--` go to `autopipe run`: `-- --set tuning.budget.trials=160 --set tuning.budget.time=3m`. A store
that has the result is not tuned again.
"""

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import autopipe
from autopipe.api import flow
from autopipe.artifacts.tuning import TunedTask, TuningReport
from autopipe.schedules.policy import SERIAL
from autopipe.tasks.filters import count_dropped
from autopipe.tasks.task import Task

COLUMNS = "{:<34} {:<26} {:>6} {:>10} {:>10} {:>10} {:>6} {:>7}  {}"
_SHAPES = "it only computes shapes"
_SHAPE = "shape_to_tensor"
_STATIC = "static"


def main() -> int:
    """Tune and print both tables."""
    own, _, extra = " ".join(sys.argv[1:]).partition(" -- ")
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("--store", type=Path, default=Path(".autopipe"))
    parser.add_argument("--least", type=float, default=0.0, help="share of the time to be a row")
    options = parser.parse_args(own.split())
    overrides = [word for word in extra.split() if word != "--set"]
    artifacts = autopipe.run(
        options.pipeline, overrides=overrides, store=options.store, until="tune"
    )
    tasks = flow.list_tasks(options.pipeline, store=options.store)
    found = TuningReport.read(artifacts["tune"].path).tasks
    print_tasks(tasks)
    print_rows(tasks, found, options.least)
    return 0


def print_tasks(tasks: Sequence[Task]) -> None:
    """Say how many tasks there are, and what the untuned ones are."""
    kept = [task for task in tasks if task.dropped is None]
    shapes = sum(
        _SHAPES in (task.dropped or "") or _SHAPE in task.info.names
        for task in tasks
        if task.dropped
    )
    dropped = ", ".join(f"{count} {name}" for name, count in count_dropped(tasks).items())
    print(f"{len(tasks)} tasks, {len(kept)} kept; dropped: {dropped}; {shapes} compute shapes")
    kinds = Counter((_ops(task), "open" if "@" in task.name else "fixed") for task in kept)
    for (ops, sizes), count in kinds.most_common():
        print(f"    {count:>3} {ops}, {sizes} sizes")


def print_rows(tasks: Sequence[Task], found: Sequence[TunedTask], least: float) -> None:
    """Print a row for each task that was tuned."""
    known = {task.workload: task for task in tasks}
    titles = ("task", "output", "trials", "loops", "untuned", "tuned", "gain", "share", "winner")
    print(COLUMNS.format(*titles))
    for one in sorted(found, key=lambda one: -(one.seconds or 0) * known[one.workload].calls):
        if one.share < least:
            continue
        loops = _best(one, lambda engine, name: (engine, name) == SERIAL)
        untuned = _best(one, lambda engine, _: engine == _STATIC)
        tuned = one.seconds or math.nan
        output = str(list(known[one.workload].outputs[0].shape))
        print(
            COLUMNS.format(
                one.name[-34:], output, one.trials, *map(_ms, (loops, untuned, tuned)),
                f"{untuned / tuned:.2f}", f"{one.share:.1%}",
                f"{one.engine} {one.implementation}{f', {one.stopped}' if one.stopped else ''}",
            )
        )  # fmt: skip


def _ops(task: Task) -> str:
    names = [name for name in task.info.names if name in _HEAVY]
    return names[0] if names else task.info.kind


_HEAVY = {"nn.conv2d", "matmul", "vision.roi_align", "nn.max_pool2d"}


def _best(one: TunedTask, chosen: Callable[[str, str], bool]) -> float:
    times = (
        by.seconds for by in one.contenders
        if by.seconds is not None and chosen(by.engine, by.implementation)
    )  # fmt: skip
    return min(times, default=math.nan)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


if __name__ == "__main__":
    sys.exit(main())
