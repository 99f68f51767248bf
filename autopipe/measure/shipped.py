"""Built models as packages run them: loaded by a program of its own, which nobody watches.

What a model takes depends on where its process happens to lay its memory, and its threads, the same
for all of its calls: of two processes that run the same library one may be slower by some percent.
So a process counts once, whatever it times, and libraries are compared by many of them. Each loads
all libraries that are compared, which then take turns of some runs, so that what disturbs the
process disturbs them alike.
Only the weights are made up.
"""

import os
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any, Final, Self

import numpy as np

from autopipe.artifacts.signature import Port, Signature
from autopipe.compiler.library.loaded_model import allocate_aligned
from autopipe.compiler.library.runtime import as_tensor, load_with
from autopipe.errors import StageError
from autopipe.measure import values
from autopipe.processes import call, failure
from autopipe.processes.contained import Failed

_WARM: Final = 0.15
"""Seconds of runs that do not count, at least: threads begin, and a processor gets up to speed."""

_FEWEST_WARM: Final = 2

_TURN: Final = 0.05
"""Seconds of one turn, at least; its first run finds the caches as another model left them, and
does not count."""

_TURNS: Final = 4

_FEWEST: Final = 2
"""Runs of a turn that count."""

Shape = tuple[tuple[int, ...], str]
"""Shape and dtype of a tensor."""


@dataclass(frozen=True, slots=True)
class ShippedModel:
    """A folder with the library of a model, and how that is called."""

    folder: Path
    inputs: tuple[Shape, ...]
    weights: tuple[Shape, ...]
    outputs: int
    """How many tensors it returns."""
    threads: int
    steps: tuple[int, ...] = ()
    """Multiples of each size, of a model with open sizes at one of them."""

    @classmethod
    def of(cls, found: dict[str, Any]) -> Self:
        """Return what was sent as JSON."""
        ports = {name: tuple(map(_parse_shape, found[name])) for name in ("inputs", "weights")}
        return cls(Path(found["folder"]), **ports, outputs=found["outputs"],
                   threads=found["threads"], steps=tuple(found["steps"]))  # fmt: skip

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "folder": str(self.folder), "inputs": list(self.inputs), "weights": list(self.weights),
            "outputs": self.outputs, "threads": self.threads,
            "steps": list(self.steps),
        }  # fmt: skip

    def load(self) -> Callable[[], object]:
        """Load it and return one run, with checks and copies as in a package."""
        ports = tuple(_make_port(at, *one) for at, one in enumerate(self.inputs))
        shapes = {f"w{at}": one for at, one in enumerate(self.weights)}
        outputs = tuple(_make_port(at, (), "float32") for at in range(self.outputs))  # names count
        signature = Signature(
            inputs=ports, outputs=outputs, weights=tuple(shapes), threads=self.threads
        )

        def made_up(names: Collection[str]) -> dict[str, object]:
            arrays = values.make_weight_arrays([shapes[name] for name in names])
            return {name: as_tensor(array) for name, array in zip(names, arrays, strict=True)}

        model = load_with(self.folder, signature, made_up, self.steps)
        inputs = {
            port.name: _fill_array(allocate_aligned(port.shape, port.dtype)) for port in ports
        }
        return lambda: model(inputs)


def _parse_shape(found: Sequence[Any]) -> Shape:
    shape, dtype = found
    return tuple(shape), dtype


def _make_port(at: int, shape: tuple[int, ...], dtype: str) -> Port:
    return Port.model_validate({"name": str(at), "shape": shape, "dtype": dtype})


def _fill_array(array: np.ndarray) -> np.ndarray:
    values.fill_array(array.reshape(-1))
    return array


def time_models(models: Sequence[ShippedModel], timeout: float) -> list[float]:
    """Return the seconds of one run of each, in a process that ends thereafter. Raises Failed."""
    request = {"models": [model.document() for model in models]}
    try:
        answer = call.run_module(__name__, request, timeout=timeout)
    except StageError as error:
        raise Failed(failure.describe_raised(error)) from error
    return list(map(float, answer["seconds"]))


def time_lower_quartiles(runs: Sequence[Callable[[], object]]) -> list[float]:
    """Return what each run takes: a quarter of its runs are faster.

    Others on the machine make some runs slower, and nothing makes one faster for once.
    """
    for run in runs:
        _time_runs(run, _FEWEST_WARM, _WARM)
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(_TURNS):
        for run, own in zip(runs, times, strict=True):
            run()
            own.extend(_time_runs(run, _FEWEST, _TURN))
    return [quantiles(own, n=4, method="inclusive")[0] for own in times]


def _time_runs(run: Callable[[], object], fewest: int, seconds: float) -> list[float]:
    end = time.perf_counter() + seconds
    times: list[float] = []
    while len(times) < fewest or time.perf_counter() < end:
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return times


def _answer_request(request: call.Answer) -> call.Answer:
    return {
        "seconds": time_lower_quartiles([ShippedModel.of(one).load() for one in request["models"]])
    }


if __name__ == "__main__":
    call.serve_request(_answer_request)
    # To end in order waits for TVM's thread, which gives its core away 300,000 times before it
    # looks whether it shall end: on a busy machine that takes up to a minute.
    os._exit(0)
