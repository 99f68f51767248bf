"""Loads and times a model with one competitor, as the main program of a child process.

Each competitor has its own process, because idle threads of a loaded runtime spin and would take a
core from another one.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

import numpy as np
from safetensors.numpy import load_file

from autopipe.artifacts.benchmark import RoundConditions
from autopipe.benchmarking.competitors import COMPETITORS, Run
from autopipe.benchmarking.conditions import read_counters
from autopipe.config.benchmark import Benchmark
from autopipe.errors import StageError
from autopipe.host.control_groups import read_cpu_quota
from autopipe.host.stopwatch import time_calls
from autopipe.processes import call
from autopipe.store import arrays

_WARM: Final = 0.2
"""Minimum seconds of warmup: a processor needs milliseconds to reach its frequency, and a run of a
small model takes microseconds."""

_LONG: Final = 0.3
"""Minimum seconds of counted runs."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A round of one competitor."""

    seconds: list[float]
    """Of each counted run."""
    version: str
    """Version of its runtime."""
    conditions: RoundConditions
    """The load of the machine meanwhile."""


def time_contender(
    name: str, path: Path, inputs: Path, options: Benchmark, threads: int | None = None
) -> Timed:
    """Time one round of a competitor.

    `path` is a LIBRARY artifact for `autopipe`, an ONNX model for a reference runtime; `inputs` is
    a safetensors file. Outputs are written to `find_outputs_path`. A reference runtime uses
    `threads`, by default all processors; the build uses those it was built for. Raises StageError
    if the competitor fails or exceeds its time limit.
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
    """Return the path of a competitor's outputs, for a file of inputs."""
    return inputs.with_name(f"{name}.outputs")


def _answer_request(request: call.Answer) -> call.Answer:
    cpus = os.sched_getaffinity(0)  # before a runtime pins this thread to one of them
    competitor = COMPETITORS.get(request["contender"])
    path, inputs = Path(request["path"]), load_file(request["inputs"])
    threads = request["threads"] or len(cpus)
    run = competitor.prepare(path, inputs, threads) if competitor else _load_build(path, inputs)
    outputs = {str(place): np.ascontiguousarray(array) for place, array in enumerate(run())}
    arrays.save(outputs, Path(request["outputs"]))
    time_calls(run, request["warmup"], _WARM)
    before = read_counters(cpus)
    seconds = time_calls(run, request["repeat"], _LONG)
    conditions = before.until(read_counters(cpus), len(cpus), read_cpu_quota())
    return {
        "seconds": seconds,
        "version": version(competitor.module if competitor else "autopipe"),
        "conditions": conditions.model_dump(),
    }


def _load_build(library: Path, inputs: Mapping[str, np.ndarray]) -> Run:
    from autopipe.compiler.library.runtime import load_artifact

    model = load_artifact(library)
    return lambda: list(model(inputs).values())


if __name__ == "__main__":
    call.serve_request(_answer_request)
