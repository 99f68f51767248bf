"""Check that a schedule computes the same as its workload, which MetaSchedule never does."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

import numpy as np
import tvm
from tvm.s_tir import Schedule

from autopipe.compiler.library import linking
from autopipe.compiler.loops.index_inputs import (
    has_computed_indices,
    has_float_reinterpret,
    has_rounding,
)
from autopipe.compiler.recurrence.form import ATTRIBUTE
from autopipe.compiler.target.target import backend_of
from autopipe.errors import StageError
from autopipe.measure.agreement import all_agree, count_terms, find_difference
from autopipe.measure.build import compile_module
from autopipe.measure.cases import Instance, list_instances
from autopipe.measure.device import copy_to_device, is_off_host, prepare_device
from autopipe.measure.function_shifts import ULPS, shift_functions
from autopipe.measure.plain_code import PlainKernel, PlainSource, compile_plain, open_plain
from autopipe.measure.surrounded import Surrounded

VERSION: Final = 11
"""Bump when a schedule that passes now might not have passed before."""

SEED: Final = 0
"""Seed of the inputs."""

NUDGE: Final = 2.0
"""Perturbation of inputs that shows the rounding of the unscheduled loops, in units in the last
place."""

_INSIDE: Final = 2.0**11
"""The same where a function quantizes: there inputs decide on which side of a step a value falls,
and an int8 layer propagates that from step to step."""

_BY_STEPS: Final = 2.0**6
"""The same for a recurrent layer, which accumulates the rounding of hundreds of steps."""

_AROUND_PLAIN: Final = 0x3F
AROUND_SCHEDULE: Final = 0xBF
"""Bytes around the arguments of the unscheduled loops and of a schedule, as floats of different
signs."""

_PART: Final = 1 << 18
"""Bytes of arrays that are compared at once: a part that stays in the caches."""

_FAILURES: Final = (RuntimeError, ValueError, TypeError)
"""Errors that TVM raises where it refuses a module."""


class WrongAnswer(StageError):  # noqa: N818 -- says what happened
    """A schedule changes the result."""

    def __init__(self, reason: str, case: str | None = None, difference: str | None = None) -> None:
        """Set the reason; for a schedule that runs, also the case and the difference."""
        super().__init__(reason)
        self.case = case
        self.difference = difference


class NotChecked(StageError):  # noqa: N818 -- likewise
    """The unscheduled loops themselves cannot be run, so that the check is inconclusive."""


class Unsteady(StageError):  # noqa: N818 -- likewise
    """The unscheduled loops themselves access memory out of bounds: no schedule can be correct."""


def checked(
    workload: tvm.IRModule,
    scheduled_module: tvm.IRModule,
    target: tvm.target.Target,
    plain: PlainKernel | None = None,
) -> tvm.IRModule:
    """Return the scheduled module if it agrees with the workload on random and edge inputs.

    Both run here, the workload on the processor; it is compiled unless it has a `plain` kernel.
    Raises WrongAnswer if they do not agree, or if the schedule cannot be compiled or run,
    NotChecked if the workload cannot, Unsteady if it reads or writes outside of its arguments, and
    ForeignCode, before anything is run, if one of them contains foreign code.
    """
    return PlainLoops(workload, target, plain=plain).check(scheduled_module)


class PlainLoops:
    """The compiled unscheduled loops of a workload, with which its schedules have to agree."""

    def __init__(
        self,
        workload: tvm.IRModule,
        target: tvm.target.Target,
        packing: tvm.tirx.PrimFunc | None = None,
        plain: PlainKernel | None = None,
    ) -> None:
        """Compile them for the processor, and the `packing` of a schedule beside them.

        With a `plain` kernel they are loaded from its library instead. Raises NotChecked if that
        fails, and ForeignCode.
        """
        self._workload = workload
        self._target = target
        self.instances = list_instances(workload)
        """The inputs of the check."""
        source = PlainSource(workload, packing)
        try:
            functions = compile_plain(source) if plain is None else open_plain(plain, source)
        except _FAILURES as error:
            raise NotChecked(f"the plain loops: {error}") from error
        self._plain = functions.loops
        self.packing = functions.packing
        """Packs weights into the layout of the schedule."""

    def check(self, scheduled_module: tvm.IRModule) -> tvm.IRModule:
        """Return the scheduled module if it agrees with them. Raises as `checked`."""
        backend = backend_of(self._target)
        if not backend.runs_unscheduled_loops and scheduled_module.same_as(self._workload):
            raise NotChecked(f"{backend} does not run plain loops")
        place = prepare_device(self._target)
        library = compile_schedule(scheduled_module, self._target)

        def ours(instance: Instance, inputs: list[np.ndarray]) -> list[np.ndarray]:
            mine = Surrounded(inputs, AROUND_SCHEDULE)
            results = call_kernel(library["main"], mine, instance.counts, place)
            if not mine.intact():
                raise make_outside_error(instance.case)
            return results

        self.compare(ours)
        return scheduled_module

    def compare(
        self,
        ours: Callable[[Instance, list[np.ndarray]], list[np.ndarray]],
        instances: Sequence[Instance] | None = None,
    ) -> None:
        """Raise WrongAnswer if `ours`, which returns all arguments after a call, disagrees.

        Weights keep their layout: a schedule repacks them. None for `instances` is all of them.
        Raises Unsteady as `checked`.
        """
        for instance in self.instances if instances is None else instances:
            case = instance.case
            inputs = make_inputs(instance)
            theirs = Surrounded(inputs, _AROUND_PLAIN)
            right = call_kernel(self._plain, theirs, instance.counts)
            if not theirs.intact():
                raise _make_unsteady_error(
                    self._workload, f"write outside of their arguments on {case} inputs"
                )
            right = _drop_copies(right, inputs)
            del theirs
            results = ours(instance, inputs)
            if not all_agree(right, results):
                self._confirm_difference(instance, right, results)

    def _confirm_difference(
        self, instance: Instance, right: list[np.ndarray], ours: list[np.ndarray]
    ) -> None:
        """Raise the error for a difference, unless perturbed unscheduled loops differ as much."""
        case, counts = instance.case, instance.counts
        inputs = make_inputs(instance)
        again = call_kernel(self._plain, Surrounded(inputs, AROUND_SCHEDULE), counts)
        if not all(map(has_same_bytes, right, again)):
            raise _make_unsteady_error(
                self._workload, f"read outside of their arguments on {case} inputs"
            )
        by = _choose_nudge(self._workload["main"])
        nudged_inputs = instance.arguments(SEED, by)
        perturbed_results = [
            call_kernel(self._plain, Surrounded(nudged_inputs, _AROUND_PLAIN), counts)
        ]
        for loops in self._rounded_otherwise:
            inputs = make_inputs(instance)
            perturbed_results.append(call_kernel(loops, Surrounded(inputs, _AROUND_PLAIN), counts))
        function = instance.bind_sizes()["main"]
        results, bits = (right, ours, perturbed_results), has_float_reinterpret(function)
        off = find_difference(results, count_terms(function), bits=bits)
        if off is not None:
            reason = f"off by up to {off} from the plain loops on {case} inputs"
            raise WrongAnswer(reason, case, off)

    @cached_property
    def _rounded_otherwise(self) -> list[Callable[..., object]]:
        """The loops with elementary functions some ulps higher and lower, where each ulp counts.

        Saturated functions are constant on nearby inputs, and values derived from them may lie
        halfway between two quantization steps, or be reinterpreted as bits.
        """
        function = self._workload["main"]
        return [
            compile_plain(PlainSource(shift_functions(self._workload, ulps))).loops
            for ulps in (ULPS, -ULPS)
            if has_rounding(function) or has_float_reinterpret(function)
        ]


def make_inputs(instance: Instance) -> list[np.ndarray]:
    """Create the arguments of an instance, outputs included."""
    return instance.arguments(SEED)


def compile_schedule(
    scheduled_module: tvm.IRModule, target: tvm.target.Target
) -> tvm.runtime.Module:
    """Compile a schedule for a target. Raises WrongAnswer if that fails."""
    try:
        Schedule(scheduled_module, debug_mask="none")  # the build requires well-formed TIR
        linking.load_libraries(scheduled_module)
        return compile_module(scheduled_module, target)
    except _FAILURES as error:
        raise WrongAnswer(f"does not compile: {' '.join(str(error).split())}") from error


def make_outside_error(case: str) -> WrongAnswer:
    """Build the error for a schedule that writes out of bounds on the inputs of a case."""
    return WrongAnswer(f"writes outside of its arguments on {case} inputs", case)


def _choose_nudge(function: tvm.tirx.PrimFunc) -> float:
    """Choose the perturbation of a function's inputs, in units in the last place."""
    if has_rounding(function):
        return _INSIDE
    return _BY_STEPS if ATTRIBUTE in (function.attrs or {}) else NUDGE


