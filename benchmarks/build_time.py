"""What an untuned, cold build takes: `python benchmarks/build_time.py pipelines/resnet50.yaml`.

Each pipeline is built in an empty store, stage by stage. Printed is the least of several rounds for
each stage, on the clock and of all processors together. A stage has a process of its own, which
asks the store for the stages before. With `--against CHECKOUT` another checkout is built in turn.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

STAGES: Final = ("import", "optimize", "lower", "tasks", "build")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pipelines", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", type=Path, help="another checkout, built in turn")
    options = parser.parse_args()
    here = Path(__file__).parents[1]
    checkouts = [here, *([options.against.resolve()] if options.against else [])]
    print(f"{'pipeline':<20} {'checkout':<12} {'stage':<9} {'clock':>8} {'CPU':>8}")
    for pipeline in options.pipelines:
        rounds: dict[tuple[Path, str], list[tuple[float, float]]] = defaultdict(list)
        for _ in range(options.rounds):
            for checkout in checkouts:
                for stage, times in measure_stages(pipeline, checkout).items():
                    rounds[checkout, stage].append(times)
        for (checkout, stage), taken in rounds.items():
            clock, cpu = min(one for one, _ in taken), min(one for _, one in taken)
            told = f"{clock:7.2f} s {cpu:7.2f} s"
            print(f"{pipeline.stem:<20} {checkout.name[:12]:<12} {stage:<9} {told}", flush=True)


def measure_stages(pipeline: Path, checkout: Path) -> dict[str, tuple[float, float]]:
    """Return the seconds of each stage, on the clock and of all processors, and their sums."""
    found = {}
    with tempfile.TemporaryDirectory() as store:
        for stage in STAGES:
            found[stage] = _time_command(
                ["run", str(pipeline.resolve()), "--until", stage, "--store", store,
                 "--no-lock", "--set", "tuning=null", "--json"], checkout,
            )  # fmt: skip
    clocks, cpus = [one for one, _ in found.values()], [one for _, one in found.values()]
    return {**found, "all": (sum(clocks), sum(cpus))}


def _time_command(arguments: list[str], checkout: Path) -> tuple[float, float]:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "autopipe", *arguments],
        cwd=checkout,  # whose package comes before the installed one, in children as well:
        env={**os.environ, "PYTHONPATH": str(checkout)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    clock, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
