"""Whether a schedule computes what its workload computes; MetaSchedule itself never asks."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

import numpy as np
import tvm
from tvm.s_tir import Schedule

from autopipe.compiler.codegen.compile_kernels import compile_kernel
from autopipe.compiler.graph import elementary
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
from autopipe.measure.cases import Instance, list_instances
from autopipe.measure.device import copy_to_device, prepare_device
from autopipe.measure.function_shifts import ULPS, shift_functions
from autopipe.measure.plain_code import PlainKernel, PlainSource, compile_plain, open_plain
from autopipe.measure.surrounded import Surrounded

VERSION: Final = 10
"""Bump when a schedule that passes now might not have passed before."""

SEED: Final = 0
"""Seed of the inputs."""

NUDGE: Final = 2.0
"""How far inputs are moved to see what the plain loops themselves can not hold, in roundings."""

_INSIDE: Final = 2.0**11
"""The same where a function rounds to steps: there inputs decide on which side a value falls, and
a layer of bytes hands that on from step to step."""

_BY_STEPS: Final = 2.0**6
"""The same where a layer remembers: what its functions round off, hundreds of steps hand on."""

_AROUND_PLAIN: Final = 0x3F
AROUND_SCHEDULE: Final = 0xBF
"""Bytes around the arguments of the plain loops and of a schedule: floats of different signs."""

_FAILURES: Final = (RuntimeError, ValueError, TypeError)
"""What TVM raises where it refuses a module."""


class WrongAnswer(StageError):  # noqa: N818 -- says what happened
    """A schedule changes the result."""

    def __init__(self, reason: str, case: str | None = None, difference: str | None = None) -> None:
        """Take why, and on which inputs it is how far off, if it could be run."""
        super().__init__(reason)
        self.case = case
        self.difference = difference


class NotChecked(StageError):  # noqa: N818 -- likewise
    """The plain loops themselves can not be run, so that nothing can be said."""


class Unsteady(StageError):  # noqa: N818 -- likewise
    """The plain loops themselves read or write what is not theirs: no schedule can be right."""


def checked(
    workload: tvm.IRModule,
    scheduled: tvm.IRModule,
    target: tvm.target.Target,
    plain: PlainKernel | None = None,
) -> tvm.IRModule:
    """Return the scheduled module if it agrees with the plain workload on random and edge inputs.

    Both are run here, the workload on the processor, and compiled as far as there is no `plain`
    kernel of the workload yet. Raises WrongAnswer if they do
    not agree, or if the schedule can not be compiled or run at all, NotChecked if the workload can
    not, Unsteady if it reads or writes outside of its arguments, and ForeignCode, before anything
    is run, if one of them brings code along.
    """
    return PlainLoops(workload, target, plain=plain).check(scheduled)


class PlainLoops:
    """The loops of a workload as they are, compiled. Any schedule of it has to agree with them."""

    def __init__(
        self,
        workload: tvm.IRModule,
        target: tvm.target.Target,
        packing: tvm.tirx.PrimFunc | None = None,
        plain: PlainKernel | None = None,
    ) -> None:
        """Compile them for the processor, and the `packing` of a schedule beside them.

        Where they are compiled already, they are taken from the library of the `plain` kernel.
        Raises NotChecked if that fails, and ForeignCode.
        """
        self._workload = workload
        self._target = target
        self.instances = list_instances(workload)
        """What a schedule of it is called with."""
        source = PlainSource(workload, packing)
        try:
            found = compile_plain(source) if plain is None else open_plain(plain, source)
        except _FAILURES as error:
            raise NotChecked(f"the plain loops: {error}") from error
        self._plain = found.loops
        self.packing = found.packing
        """Packs weights as the schedule wants them."""

    def check(self, scheduled: tvm.IRModule) -> tvm.IRModule:
        """Return the scheduled module if it agrees with them. Raises as `checked`."""
        backend = backend_of(self._target)
        if not backend.runs_unscheduled_loops and scheduled.same_as(self._workload):
            raise NotChecked(f"{backend} does not run plain loops")
        place = prepare_device(self._target)
        built = compile_schedule(scheduled, self._target)

        def ours(instance: Instance, inputs: list[np.ndarray]) -> list[np.ndarray]:
            mine = Surrounded(inputs, AROUND_SCHEDULE)
            found = call_kernel(built["main"], mine, instance.counts, place)
            if not mine.intact():
                raise make_outside_error(instance.case)
            return found

        self.compare(ours)
        return scheduled

    def compare(
        self,
        ours: Callable[[Instance, list[np.ndarray]], list[np.ndarray]],
        tried: Sequence[Instance] | None = None,
    ) -> None:
        """Raise WrongAnswer if what returns all arguments after a call does not agree with them.

        Weights keep their layout: a schedule repacks them. Null for `tried` is all instances.
        Raises Unsteady as `checked`.
        """
        for instance in self.instances if tried is None else tried:
            case = instance.case
            inputs = make_inputs(instance)
            theirs = Surrounded(inputs, _AROUND_PLAIN)
            right = call_kernel(self._plain, theirs, instance.counts)
            if not theirs.intact():
                raise _make_unsteady_error(
                    self._workload, f"write outside of their arguments on {case} inputs"
                )
            found = ours(instance, inputs)
            if not all_agree(right, found):
                self._confirm_difference(instance, right, found)

    def _confirm_difference(
        self, instance: Instance, right: list[np.ndarray], ours: list[np.ndarray]
    ) -> None:
        """Raise what follows from a difference, unless the loops waver as much by themselves."""
        case, counts = instance.case, instance.counts
        inputs = make_inputs(instance)
        again = call_kernel(self._plain, Surrounded(inputs, AROUND_SCHEDULE), counts)
        if not all(map(_has_same_bytes, right, again)):
            raise _make_unsteady_error(
                self._workload, f"read outside of their arguments on {case} inputs"
            )
        by = _choose_nudge(self._workload["main"])
        nudged = instance.arguments(SEED, by)
        moved = [call_kernel(self._plain, Surrounded(nudged, _AROUND_PLAIN), counts)]
        for loops in self._rounded_otherwise:
            inputs = make_inputs(instance)
            moved.append(call_kernel(loops, Surrounded(inputs, _AROUND_PLAIN), counts))
        function = instance.workload["main"]
        results, bits = (right, ours, moved), has_float_reinterpret(function)
        off = find_difference(results, count_terms(function), bits=bits)
        if off is not None:
            reason = f"off by up to {off} from the plain loops on {case} inputs"
            raise WrongAnswer(reason, case, off)

    @cached_property
    def _rounded_otherwise(self) -> list[Callable[..., object]]:
        """The loops with elementary functions some ulps higher and lower, where each ulp counts.

        Saturated functions are the same on all inputs nearby, and what is computed from them may
        lie halfway between two steps, or be taken as bits.
        """
        function = self._workload["main"]
        return [
            compile_plain(PlainSource(shift_functions(self._workload, ulps))).loops
            for ulps in (ULPS, -ULPS)
            if has_rounding(function) or has_float_reinterpret(function)
        ]


def make_inputs(instance: Instance) -> list[np.ndarray]:
    """Return what an instance is called with, outputs included."""
    return instance.arguments(SEED)


def compile_schedule(scheduled: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
    """Return a schedule as code for a target. Raises WrongAnswer if it does not compile."""
    try:
        Schedule(scheduled, debug_mask="none")  # the build wants TIR that is well-formed
        return _compile_module(elementary.expand_for_target(scheduled, target), target)
    except _FAILURES as error:
        raise WrongAnswer(f"does not compile: {' '.join(str(error).split())}") from error


def make_outside_error(case: str) -> WrongAnswer:
    """Return what to raise for a schedule that does so on the inputs of a case."""
    return WrongAnswer(f"writes outside of its arguments on {case} inputs", case)


def _choose_nudge(function: tvm.tirx.PrimFunc) -> float:
    """Return how many roundings away inputs are, on which the plain loops may differ as much."""
    if has_rounding(function):
        return _INSIDE
    return _BY_STEPS if ATTRIBUTE in (function.attrs or {}) else NUDGE


def _compile_module(module: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
    linking.load_libraries(module)
    config = {"tirx.disable_assert": True}  # as for the plain loops
    with tvm.transform.PassContext(opt_level=3, config=config):
        return compile_kernel(module, target)


def call_kernel(
    function: Callable[..., object],
    inputs: Surrounded,
    counts: tuple[tuple[int, int], ...],
    place: tvm.runtime.Device | None = None,
) -> list[np.ndarray]:
    """Return all arguments after a call, on the processor if not elsewhere."""
    tensors = copy_to_device(inputs.tensors, place or tvm.cpu())
    given: list[object] = list(tensors)
    for at, count in counts:
        given.insert(at, count)
    function(*given)
    return [tensor.numpy() for tensor in tensors]


def _make_unsteady_error(workload: tvm.IRModule, what: str) -> StageError:
    """Return what to raise: inputs of the check may be wrong where they are indices."""
    if has_computed_indices(workload["main"]):
        return NotChecked(f"the plain loops {what}, which may be wrong indices")
    return Unsteady(f"its plain loops {what}: no schedule of them can be right")


def _has_same_bytes(one: np.ndarray, other: np.ndarray) -> bool:
    return one.tobytes() == other.tobytes()
