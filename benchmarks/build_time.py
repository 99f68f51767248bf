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
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from dynamic_sizes import Subject

STAGES: Final = ("import", "optimize", "lower", "tasks", "build", "verify", "package")


class Cost(NamedTuple):
    """What a stage takes."""

    wall: float
    """Seconds on the clock."""
    cpu: float
    """Seconds of all processors together."""
    peak: int
    """Bytes of memory of its largest process."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pipelines", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--until", choices=STAGES, default="build", help="the last stage")
    parser.add_argument("--against", type=Path, help="another checkout, built in turn")
    parser.add_argument("--fixed", action="store_true", help="compare with static shapes")
    options = parser.parse_args()
    here = Path(__file__).parents[1]
    checkouts = [here, *([options.against.resolve()] if options.against else [])]
    stages = STAGES[: STAGES.index(options.until) + 1]
    print(f"{'pipeline':<20} {'checkout':<12} {'stage':<9} {'clock':>9} {'CPU':>9} {'peak':>9}")
    with tempfile.TemporaryDirectory() as scratch:
        for pipeline in options.pipelines:
            paths = [pipeline]
            if options.fixed:
                subject = Subject(pipeline, Path(scratch), ())
                paths.append(subject.write_fixed(subject.likely[0]))
            _measure_rounds(paths, checkouts, stages, options.rounds)


def _measure_rounds(
    pipelines: Sequence[Path], checkouts: Sequence[Path], stages: Sequence[str], rounds: int
) -> None:
    """Build pipelines in turn, and print a row for each stage, and ratios to the last pipeline."""
    costs: dict[tuple[Path, Path, str], list[Cost]] = defaultdict(list)
    for _ in range(rounds):
        for pipeline in pipelines:
            for checkout in checkouts:
                whole = {"all": measure_until(pipeline, checkout, stages[-1])}
                for stage, cost in (measure_stages(pipeline, checkout, stages) | whole).items():
                    costs[pipeline, checkout, stage].append(cost)
    for (pipeline, checkout, stage), found in costs.items():
        wall, cpu, peak = map(min, zip(*found, strict=True))
        cells = f"{wall:7.2f} s {cpu:7.2f} s {peak >> 20:5} MiB"
        print(f"{pipeline.stem:<20} {checkout.name[:12]:<12} {stage:<9} {cells}", flush=True)
    first, last = pipelines[0], pipelines[-1]
    for checkout in checkouts if first != last else ():
        for name, average in (("minimum", min), ("median", statistics.median)):
            wall, cpu = (
                average(cost[at] for cost in costs[first, checkout, "all"])
                / average(cost[at] for cost in costs[last, checkout, "all"])
                for at in (0, 1)
            )
            print(f"{first.stem:<20} {checkout.name[:12]:<12} {name:<9} {wall:9.2f} {cpu:9.2f}")


def measure_stages(pipeline: Path, checkout: Path, stages: Sequence[str]) -> dict[str, Cost]:
    """Return the cost of each stage, which follow each other from *import* on."""
    with tempfile.TemporaryDirectory() as store:
        return {stage: _run(pipeline, checkout, stage, store) for stage in stages}


def measure_until(pipeline: Path, checkout: Path, stage: str) -> Cost:
    """Return the cost of one command that runs all stages up to one of them."""
    with tempfile.TemporaryDirectory() as store:
        return _run(pipeline, checkout, stage, store)


def _run(pipeline: Path, checkout: Path, stage: str, store: str) -> Cost:
    arguments = (
        "run", str(pipeline.resolve()), "--until", stage, "--store", store, "--output", store,
        "--no-lock", "--set", "tuning=null", "--json",
    )  # fmt: skip
    return _measure_command(arguments, checkout)


def _measure_command(arguments: Sequence[str], checkout: Path) -> Cost:
    start = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "autopipe", *arguments],
        cwd=checkout,  # whose package comes before the installed one, in children as well:
        env={**os.environ, "PYTHONPATH": str(checkout)},
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)  # of the process and of all that it waited for
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    wall, cpu = time.monotonic() - start, usage.ru_utime + usage.ru_stime
    return Cost(wall, cpu, usage.ru_maxrss << 10)


if __name__ == "__main__":
    main()
