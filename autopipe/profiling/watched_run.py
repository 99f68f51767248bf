"""Runs a build and times each call of its virtual machine: the main program of a child process.

Kernels are called by the watch itself, so that only the call is timed; the overhead of such a call
is measured and subtracted. The whole run is timed without a watch.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from autopipe.artifacts.signature import Port, Signature
from autopipe.benchmarking.conditions import read_counters
from autopipe.compiler.library.model_instances import Instance
from autopipe.compiler.library.prepared_run import PreparedRun
from autopipe.compiler.library.runtime import load_artifact
from autopipe.config.problem import format_value
from autopipe.errors import ConfigError, StageError
from autopipe.host.control_groups import read_cpu_quota
from autopipe.host.stopwatch import compute_lower_quartile, time_call
from autopipe.measure.call_watch import CallWatch, set_watch
from autopipe.packaging.infer_child import read_inputs
from autopipe.packaging.open import open_package
from autopipe.processes import call
from autopipe.profiling.profile import WatchedCall

if TYPE_CHECKING:
    from tvm.runtime import Tensor

_BUILTIN: Final = "vm."
"""Prefix of the names of builtins of the virtual machine."""
_REPEATABLE: Final = frozenset(
    f"vm.builtin.{name}"
    for name in (
        "alloc_storage", "alloc_tensor", "check_shape_info", "check_tensor_info",
        "check_tuple_info", "make_shape", "match_shape", "null_value", "reshape", "shape_of",
    )
)  # fmt: skip
"""Builtins that may be called twice. The virtual machine's own call cannot be timed as precisely,
because its arguments have to be converted for the watch first."""
_WARM: Final = 0.3
"""Seconds of warmup."""
_PROBES: Final = 300


class _RunWatch(CallWatch):
    """Records the calls of a run, and times its kernels or its builtins.

    Timing one disturbs the other, so they are timed in separate runs. Functions of the graph are
    entered but not timed.
    """

    def __init__(
        self, bodies: frozenset[str], overhead: Callable[[int], float], *, kernels: bool,
        described: bool,
    ) -> None:  # fmt: skip
        self._bodies = bodies
        self._overhead = overhead
        self._kernels = kernels
        self._described = described
        self._open: list[WatchedCall | None] = []
        self._origin = perf_counter()
        self.calls: list[WatchedCall] = []

    def begin(self, function: Callable[..., object], symbol: str, arguments: Sequence[Any]) -> bool:
        if symbol in self._bodies:
            self._open.append(None)
            return False
        kernel = not symbol.startswith(_BUILTIN)
        call = WatchedCall(symbol, kernel, perf_counter() - self._origin)
        self.calls.append(call)
        if self._described and kernel:
            _record_tensors(call, arguments)
        if kernel != self._kernels:
            self._open.append(None)
            return False
        if not kernel and symbol not in _REPEATABLE:
            self._open.append(call)
            call.start = perf_counter() - self._origin
            return False
        start = perf_counter()
        result = function(*arguments)
        seconds = perf_counter() - start
        del result
        call.seconds = max(0.0, seconds - self._overhead(len(arguments)))
        if not kernel:  # the virtual machine needs its result, and calls it, too
            self._open.append(None)
        return kernel

    def end(self, symbol: str) -> None:  # noqa: ARG002 - calls are nested
        end = perf_counter() - self._origin
        call = self._open.pop() if self._open else None
        if call is not None:
            call.seconds = max(0.0, end - call.start - self._overhead(0))


def _record_tensors(call: WatchedCall, arguments: Sequence[Any]) -> None:
    tensors = [one for one in arguments if hasattr(one, "shape") and hasattr(one, "dtype")]
    call.shapes = [[int(size) for size in one.shape] for one in tensors]
    call.bytes = sum(
        _count_bytes(shape, one) for shape, one in zip(call.shapes, tensors, strict=True)
    )


def _count_bytes(shape: Sequence[int], tensor: "Tensor") -> int:
    bits = int(getattr(tensor.dtype, "bits", 32)) * int(getattr(tensor.dtype, "lanes", 1))
    return int(np.prod(shape, dtype=np.int64)) * max(bits, 8) // 8


def _make_overhead_estimate() -> Callable[[int], float]:
    """Return a function that measures the overhead of an empty call, by its number of tensors."""
    from tvm_ffi import from_dlpack, get_global_func

    nothing = get_global_func("ffi.Array")  # which takes any number, and next to no time
    tensor = from_dlpack(np.zeros(16, "float32"))
    costs: dict[int, float] = {}

    def cost(count: int) -> float:
        if count not in costs:
            tensors = [tensor] * count
            costs[count] = min(time_call(lambda: nothing(*tensors)) for _ in range(_PROBES))
        return costs[count]

    return cost


def _watch_runs(
    run: PreparedRun, bodies: frozenset[str], count: int
) -> tuple[list[WatchedCall], list[float]]:
    """Return the calls of a run with the lower quartiles of their times in `count` runs.

    Also returns the seconds of uninstrumented runs, which alternate with these.
    """
    overhead = _make_overhead_estimate()
    for tensors in range(12):
        overhead(tensors)
    first = _watch_once(run, _RunWatch(bodies, overhead, kernels=True, described=True))
    symbols = [one.symbol for one in first]
    times: list[list[float]] = [[] for _ in first]
    run_times = []
    for at in range(2 * count):
        run()
        run_times.append(time_call(run))
        calls = _watch_once(run, _RunWatch(bodies, overhead, kernels=at % 2 == 0, described=False))
        if [one.symbol for one in calls] != symbols:
            raise StageError("two runs on the same inputs make other calls")
        for watched, call_times in zip(calls, times, strict=True):
            if watched.seconds is not None:
                call_times.append(watched.seconds)
    for watched, call_times in zip(first, times, strict=True):
        watched.seconds = compute_lower_quartile(call_times) if call_times else 0.0
    return first, run_times


def _watch_once(run: PreparedRun, watch: _RunWatch) -> list[WatchedCall]:
    set_watch(run.machine, watch)
    try:
        run()
    finally:
        set_watch(run.machine, None)
    return watch.calls


def _answer_request(request: call.Answer) -> call.Answer:
    cpus = os.sched_getaffinity(0)  # before a runtime pins this thread to one of them
    path, threads = Path(request["path"]), request["threads"]
    loaded = open_package(path, threads=threads) if path.is_file() else load_artifact(path, threads)
    model = cast("Instance", loaded)  # never a model of several instances
    input_files = request["inputs"]
    arrays = (
        read_inputs(model.signature, input_files)
        if input_files
        else make_zero_inputs(model.signature, request["sizes"])
    )
    model(arrays)
    end = perf_counter() + _WARM
    while perf_counter() < end:
        model(arrays)
    run, count = PreparedRun(model), int(request["runs"])
    before = read_counters(cpus)
    calls, run_times = _watch_runs(run, frozenset(request["bodies"]), count)
    call_seconds = compute_lower_quartile([time_call(lambda: model(arrays)) for _ in range(count)])
    conditions = before.until(read_counters(cpus), len(cpus), read_cpu_quota())
    return {
        "calls": list(map(asdict, calls)), "whole": run_times, "call": call_seconds,
        "library": run.library,
        "conditions": conditions.model_dump(),
        "threads": threads or model.signature.threads, "shapes": _list_shapes(arrays),
    }  # fmt: skip


def _list_shapes(arrays: Mapping[str, np.ndarray]) -> dict[str, list[int]]:
    return {name: list(array.shape) for name, array in arrays.items()}


def make_zero_inputs(signature: Signature, sizes: Sequence[str]) -> dict[str, np.ndarray]:
    """Return zeros for each input; `sizes` are texts such as `input:0=4` for dynamic dimensions.

    Raises ConfigError for a size that the model does not take.
    """
    chosen_sizes = {name: one.last for name, one in signature.dimensions.items()}
    for text in sizes:
        name, value = _read_size(signature.inputs, text)
        if reason := signature.dimensions[name].refusal(value):
            raise ConfigError(f"--size {format_value(text)}: {name} {reason}")
        chosen_sizes[name] = value
    return {port.name: np.zeros(port.shape, port.dtype) for port in signature.at(chosen_sizes)}


def _read_size(ports: Sequence[Port], text: str) -> tuple[str, int]:
    """Parse `INPUT[:AXIS]=N` to the name of a dynamic dimension and its size."""
    place, _, number = text.rpartition("=")
    name, colon, axis = place.rpartition(":")
    port = next((one for one in ports if one.name == (name if colon else place)), None)
    if port is None and colon:
        port = next((one for one in ports if one.name == place), None)
        axis = ""
    try:
        at = int(axis) if colon and axis else 0
        if port is not None and port.dimensions[at].isidentifier():
            return port.dimensions[at], int(number)
    except (ValueError, IndexError):
        pass
    raise ConfigError(f"--size {format_value(text)}: write INPUT[:AXIS]=N of a dynamic dimension")


if __name__ == "__main__":
    call.serve_request(_answer_request)
