"""The same model without schedules: each kernel as plain loops, called like that of a build.

It runs step by step beside what a build made. Each kernel is called on what the *build* computed
before it, so that a kernel is judged alone:

    build    conv -> a'    relu(a') -> b'
    twin     conv -> a     relu(a') -> b        a' against a, b' against b
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from autopipe.artifacts.model_nodes import PACKED
from autopipe.bisection.bisection import CallDifference
from autopipe.bisection.captured_run import CapturedCall, Outputs, select_tensors
from autopipe.bisection.differences import measure_difference
from autopipe.compiler.graph.calls import find_callee, graph_functions, list_bindings
from autopipe.compiler.library.build import build_library
from autopipe.compiler.library.row_order import reorder_reductions
from autopipe.compiler.tasks import make_workload
from autopipe.errors import StageError
from autopipe.measure.agreement import all_agree
from autopipe.measure.call_watch import set_watch
from autopipe.measure.cases import Instance
from autopipe.measure.check import NotChecked, PlainLoops, WrongAnswer
from autopipe.measure.plain_code import plain_target
from autopipe.schedules.model_weights import ModelWeights

_CAPTURED = "captured"


@dataclass(slots=True)
class LoopsResult:
    """What comparing a kernel call with its plain loops showed."""

    difference: CallDifference
    expected: tuple[np.ndarray, ...] = ()
    """What the loops make, where that is something else."""


def count_outputs(lowered: tvm.IRModule) -> dict[str, int]:
    """Return how many outputs each kernel of a lowered module has."""
    found = {}
    for _, function in graph_functions(lowered):
        for binding in list_bindings(function):
            if (name := find_callee(binding.value)) is not None:
                made = binding.value.ty_args[0]
                found[name] = len(made.fields) if isinstance(made, tvm.ir.TupleType) else 1
    return found


class PlainTwin:
    """A lowered module, compiled as it is."""

    def __init__(
        self, lowered: tvm.IRModule, weights: ModelWeights, target: tvm.target.Target
    ) -> None:
        """Compile it. Raises StageError for what can not be compiled."""
        self._lowered, self._target = lowered, target
        self._outputs: Outputs = count_outputs(lowered)
        built = build_library(reorder_reductions(lowered), {}, plain_target())
        self._machine = relax.VirtualMachine(built.executable, tvm.cpu()).module
        packed = weights.pack(built.packing)
        self._weights = [tvm.runtime.tensor(array) for array in packed]  # aligned, as kernels trust

    def compare(
        self, given: Sequence[Any], calls: Sequence[CapturedCall]
    ) -> dict[int, LoopsResult]:
        """Compare the calls of a build that was given the same; return results by position.

        A call that only a build makes, such as the packing of a value, has none.
        """
        lockstep = _Lockstep(self._outputs, calls, self._judge_call)
        set_watch(self._machine, lockstep)
        try:
            self._machine["main"](*given, *self._weights)
        except RuntimeError as error:
            raise StageError(f"its plain loops: {str(error).strip().splitlines()[-1]}") from error
        finally:
            set_watch(self._machine, None)
        return lockstep.results

    def _judge_call(self, kernel: str, given: Sequence[Any], call: CapturedCall) -> LoopsResult:
        """Compare what a build made with what the loops of a kernel wrote last."""
        expected = [one.numpy() for one in select_tensors(given)[-len(call.outputs) :]]
        found = [one.numpy() for one in call.outputs]
        difference = measure_difference(expected, found)
        if all_agree(expected, found):
            return LoopsResult(difference.model_copy(update={"agrees": True, "reason": None}))
        reason = self._find_refutation(kernel, given, found)
        agrees = reason is None
        difference = difference.model_copy(update={"agrees": agrees, "reason": reason})
        return LoopsResult(difference, () if agrees else tuple(expected))

    def _find_refutation(
        self, kernel: str, given: Sequence[Any], found: Sequence[np.ndarray]
    ) -> str | None:
        """Return why results are wrong, by the check that each schedule passes; None if they hold.

        It also runs the loops on inputs that are a few roundings off: they may waver as much.
        """
        module = make_workload(self._lowered[kernel]).module
        arrays = [one.numpy() for one in select_tensors(given)]
        counts = tuple((at, int(one)) for at, one in enumerate(given) if isinstance(one, int))
        instance = Instance(_CAPTURED, module, counts, tuple(arrays))
        made = [*arrays[: -len(found)], *found]
        try:
            PlainLoops(module, self._target).compare(lambda *_: made, [instance])
        except (WrongAnswer, NotChecked) as error:
            return str(error)
        return None


class _Lockstep:
    """Calls each kernel of the twin, and hands on what the build made in its place."""

    def __init__(
        self,
        outputs: Outputs,
        calls: Sequence[CapturedCall],
        judge: Callable[[str, Sequence[Any], CapturedCall], LoopsResult],
    ) -> None:
        self._outputs, self._calls, self._judge_call = outputs, calls, judge
        self._place = 0
        self.results: dict[int, LoopsResult] = {}

    def begin(self, function: Callable[..., object], symbol: str, given: Sequence[Any]) -> bool:
        if symbol not in self._outputs:
            return False
        at = self._find_call(symbol)
        if at is None:
            return False
        function(*given)
        call = self._calls[at]
        self.results[at] = self._judge_call(symbol, given, call)
        for made, written in zip(
            call.outputs, select_tensors(given)[-len(call.outputs) :], strict=True
        ):
            made.copyto(written)
        return True

    def end(self, symbol: str) -> None:
        """Functions and builtins need no look."""

    def _find_call(self, symbol: str) -> int | None:
        """Return the position of the same call in the build; None where that makes a view there."""
        for at in range(self._place, len(self._calls)):
            name = self._calls[at].kernel.removesuffix(PACKED)
            if name in self._outputs:
                self._place = at + (name == symbol)
                return at if name == symbol else None
        return None