def call_kernel(
    function: Callable[..., object],
    inputs: Surrounded,
    counts: tuple[tuple[int, int], ...],
    place: tvm.runtime.Device | None = None,
) -> list[np.ndarray]:
    """Call a kernel, on the processor by default, and return all its arguments.

    On the processor these are the memory of `inputs`.
    """
    place = place or tvm.cpu()
    tensors = copy_to_device(inputs.tensors, place)
    arguments: list[object] = list(tensors)
    for at, count in counts:
        arguments.insert(at, count)
    function(*arguments)
    return [tensor.numpy() for tensor in tensors] if is_off_host(place) else inputs.arrays


def _make_unsteady_error(workload: tvm.IRModule, access: str) -> StageError:
    """Build the error for such loops: with computed indices, the check's inputs may be invalid."""
    if has_computed_indices(workload["main"]):
        return NotChecked(f"the plain loops {access}, which may be wrong indices")
    return Unsteady(f"its plain loops {access}: no schedule of them can be right")


def _drop_copies(results: list[np.ndarray], inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Replace unchanged copies of inputs by these: weights of a layer may be large."""
    return [
        given if has_same_bytes(result, given) else result
        for result, given in zip(results, inputs, strict=True)
    ]


def has_same_bytes(first: np.ndarray, second: np.ndarray) -> bool:
    """Compare two arrays by their bytes, without a copy of contiguous ones."""
    left, right = (
        np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (first, second)
    )
    return left.size == right.size and all(
        np.array_equal(left[start : start + _PART], right[start : start + _PART])
        for start in range(0, left.size, _PART)
    )
