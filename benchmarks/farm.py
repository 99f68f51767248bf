"""What a farm brings: `python benchmarks/farm.py`.

A farm of sleeping workers is measured over TLS on this machine: trials a second with 1 and with 4
workers, whose builds and timings sleep as real ones wait, processor time of a trial that does
nothing, and how many trials a second one scheduler could hand out by that.
"""

import tempfile
import time
from pathlib import Path
from typing import Any, Final

import psutil

from tests.farm.conftest import Place, order, place_in

BUILD: Final = 0.2
"""Seconds of a build that sleeps."""
RUN: Final = 0.1
"""Seconds for which a candidate is alone on its machine."""


def main() -> None:
    """Measure a farm here, and print what it does."""
    with tempfile.TemporaryDirectory() as folder, place_in(Path(folder)) as place:
        one = rate(place, "one", 1, 60)
        four = rate(place, "four", 4, 240)
        print(f"1 worker {one:.2f} trials/s, 4 workers {four:.2f}: {four / one:.2f} times")
        print_overhead(place)


def rate(place: Place, label: str, workers: int, trials: int) -> float:
    """Return the trials a second of so many workers; the first round starts threads."""
    for _ in range(workers):
        place.work(label)
    return max(trials / spent(place, label, workers, trials) for _ in range(2))


def spent(place: Place, label: str, workers: int, trials: int) -> float:
    """Return the seconds of so many trials whose builds and timings sleep."""
    with place.farm(label, workers=workers) as (farm, _):
        numbers = {farm.submit(order(build=BUILD, run=RUN), 5.0) for _ in range(4)}
        start = time.monotonic()
        numbers |= {farm.submit(order(build=BUILD, run=RUN), 5.0) for _ in range(trials)}
        while numbers:
            numbers -= farm.answered(numbers).keys()
        return time.monotonic() - start


def print_overhead(place: Place, trials: int = 600) -> None:
    """Print the processor time of a trial that does nothing, by process."""
    started: Any = place.scheduler
    scheduler = psutil.Process(started.pid)
    worker = psutil.Process(place.work("idle").pid)
    with place.farm("idle") as (farm, _):
        agent = psutil.Process(farm._process.pid)  # noqa: SLF001 -- no other caller needs it
        processes = (scheduler, agent, worker)
        before, start = [busy(process) for process in processes], time.monotonic()
        numbers = {farm.submit(order(), 5.0) for _ in range(trials)}
        while numbers:
            numbers -= farm.answered(numbers).keys()
        wall = (time.monotonic() - start) / trials
        cpu = [(busy(p) - b) / trials for p, b in zip(processes, before, strict=True)]
    names = ("scheduler", "agent", "worker")
    figures = ", ".join(f"{name} {1e3 * s:.2f}" for name, s in zip(names, cpu, strict=True))
    print(f"a trial that does nothing: {1e3 * wall:.1f} ms; ms of a processor: {figures}")
    print(f"one scheduler hands out {1 / cpu[0]:.0f} trials/s at most")


def busy(process: psutil.Process) -> float:
    """Return the processor seconds of a process."""
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
