"""Runs a build and times each call of its virtual machine, as the main program of a child process.

Kernels are called by the watch itself, so that the time of one is that of its call alone; what such
a call costs without a kernel is measured and taken off. The whole is timed with no watch set.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from autopipe.benchmarking.conditions import read_counters
from autopipe.benchmarking.quota import read_cpu_quota
from autopipe.compiler.library.model_instances import Instance
from autopipe.compiler.library.prepared_run import PreparedRun
from autopipe.compiler.library.runtime import load_artifact
from autopipe.errors import StageError
from autopipe.measure.call_watch import set_watch
from autopipe.packaging.infer_child import read_inputs
from autopipe.packaging.open import open_package
from autopipe.processes import call
from autopipe.profiling.quartile import lower_quartile
from autopipe.profiling.sizes import make_zero_inputs

if TYPE_CHECKING:
    from tvm.runtime import Tensor

_BUILTIN: Final = "vm."
"""Names of builtins of the virtual machine begin with it."""
_REPEATABLE: Final = frozenset(
    f"vm.builtin.{name}"
    for name in (
        "alloc_storage", "alloc_tensor", "check_shape_info", "check_tensor_info",
        "check_tuple_info", "make_shape", "match_shape", "null_value", "reshape", "shape_of",
    )
)  # fmt: skip
"""Builtins that may be called twice. The machine's own call of one cannot be timed as closely: what
the watch is given has to be made first."""
_WARM: Final = 0.3
"""Seconds of runs that do not count."""
_PROBES: Final = 300


@dataclass(slots=True)
class WatchedCall:
    """One call of the virtual machine."""

    symbol: str
    kernel: bool
    start: float
    """Seconds since the run began."""
    seconds: float | None = None
    """None where this run does not time it."""
    bytes: int = 0
    """Of all tensors that it was given."""
    shapes: list[list[int]] = field(default_factory=list)


class _RunWatch:
    """Lists the calls of a run, and times its kernels or its builtins.

    To look at one disturbs the other, so that each has runs of its own. Functions of the graph are
    entered and not timed.
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
        self._origin = _read_clock()
        self.calls: list[WatchedCall] = []

    def begin(self, function: Callable[..., object], symbol: str, given: Sequence[Any]) -> bool:
        if symbol in self._bodies:
            self._open.append(None)
            return False
        kernel = not symbol.startswith(_BUILTIN)
        call = WatchedCall(symbol, kernel, _read_clock() - self._origin)
        self.calls.append(call)
        if self._described and kernel:
            _record_tensors(call, given)
        if kernel != self._kernels:
            self._open.append(None)
            return False
        if not kernel and symbol not in _REPEATABLE:
            self._open.append(call)
            call.start = _read_clock() - self._origin
            return False
        begun = _read_clock()
        made = function(*given)
        seconds = _read_clock() - begun
        del made
        call.seconds = max(0.0, seconds - self._overhead(len(given)))
        if not kernel:  # whose result the machine needs, so that it makes the call as well
            self._open.append(None)
        return kernel

    def end(self, symbol: str) -> None:  # noqa: ARG002 - calls are nested
        ended = _read_clock() - self._origin
        call = self._open.pop() if self._open else None
        if call is not None:
            call.seconds = max(0.0, ended - call.start - self._overhead(0))


def _record_tensors(call: WatchedCall, given: Sequence[Any]) -> None:
    tensors = [one for one in given if hasattr(one, "shape") and hasattr(one, "dtype")]
    call.shapes = [[int(size) for size in one.shape] for one in tensors]
    call.bytes = sum(
        _count_bytes(shape, one) for shape, one in zip(call.shapes, tensors, strict=True)
    )


def _read_clock() -> float:
    return time.perf_counter()


def _count_bytes(shape: Sequence[int], tensor: "Tensor") -> int:
    bits = int(getattr(tensor.dtype, "bits", 32)) * int(getattr(tensor.dtype, "lanes", 1))
    return int(np.prod(shape, dtype=np.int64)) * max(bits, 8) // 8


def _make_overhead_estimate() -> Callable[[int], float]:
    """Return what a call costs that does nothing, by how many tensors it is given."""
    from tvm_ffi import from_dlpack, get_global_func

    nothing = get_global_func("ffi.Array")  # which takes any number, and next to no time
    tensor = from_dlpack(np.zeros(16, "float32"))
    known: dict[int, float] = {}

    def cost(count: int) -> float:
        if count not in known:
            given = [tensor] * count
            known[count] = min(_time_run(lambda: nothing(*given)) for _ in range(_PROBES))
        return known[count]

    return cost


def _time_run(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def _watch_runs(
    run: PreparedRun, bodies: frozenset[str], count: int
) -> tuple[list[WatchedCall], list[float]]:
    """Return the calls of a run, each with the lower quartile of its times in `count` runs.

    And the seconds of as many runs that nothing watches, which take turns with these.
    """
    overhead = _make_overhead_estimate()
    for tensors in range(12):
        overhead(tensors)
    first = _watch_once(run, _RunWatch(bodies, overhead, kernels=True, described=True))
    symbols = [one.symbol for one in first]
    times: list[list[float]] = [[] for _ in first]
    whole = []
    for at in range(2 * count):
        run()
        whole.append(_time_run(run))
        calls = _watch_once(run, _RunWatch(bodies, overhead, kernels=at % 2 == 0, described=False))
        if [one.symbol for one in calls] != symbols:
            raise StageError("two runs on the same inputs make other calls")
        for one, own in zip(calls, times, strict=True):
            if one.seconds is not None:
                own.append(one.seconds)
    for one, own in zip(first, times, strict=True):
        one.seconds = lower_quartile(own) if own else 0.0
    return first, whole


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
    opened = open_package(path, threads=threads) if path.is_file() else load_artifact(path, threads)
    model = cast("Instance", opened)  # one of several has no part in this
    given = request["inputs"]
    arrays = (
        read_inputs(model.signature, given)
        if given
        else make_zero_inputs(model.signature, request["sizes"])
    )
    model(arrays)
    end = time.perf_counter() + _WARM
    while time.perf_counter() < end:
        model(arrays)
    run, count = PreparedRun(model), int(request["runs"])
    before = read_counters(cpus)
    calls, whole = _watch_runs(run, frozenset(request["bodies"]), count)
    called = lower_quartile([_time_run(lambda: model(arrays)) for _ in range(count)])
    conditions = before.until(read_counters(cpus), len(cpus), read_cpu_quota())
    return {
        "calls": list(map(asdict, calls)), "whole": whole, "call": called, "library": run.library,
        "conditions": conditions.model_dump(),
        "threads": threads or model.signature.threads, "shapes": _list_shapes(arrays),
    }  # fmt: skip


def _list_shapes(arrays: Mapping[str, np.ndarray]) -> dict[str, list[int]]:
    return {name: list(array.shape) for name, array in arrays.items()}


if __name__ == "__main__":
    call.serve_request(_answer_request)
