"""One contender: loads a model and times it, as the main program of its own process.

Its process is all it has in common with the others: the idle threads of a runtime that is only
loaded spin, and steal a core from whatever is timed beside it.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

import numpy as np
from safetensors.numpy import load_file

from autopipe.artifacts.benchmark import RoundConditions
from autopipe.benchmarking.conditions import read_counters
from autopipe.benchmarking.quota import read_cpu_quota
from autopipe.benchmarking.rivals import RIVALS, Run
from autopipe.config.benchmark import Benchmark
from autopipe.errors import StageError
from autopipe.processes import call
from autopipe.store import arrays

_WARM: Final = 0.2
"""Seconds of warming up, at least: a processor needs milliseconds to reach its speed, and a small
model is over in microseconds."""

_LONG: Final = 0.3
"""Seconds of counted runs, at least."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A round of one contender."""

    seconds: list[float]
    """Of each counted run."""
    version: str
    """Version of its runtime."""
    conditions: RoundConditions
    """What the machine did meanwhile."""


def time_contender(
    name: str, path: Path, inputs: Path, options: Benchmark, threads: int | None = None
) -> Timed:
    """Time one round of a contender.

    `path` is a LIBRARY artifact for `autopipe`, an ONNX model for a rival; `inputs` a safetensors
    file, and `find_outputs_path` says where beside it the outputs are written. A rival takes so
    many `threads`, all processors if none are given; the build has those it was built for.
    Raises StageError where the contender fails or takes too long.
    """
    request = {
        "contender": name,
        "path": str(path),
        "inputs": str(inputs),
        "threads": threads,
        "outputs": str(find_outputs_path(name, inputs)),
        "warmup": options.warmup,
        "repeat": options.repeat,
    }
    try:
        answer = call.run_module(__name__, request, timeout=options.timeout)
    except StageError as error:
        raise StageError(f"contender {name}: {error}") from None
    conditions = RoundConditions.model_validate(answer["conditions"])
    return Timed(list(answer["seconds"]), str(answer["version"]), conditions)


def find_outputs_path(name: str, inputs: Path) -> Path:
    """Return the file of a contender's outputs by their places, for a file of inputs."""
    return inputs.with_name(f"{name}.outputs")


def _answer_request(request: call.Answer) -> call.Answer:
    cpus = os.sched_getaffinity(0)  # before a runtime pins this thread to one of them
    rival = RIVALS.get(request["contender"])
    path, inputs = Path(request["path"]), load_file(request["inputs"])
    threads = request["threads"] or len(cpus)
    run = rival.prepare(path, inputs, threads) if rival else _load_build(path, inputs)
    made = {str(place): np.ascontiguousarray(array) for place, array in enumerate(run())}
    arrays.save(made, Path(request["outputs"]))
    _time_runs(run, request["warmup"], _WARM)
    before = read_counters(cpus)
    seconds = _time_runs(run, request["repeat"], _LONG)
    conditions = before.until(read_counters(cpus), len(cpus), read_cpu_quota())
    return {
        "seconds": seconds,
        "version": version(rival.module if rival else "autopipe"),
        "conditions": conditions.model_dump(),
    }


def _time_runs(run: Run, count: int, seconds: float) -> list[float]:
    """Return the times of `count` runs, and of as many more as fit into `seconds`."""
    end = time.perf_counter() + seconds
    times = [_time_run(run) for _ in range(count)]
    while time.perf_counter() < end:
        times.append(_time_run(run))
    return times


def _time_run(run: Run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _load_build(library: Path, inputs: Mapping[str, np.ndarray]) -> Run:
    from autopipe.compiler.library.runtime import load_artifact

    model = load_artifact(library)
    return lambda: list(model(inputs).values())


if __name__ == "__main__":
    call.serve_request(_answer_request)
