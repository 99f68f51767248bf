"""Whether a schedule computes what its workload computes; MetaSchedule itself never asks."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Final

import numpy as np
import tvm
import tvm_ffi
from tvm.s_tir import SBlock, Schedule

from autopipe.compiler.codegen.compile_kernels import compile_kernel
from autopipe.compiler.graph import elementary
from autopipe.compiler.library import linking
from autopipe.compiler.library.row_order import along_rows
from autopipe.compiler.loops.index_inputs import looked_up, reads_bits, rounds
from autopipe.compiler.recurrence.form import ATTRIBUTE
from autopipe.compiler.target.target import backend_of, host_of
from autopipe.errors import StageError
from autopipe.measure.cases import Instance, instances
from autopipe.measure.device import prepare, put
from autopipe.measure.function_shifts import ULPS, shift_functions
from autopipe.measure.surrounded import Surrounded

VERSION: Final = 9
"""Bump when a schedule that passes now might not have passed before."""

SEED: Final = 0
"""Seed of the inputs."""

_TOLERANCE: Final = {"bfloat16": 5e-2, "float16": 2e-2, "float32": 1e-3, "float64": 1e-6}
"""Largest difference relative to the largest value; sums are taken in another order."""

_ROUNDING: Final = {"float32": 2.0**-24, "float64": 2.0**-53}
"""What an addition rounds off at most, relative to the sum."""

NUDGE: Final = 2.0
"""How far inputs are moved to see what the plain loops themselves can not hold, in roundings."""

_INSIDE: Final = 2.0**11
"""The same where a function rounds to steps: there inputs decide on which side a value falls, and
a layer of bytes hands that on from step to step."""

_BY_STEPS: Final = 2.0**6
"""The same where a layer remembers: what its functions round off, hundreds of steps hand on."""

_WAVERING: Final = 4.0
"""Roundings inside a function, against those of its inputs."""

_ROLLED: Final = ("-unroll-threshold-default:uint=0",)
"""Options of LLVM that leave loops as they are: unrolled, plain loops take longer to compile and
are no faster."""

_AROUND: Final = (0x3F, 0xBF)
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
    workload: tvm.IRModule, scheduled: tvm.IRModule, target: tvm.target.Target
) -> tvm.IRModule:
    """Return the scheduled module if it agrees with the plain workload on random and edge inputs.

    Both are compiled and run here, the workload on the processor. Raises WrongAnswer if they do
    not agree, or if the schedule can not be compiled or run at all, NotChecked if the workload can
    not, Unsteady if it reads or writes outside of its arguments, and ForeignCode, before anything
    is run, if one of them brings code along.
    """
    return PlainLoops(workload, target).check(scheduled)


class PlainLoops:
    """The loops of a workload as they are, compiled. Any schedule of it has to agree with them."""

    def __init__(self, workload: tvm.IRModule, target: tvm.target.Target) -> None:
        """Compile them for the processor. Raises NotChecked if that fails, and ForeignCode."""
        self._workload = workload
        self._target = target
        self.instances = instances(workload)
        """What a schedule of it is called with."""
        try:
            self._library = _plain(workload, host_of(target))
        except _FAILURES as error:
            raise NotChecked(f"the plain loops: {error}") from error

    def check(self, scheduled: tvm.IRModule) -> tvm.IRModule:
        """Return the scheduled module if it agrees with them. Raises as `checked`."""
        backend = backend_of(self._target)
        if not backend.runs_unscheduled_loops and scheduled.same_as(self._workload):
            raise NotChecked(f"{backend} does not run plain loops")
        place = prepare(self._target)
        built = compiled_for(scheduled, self._target)

        def ours(instance: Instance, inputs: list[np.ndarray]) -> list[np.ndarray]:
            mine = Surrounded(inputs, _AROUND[1])
            found = _run(built, mine, instance.counts, place)
            if not mine.intact():
                raise writes_outside(instance.case)
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
            inputs = inputs_of(instance)
            theirs = Surrounded(inputs, _AROUND[0])
            right = _run(self._library, theirs, instance.counts)
            if not theirs.intact():
                raise _unsteady(
                    self._workload, f"write outside of their arguments on {case} inputs"
                )
            found = ours(instance, inputs)
            if not all_agree(right, found):
                self._differ(instance, right, found)

    def _differ(self, instance: Instance, right: list[np.ndarray], ours: list[np.ndarray]) -> None:
        """Raise what follows from a difference, unless the loops waver as much by themselves."""
        case, counts = instance.case, instance.counts
        inputs = inputs_of(instance)
        again = _run(self._library, Surrounded(inputs, _AROUND[1]), counts)
        if not all(map(_same, right, again)):
            raise _unsteady(self._workload, f"read outside of their arguments on {case} inputs")
        by = _moved_by(self._workload["main"])
        nudged = instance.arguments(SEED, by)
        moved = [_run(self._library, Surrounded(nudged, _AROUND[0]), counts)]
        for library in self._rounded_otherwise:
            inputs = inputs_of(instance)
            moved.append(_run(library, Surrounded(inputs, _AROUND[0]), counts))
        function = instance.workload["main"]
        _compare(case, (right, ours, moved), _terms(function), bits=reads_bits(function))

    @cached_property
    def _rounded_otherwise(self) -> list[tvm.runtime.Module]:
        """The loops with elementary functions some ulps higher and lower, where each ulp counts.

        Saturated functions are the same on all inputs nearby, and what is computed from them may
        lie halfway between two steps, or be taken as bits.
        """
        function = self._workload["main"]
        return [
            _plain(shift_functions(self._workload, ulps), host_of(self._target))
            for ulps in (ULPS, -ULPS)
            if rounds(function) or reads_bits(function)
        ]


def inputs_of(instance: Instance) -> list[np.ndarray]:
    """Return what an instance is called with, outputs included."""
    return instance.arguments(SEED)


def compiled_for(scheduled: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
    """Return a schedule as code for a target. Raises WrongAnswer if it does not compile."""
    try:
        Schedule(scheduled, debug_mask="none")  # the build wants TIR that is well-formed
        return _compiled(elementary.compilable(scheduled, target), target)
    except _FAILURES as error:
        raise WrongAnswer(f"does not compile: {' '.join(str(error).split())}") from error


def writes_outside(case: str) -> WrongAnswer:
    """Return what to raise for a schedule that does so on the inputs of a case."""
    return WrongAnswer(f"writes outside of its arguments on {case} inputs", case)


def _moved_by(function: tvm.tirx.PrimFunc) -> float:
    """Return how many roundings away inputs are, on which the plain loops may differ as much."""
    if rounds(function):
        return _INSIDE
    return _BY_STEPS if ATTRIBUTE in (function.attrs or {}) else NUDGE


def _plain(workload: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
    """Compile the plain loops at a level at which LLVM makes no vectors.

    From the next one on, LLVM 22 with AVX-512 takes wrong elements in loops of a tile operator.
    """
    options = {"opt-level": 1, "cl-opt": [*target.attrs.get("cl-opt", ()), *_ROLLED]}
    return _compiled(along_rows(workload), tvm.target.Target({**target.export(), **options}))


def _compiled(module: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
    linking.load(module)
    config = {"tirx.disable_assert": True}  # the arguments fit: they are made from the function
    with tvm.transform.PassContext(opt_level=3, config=config):
        return compile_kernel(module, target)


def _run(
    library: tvm.runtime.Module,
    inputs: Surrounded,
    counts: tuple[tuple[int, int], ...],
    place: tvm.runtime.Device | None = None,
) -> list[np.ndarray]:
    """Return all arguments after a call, on the processor if not elsewhere."""
    tensors = put(inputs.tensors, place or tvm.cpu())
    given: list[object] = list(tensors)
    for at, count in counts:
        given.insert(at, count)
    library["main"](*given)
    return [tensor.numpy() for tensor in tensors]


def _unsteady(workload: tvm.IRModule, what: str) -> StageError:
    """Return what to raise: inputs of the check may be wrong where they are indices."""
    if looked_up(workload["main"]):
        return NotChecked(f"the plain loops {what}, which may be wrong indices")
    return Unsteady(f"its plain loops {what}: no schedule of them can be right")


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.tobytes() == other.tobytes()


def _compare(
    case: str,
    results: tuple[list[np.ndarray], list[np.ndarray], list[list[np.ndarray]]],
    terms: int,
    *,
    bits: bool,
) -> None:
    """Raise WrongAnswer unless what differs is what the plain loops themselves cannot hold.

    `results` are those of the plain loops, of the schedule, and of the plain loops with some
    roundings: where terms cancel, as in 1 + x for an x near -1, these move as far. A sum of that
    many `terms` one after the other rounds as often: 255744 squares are off by 0.1 %. Integers that
    are `bits` of floats move with them.
    """
    for right, ours, *others in zip(*results[:2], *results[2], strict=True):
        steady = right.copy()
        if right.dtype.kind == "f":
            steady[~np.isfinite(others).all(axis=0)] = np.nan
        rounded = _scale(steady) * terms * _ROUNDING.get(str(right.dtype), 0.0)
        moved = max(_distance(steady, other) for other in others)
        close = _agree(steady, ours, max(rounded, _WAVERING * moved), bits=bits)
        if not close and not any(_same_steps(right, ours, other) for other in others):
            off = f"{_distance(steady, ours):.2g}"
            reason = f"off by up to {off} from the plain loops on {case} inputs"
            raise WrongAnswer(reason, case, off)


def _terms(function: tvm.tirx.PrimFunc) -> int:
    """Return how many terms the longest sum of a function has, whose sizes are known."""
    blocks: list[SBlock] = []
    tvm_ffi.structural_walk(function.body, (SBlock, blocks.append))
    return max((math.prod(_reduced(block)) for block in blocks), default=1)


def _reduced(block: SBlock) -> Iterator[int]:
    """Yield the extents of what a block reduces, as far as they are known."""
    for axis in block.iter_vars:
        known = isinstance(axis.dom.extent, tvm.tirx.IntImm)
        if known and axis.iter_type == tvm.tirx.IterVar.CommReduce:
            yield int(axis.dom.extent)


def _same_steps(expected: np.ndarray, found: np.ndarray, moved: np.ndarray) -> bool:
    """Tell whether whole numbers are a step apart at most, and few where few waver."""
    if expected.dtype.kind not in "iu" or _distance(expected, found) > 1:
        return False
    apart, wavering = ((expected != other).sum() for other in (found, moved))
    return bool(apart <= _WAVERING * wavering)


def all_agree(expected: list[np.ndarray], found: list[np.ndarray]) -> bool:
    """Tell whether all results of a call agree with those of its plain loops."""
    return all(_agree(right, ours, 0.0) for right, ours in zip(expected, found, strict=True))


def _agree(
    expected: np.ndarray,
    found: np.ndarray,
    slack: float,
    *,
    bits: bool = False,
) -> bool:
    if np.array_equal(expected, found):
        return True
    tolerance = _TOLERANCE.get(str(expected.dtype), 0.0 if bits else None)
    if tolerance is None:
        return False
    finite = np.isfinite(expected)
    return (
        bool(np.isfinite(found[finite]).all())
        and _distance(expected, found) <= tolerance * _scale(expected) + slack
    )


def _scale(expected: np.ndarray) -> float:
    """Return the largest finite value."""
    finite = np.isfinite(expected)
    return float(np.max(np.abs(expected[finite].astype("float64")), initial=0.0))


def _distance(expected: np.ndarray, found: np.ndarray) -> float:
    """Return the largest difference where the expected value is finite; elsewhere none is right."""
    finite = np.isfinite(expected)
    difference = np.abs(expected[finite].astype("float64") - found[finite].astype("float64"))
    return float(np.max(difference, initial=0.0))
