"""Profile a model by node with onnxruntime's profiler, in a child process."""

import os
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autopipe import foreign
from autopipe.errors import StageError
from autopipe.host.onnx_session import open_session
from autopipe.host.stopwatch import compute_lower_quartile, time_calls
from autopipe.processes import call

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

_LARGEST: Final = 256 << 20
"""Maximum size of a profile in bytes."""
_SUFFIX: Final = "_kernel_time"
"""Suffix of onnxruntime for the kernel time of a node."""
_WARM: Final = 3


def profile_reference(
    model: Path, shapes: Mapping[str, Sequence[int]], threads: int, runs: int
) -> dict[str, float]:
    """Measure the seconds of each node of onnxruntime's graph in a run, by name; `""` is the run.

    Inputs are zeros of these shapes. Raises StageError.
    """
    request = {
        "model": str(model.absolute()), "runs": runs, "threads": threads,
        "shapes": {name: list(shape) for name, shape in shapes.items()},
    }  # fmt: skip
    try:
        return {
            str(name): float(value) for name, value in call.run_module(__name__, request).items()
        }
    except StageError as error:
        raise StageError(f"onnxruntime cannot profile {model.name}: {error}") from None


def compute_node_times(events: Sequence[object], runs: int) -> dict[str, float]:
    """Compute the seconds of each node in a run from the events of a profile of so many runs."""
    times: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if not isinstance(event, dict) or event.get("cat") != "Node":
            continue
        name, length = event.get("name"), event.get("dur")
        if isinstance(name, str) and name.endswith(_SUFFIX) and isinstance(length, int | float):
            times[name.removesuffix(_SUFFIX)].append(float(length) / 1e6)
    return {name: _estimate_run_time(own, runs) for name, own in times.items()}


def _estimate_run_time(times: Sequence[float], runs: int) -> float:
    """Return the mean of the faster half of runs, because times are rounded to microseconds."""
    calls = max(1, len(times) // runs)
    by_run = sorted(sum(times[at : at + calls]) for at in range(0, len(times), calls))
    faster_half = by_run[: max(1, (len(by_run) + 1) // 2)]
    return sum(faster_half) / len(faster_half)


def _answer_request(request: call.Answer) -> call.Answer:
    import numpy as np
    import onnxruntime

    threads, runs = int(request["threads"]), int(request["runs"])

    def session(prefix: str | None) -> "InferenceSession":
        options = onnxruntime.SessionOptions()
        if threads != len(os.sched_getaffinity(0)):
            options.intra_op_num_threads = threads
        if prefix is not None:
            options.enable_profiling, options.profile_file_prefix = True, prefix
        return open_session(request["model"], options)

    plain = session(None)
    types = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16"}
    feeds = {
        port.name: np.zeros(
            request["shapes"][port.name],
            types.get(port.type, port.type.removeprefix("tensor(").removesuffix(")")),
        )
        for port in plain.get_inputs()
    }
    times = time_calls(partial(plain.run, None, feeds), _WARM + runs)
    del plain
    with tempfile.TemporaryDirectory(prefix="autopipe-") as folder:
        profiling_session = session(str(Path(folder, "profile")))
        for _ in range(_WARM + runs):
            profiling_session.run(None, feeds)
        path = Path(profiling_session.end_profiling())
        events = foreign.parse(foreign.read(path, _LARGEST))
    event_list = events if isinstance(events, list) else []
    return {
        **compute_node_times(event_list, _WARM + runs),
        "": compute_lower_quartile(times[_WARM:]),
    }


if __name__ == "__main__":
    call.serve_request(_answer_request)
