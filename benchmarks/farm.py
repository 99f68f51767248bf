"""What a farm brings: `python benchmarks/farm.py`.

First a farm of sleeping workers is measured over TLS on this machine: trials a second with 1 and
with 4 workers, whose builds and timings sleep as real ones wait, and processor time of a trial that
does nothing. Then a large farm is simulated with these figures, event by event: many models, many
workers, of which some die, one scheduler, and searches on a few cores. It takes three minutes;
`--assume` leaves out the measurement and takes the figures of docs/figures.md.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from farm_simulation import BUILD, RUN, Figures, Scene, Simulation

from tests.farm.conftest import Place, order, place_in


def main() -> None:
    """Measure, simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--assume", action="store_true", help="measure nothing")
    for name, default in (("models", 1000), ("trials", 1000), ("workers", 200)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--dying", type=float, default=0.05, help="part of the workers, an hour")
    options = parser.parse_args()
    figures = Figures() if options.assume else measured()
    scene = Scene(options.models, options.trials, options.workers, dying=options.dying)
    for line in Simulation(scene, figures).run():
        print(line, flush=True)


def measured() -> Figures:
    """Measure a farm here, and print what it does."""
    with tempfile.TemporaryDirectory() as folder, place_in(Path(folder)) as place:
        one = rate(place, "one", 1, 60)
        four = rate(place, "four", 4, 240)
        print(f"1 worker {one:.2f} trials/s, 4 workers {four:.2f}: {four / one:.2f} times")
        return overhead(place)


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


def overhead(place: Place, trials: int = 600) -> Figures:
    """Return the processor time of a trial that does nothing, by process, and print its sum."""
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
        found = [(busy(p) - b) / trials for p, b in zip(processes, before, strict=True)]
    figures = ", ".join(f"{name} {1e3 * value:.2f}" for name, value in
                     zip(("scheduler", "agent", "worker"), found, strict=True))  # fmt: skip
    print(f"a trial that does nothing: {1e3 * wall:.1f} ms; ms of a processor: {figures}")
    return Figures(*found)


def busy(process: psutil.Process) -> float:
    """Return the processor seconds of a process."""
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
