"""Time built models as packages run them: in a process of its own, without instrument.

The time of a model depends on where its process happens to place its memory and its threads, for
all of its calls: of two processes that run the same library one may be slower by some percent. So
a process counts as one sample, and libraries are compared by many of them. Each loads all compared
libraries, which then run in alternation, so that disturbances affect them alike.
Only the weights are synthetic.
"""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from autopipe.artifacts.document import Part
from autopipe.artifacts.signature import Port, Signature
from autopipe.compiler.library.loaded_model import allocate_aligned
from autopipe.compiler.library.runtime import as_tensor, load_with
from autopipe.errors import StageError
from autopipe.host.stopwatch import compute_lower_quartile, time_calls
from autopipe.measure import values
from autopipe.processes import call, failure
from autopipe.processes.contained import Failed

_WARM: Final = 0.15
"""Least seconds of warm-up runs: threads start, and the processor raises its frequency."""

_FEWEST_WARM: Final = 2

_TURN: Final = 0.05
"""Least seconds of one turn; its first run finds the caches of another model, and does not
count."""

_TURNS: Final = 4

_FEWEST: Final = 2
"""Least number of timed runs of a turn."""

Shape = tuple[tuple[int, ...], str]
"""Shape and dtype of a tensor."""


class ShippedModel(Part, frozen=True):
    """A folder with the library of a model, and its signature."""

    folder: Path
    inputs: tuple[Shape, ...]
    weights: tuple[Shape, ...]
    outputs: int
    """Number of output tensors."""
    threads: int
    steps: tuple[int, ...] = ()
    """Multiples of each size, for a model with dynamic shapes that is specialized for one."""

    def load(self) -> Callable[[], object]:
        """Load it; return a function that runs it once, with checks and copies as in a package."""
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


def _make_port(at: int, shape: tuple[int, ...], dtype: str) -> Port:
    return Port.model_validate({"name": str(at), "shape": shape, "dtype": dtype})


def _fill_array(array: np.ndarray) -> np.ndarray:
    values.fill_array(array.reshape(-1))
    return array


def time_models(models: Sequence[ShippedModel], timeout: float) -> list[float]:
    """Time one run of each model in a process of its own, in seconds. Raises Failed."""
    request = {"models": [model.document() for model in models]}
    try:
        answer = call.run_module(__name__, request, timeout=timeout)
    except StageError as error:
        raise Failed(failure.describe_raised(error)) from error
    return list(map(float, answer["seconds"]))


def time_lower_quartiles(runs: Sequence[Callable[[], object]]) -> list[float]:
    """Return the lower quartile of the times of each run, in seconds."""
    for run in runs:
        time_calls(run, _FEWEST_WARM, _WARM)
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(_TURNS):
        for run, run_times in zip(runs, times, strict=True):
            run()
            run_times.extend(time_calls(run, _FEWEST, _TURN))
    return list(map(compute_lower_quartile, times))


def _answer_request(request: call.Answer) -> call.Answer:
    return {
        "seconds": time_lower_quartiles(
            [ShippedModel.model_validate(one).load() for one in request["models"]]
        )
    }


if __name__ == "__main__":
    call.serve_request(_answer_request)
