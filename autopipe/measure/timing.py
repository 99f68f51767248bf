"""Time a compiled candidate: single calls with a model's caches, or many calls in a loop."""

import math
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Final

import tvm
import tvm_ffi

from autopipe.config.tuning import Measure
from autopipe.measure import tensors as made
from autopipe.measure.build import Kernel
from autopipe.measure.device import copy_to_device, is_off_host
from autopipe.measure.measurement import Measurement, to_measurement

_SLOWER: Final = 1.3
"""If both of two warm runs, or of two single calls with a model's caches, take this multiple of the
best time, the trial ends: it cannot win."""

_COLD: Final = 4.0
"""The same for the first run, which also starts threads and touches memory."""

_START: Final = 2e-3
"""Seconds the first run may lose to starting threads."""

_CALL: Final = 1e-5
"""Seconds a single warm run may lose to the call from Python."""

_PREPARE: Final = "autopipe.before_each_call"
"""Name under which TVM's evaluator finds the function to call before each timed call."""

_MAX_SINGLE_CALLS: Final = 40
"""Largest number of single calls per repeat, which is their median: more add no information."""

Prepare = Callable[..., None]
"""Brings the caches into the state in which a kernel is called."""

CacheMaker = Callable[[Sequence[tvm.runtime.Tensor]], Prepare]
"""Builds the preparation of a call with certain arguments."""


def use_threads(count: int) -> None:
    """Set the number of kernel threads; must be called before the first kernel runs.

    TVM would use half of the processors, assuming the others to be hyper-threads.
    """
    os.environ["TVM_NUM_THREADS"] = str(count)


@dataclass(frozen=True, slots=True)
class TimedCall:
    """A call of a kernel of a library with tensors on a device."""

    library: tvm.runtime.Module
    tensors: Sequence[tvm.runtime.Tensor]
    device: tvm.runtime.Device
    name: str = "main"
    """The name of the kernel."""

    @classmethod
    def of(
        cls, kernel: Kernel, device: tvm.runtime.Device, weights: Collection[int] = ()
    ) -> "TimedCall":
        """Create the arguments of a kernel; `weights` are those in the memory of weights."""
        tensors = copy_to_device(make_operands(kernel.module, weights), device)
        return cls(kernel.library, tensors, device, kernel.name)

    def time_once(self) -> float:
        """Time one call, in seconds.

        A device times it itself: a GPU returns before its kernel has run, and a network adds
        latency.
        """
        if is_off_host(self.device):
            return self.time_repeats(1, 1)[0]
        kernel = self.library[self.name]
        start = perf_counter()
        kernel(*self.tensors)
        return perf_counter() - start

    def time_repeats(self, number: int, repeat: int, prepare: str = "") -> list[float]:
        """Time repeats of `number` calls by TVM's evaluator, in seconds of a call.

        `prepare` is the name of the function that is called before each repeat.
        """
        evaluate = self.library.time_evaluator(
            self.name, self.device, number=number, repeat=repeat, f_preproc=prepare
        )
        return [float(value) for value in evaluate(*self.tensors).results]


def time_call(
    call: TimedCall, limits: Measure, best: float, caches: CacheMaker | None = None
) -> Measurement:
    """Time a call of a kernel; `best` is the time in seconds to beat.

    `caches` builds the function that brings the caches into a model's state before each call;
    without it the kernel is called in a loop.
    """
    cold = call.time_once()
    # code has to be uploaded to a device first
    if cold > _COLD * best + _START and not is_off_host(call.device):
        return to_measurement((cold,), cut=True)
    enough = _SLOWER * best + _CALL
    warm = call.time_once()
    if warm > enough:
        warm = min(warm, call.time_once())
    if warm > enough:
        return to_measurement((warm,), cut=True)
    if caches is not None:
        return _time_single_calls(call, limits, enough, caches(call.tensors))
    number = max(1, math.ceil(limits.min_repeat / max(warm, 1e-9)))
    return to_measurement(tuple(call.time_repeats(number, limits.repeat)), cut=False)


def _time_single_calls(
    call: TimedCall, limits: Measure, enough: float, prepare: Prepare
) -> Measurement:
    """Time single calls; a repeat is the median of as many as fit into its time.

    If both of the first two take longer than `enough` seconds, the trial ends: the preparation of
    each call takes longer than most kernels.
    """
    tvm_ffi.register_global_func(_PREPARE, prepare, override=True)
    start = perf_counter()
    seconds = call.time_repeats(1, 1, _PREPARE)
    fitting = int(limits.min_repeat / (perf_counter() - start))
    number = max(1, min(fitting, _MAX_SINGLE_CALLS))
    if seconds[0] > enough:
        seconds += call.time_repeats(1, 1, _PREPARE)
        if min(seconds) > enough:
            return to_measurement((min(seconds),), cut=True)
    if (left := number * limits.repeat - len(seconds)) > 0:
        seconds += call.time_repeats(1, left, _PREPARE)
    starts = range(0, number * limits.repeat, number)
    return to_measurement(tuple(median(seconds[at : at + number]) for at in starts), cut=False)


def make_operands(module: tvm.IRModule, weights: Collection[int] = ()) -> list[tvm.runtime.Tensor]:
    """Create arguments for `main`, the same values every time; `weights` by position.

    Floats in [0.1, 1), integers 0 and 1: they may be indices, and these two are inside every axis
    that is longer than one.
    """
    ports = made.list_ports(module["main"])
    weight_tensors = iter(
        made.make_weight_tensors([port for at, port in enumerate(ports) if at in weights])
    )
    return [
        next(weight_tensors) if at in weights else made.make_tensor(*port)
        for at, port in enumerate(ports)
    ]
