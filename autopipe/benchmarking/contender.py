"""One contender: loads a model and times it, as the main program of its own process.

Its process is all it has in common with the others: the idle threads of a runtime that is only
loaded spin, and steal a core from whatever is timed beside it.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

import numpy as np
from safetensors.numpy import load_file

from autopipe.artifacts.benchmark import RoundConditions
from autopipe.benchmarking.conditions import glance
from autopipe.benchmarking.quota import quota
from autopipe.config import Benchmark
from autopipe.errors import StageError
from autopipe.processes import call

_Run = Callable[[], object]

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


def time_contender(name: str, path: Path, inputs: Path, options: Benchmark) -> Timed:
    """Time one round of a contender.

    `path` is a LIBRARY artifact for `autopipe`, an ONNX model for a rival; `inputs` a safetensors
    file. Raises StageError where the contender fails or takes too long.
    """
    request = {
        "contender": name,
        "path": str(path),
        "inputs": str(inputs),
        "warmup": options.warmup,
        "repeat": options.repeat,
    }
    try:
        answer = call.call(__name__, request, timeout=options.timeout)
    except StageError as error:
        raise StageError(f"contender {name}: {error}") from None
    conditions = RoundConditions.model_validate(answer["conditions"])
    return Timed(list(answer["seconds"]), str(answer["version"]), conditions)


def _answer(request: call.Answer) -> call.Answer:
    cpus = os.sched_getaffinity(0)  # before a runtime pins this thread to one of them
    prepare = _autopipe if request["contender"] == "autopipe" else _onnxruntime
    run = prepare(Path(request["path"]), load_file(request["inputs"]))
    _times(run, request["warmup"], _WARM)
    before = glance(cpus)
    seconds = _times(run, request["repeat"], _LONG)
    conditions = before.until(glance(cpus), len(cpus), quota())
    return {
        "seconds": seconds,
        "version": version(request["contender"]),
        "conditions": conditions.model_dump(),
    }


def _times(run: _Run, count: int, seconds: float) -> list[float]:
    """Return the times of `count` runs, and of as many more as fit into `seconds`."""
    end = time.perf_counter() + seconds
    times = [_seconds(run) for _ in range(count)]
    while time.perf_counter() < end:
        times.append(_seconds(run))
    return times


def _seconds(run: _Run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _autopipe(library: Path, inputs: Mapping[str, np.ndarray]) -> _Run:
    from autopipe.compiler.library.runtime import load_artifact

    model = load_artifact(library)
    return lambda: model(inputs)


def _onnxruntime(model: Path, inputs: Mapping[str, np.ndarray]) -> _Run:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    try:
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no public base
        raise StageError(str(error).strip().splitlines()[0]) from error
    return lambda: session.run(None, inputs)


if __name__ == "__main__":
    call.serve(_answer)
