"""What an untuned, cold build takes: `python benchmarks/build_time.py pipelines/resnet50.yaml`.

Each pipeline is built in an empty store by one command ("all"), and in another one stage by stage.
Printed is the minimum of several rounds: seconds on the clock and of all processors together, and
the peak memory of the largest process. Stage by stage, each is a command of its own, which starts
anew and asks the store for the stages before. With `--against CHECKOUT` another checkout is built
in turn. `--until package` goes on after the build. With `--fixed` pipelines with dynamic shapes are
built in turn with static shapes, those of the first specialized sizes, and the ratios of their
minima and medians are printed.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from dynamic_sizes import Subject
from turns import Cost, add_against, list_checkouts, measure_python, take_turns

STAGES: Final = ("import", "optimize", "lower", "tasks", "build", "verify", "package")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pipelines", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--until", choices=STAGES, default="build", help="the last stage")
    add_against(parser)
    parser.add_argument("--fixed", action="store_true", help="compare with static shapes")
    options = parser.parse_args()
    stages = STAGES[: STAGES.index(options.until) + 1]
    print(f"{'pipeline':<20} {'checkout':<12} {'stage':<9} {'clock':>9} {'CPU':>9} {'peak':>9}")
    with tempfile.TemporaryDirectory() as scratch:
        for pipeline in options.pipelines:
            paths = [pipeline]
            if options.fixed:
                subject = Subject(pipeline, Path(scratch), ())
                paths.append(subject.write_fixed(subject.likely[0]))
            _measure_rounds(paths, list_checkouts(options), stages, options.rounds)


def _measure_rounds(
    pipelines: Sequence[Path], checkouts: Sequence[Path], stages: Sequence[str], rounds: int
) -> None:
    """Build pipelines in turn, and print a row for each stage, and ratios to the last pipeline."""
    contenders = {
        (pipeline, checkout): partial(measure_all, pipeline, checkout, stages)
        for pipeline in pipelines
        for checkout in checkouts
    }
    costs = take_turns(contenders, rounds)
    for (pipeline, checkout), measured in costs.items():
        for stage in measured[0]:
            wall, cpu, peak = map(min, zip(*(cost[stage] for cost in measured), strict=True))
            cells = f"{wall:7.2f} s {cpu:7.2f} s {peak >> 20:5} MiB"
            print(f"{pipeline.stem:<20} {checkout.name[:12]:<12} {stage:<9} {cells}", flush=True)
    first, last = pipelines[0], pipelines[-1]
    averages: dict[str, Callable[..., float]] = {"minimum": min, "median": statistics.median}
    for checkout in checkouts if first != last else ():
        for name, average in averages.items():
            wall, cpu = (
                average(cost["all"][at] for cost in costs[first, checkout])
                / average(cost["all"][at] for cost in costs[last, checkout])
                for at in (0, 1)
            )
            print(f"{first.stem:<20} {checkout.name[:12]:<12} {name:<9} {wall:9.2f} {cpu:9.2f}")


def measure_all(pipeline: Path, checkout: Path, stages: Sequence[str]) -> dict[str, Cost]:
    """Return the cost of each stage, and that of one command that runs them all ("all")."""
    costs = measure_stages(pipeline, checkout, stages)
    return {**costs, "all": measure_until(pipeline, checkout, stages[-1])}


def measure_stages(pipeline: Path, checkout: Path, stages: Sequence[str]) -> dict[str, Cost]:
    """Return the cost of each stage, which follow each other from *import* on."""
    with tempfile.TemporaryDirectory() as store:
        return {stage: _run(pipeline, checkout, stage, store) for stage in stages}


def measure_until(pipeline: Path, checkout: Path, stage: str) -> Cost:
    """Return the cost of one command that runs all stages up to one of them."""
    with tempfile.TemporaryDirectory() as store:
        return _run(pipeline, checkout, stage, store)


def _run(pipeline: Path, checkout: Path, stage: str, store: str) -> Cost:
    return measure_python(
        "-m", "autopipe", "run", pipeline.resolve(), "--until", stage, "--store", store,
        "--output", store, "--no-lock", "--set", "tuning=null", "--json", checkout=checkout,
    )[0]  # fmt: skip


if __name__ == "__main__":
    main()
