"""The model without schedules: each kernel as plain loops, called in step with the build.

Each kernel is called on the outputs that the *build* computed before it, so that errors do not
propagate:

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
from autopipe.measure.call_watch import CallWatch, set_watch
from autopipe.measure.cases import Instance
from autopipe.measure.check import NotChecked, PlainLoops, WrongAnswer
from autopipe.measure.plain_code import plain_target
from autopipe.schedules.model_weights import ModelWeights

_CAPTURED = "captured"


@dataclass(slots=True)
class LoopsResult:
    """Result of comparing a kernel call with its plain loops."""

    difference: CallDifference
    expected: tuple[np.ndarray, ...] = ()
    """Outputs of the loops, where they differ."""


def count_outputs(module: tvm.IRModule) -> dict[str, int]:
    """Return how many outputs each kernel of a lowered module has."""
    counts = {}
    for _, function in graph_functions(module):
        for binding in list_bindings(function):
            if (name := find_callee(binding.value)) is not None:
                output_type = binding.value.ty_args[0]
                counts[name] = (
                    len(output_type.fields) if isinstance(output_type, tvm.ir.TupleType) else 1
                )
    return counts


class PlainTwin:
    """A lowered module, compiled as it is."""

    def __init__(
        self, lowered_module: tvm.IRModule, weights: ModelWeights, target: tvm.target.Target
    ) -> None:
        """Compile the module. Raises StageError if that is not possible."""
        self._lowered, self._target = lowered_module, target
        self._outputs: Outputs = count_outputs(lowered_module)
        library = build_library(reorder_reductions(lowered_module), {}, plain_target())
        self._machine = relax.VirtualMachine(library.executable, tvm.cpu()).module
        packed_weights = weights.pack(library.packing)
        self._weights = [
            tvm.runtime.tensor(array) for array in packed_weights
        ]  # aligned, as kernels trust

    def compare(
        self, arguments: Sequence[Any], calls: Sequence[CapturedCall]
    ) -> dict[int, LoopsResult]:
        """Compare the calls of a build that ran on the same arguments; return results by position.

        A call that only a build makes, such as the packing of a value, has none.
        """
        lockstep = _Lockstep(self._outputs, calls, self._judge_call)
        set_watch(self._machine, lockstep)
        try:
            self._machine["main"](*arguments, *self._weights)
        except RuntimeError as error:
            raise StageError(f"its plain loops: {str(error).strip().splitlines()[-1]}") from error
        finally:
            set_watch(self._machine, None)
        return lockstep.results

    def _judge_call(self, kernel: str, arguments: Sequence[Any], call: CapturedCall) -> LoopsResult:
        """Compare the outputs of a build's call with those that its plain loops just wrote."""
        expected_outputs = [one.numpy() for one in select_tensors(arguments)[-len(call.outputs) :]]
        actual = [one.numpy() for one in call.outputs]
        difference = measure_difference(expected_outputs, actual)
        if all_agree(expected_outputs, actual):
            return LoopsResult(difference.model_copy(update={"agrees": True, "reason": None}))
        reason = self._find_refutation(kernel, arguments, actual)
        agrees = reason is None
        difference = difference.model_copy(update={"agrees": agrees, "reason": reason})
        return LoopsResult(difference, () if agrees else tuple(expected_outputs))

    def _find_refutation(
        self, kernel: str, arguments: Sequence[Any], actual: Sequence[np.ndarray]
    ) -> str | None:
        """Apply the check that each schedule passes; return why it fails, None if it passes.

        It also runs the loops on inputs perturbed by a few roundings, to bound the allowed error.
        """
        module = make_workload(self._lowered[kernel]).module
        arrays = [one.numpy() for one in select_tensors(arguments)]
        counts = tuple((at, int(one)) for at, one in enumerate(arguments) if isinstance(one, int))
        instance = Instance(_CAPTURED, module, counts=counts, given=tuple(arrays))
        call_tensors = [*arrays[: -len(actual)], *actual]
        try:
            PlainLoops(module, self._target).compare(lambda *_: call_tensors, [instance])
        except (WrongAnswer, NotChecked) as error:
            return str(error)
        return None


class _Lockstep(CallWatch):
    """Calls each kernel of the twin, and replaces its outputs by those of the build."""

    def __init__(
        self,
        outputs: Outputs,
        calls: Sequence[CapturedCall],
        judge: Callable[[str, Sequence[Any], CapturedCall], LoopsResult],
    ) -> None:
        self._outputs, self._calls, self._judge_call = outputs, calls, judge
        self._place = 0
        self.results: dict[int, LoopsResult] = {}

    def begin(self, function: Callable[..., object], symbol: str, arguments: Sequence[Any]) -> bool:
        if symbol not in self._outputs:
            return False
        at = self._find_call(symbol)
        if at is None:
            return False
        function(*arguments)
        call = self._calls[at]
        self.results[at] = self._judge_call(symbol, arguments, call)
        for build_output, twin_output in zip(
            call.outputs, select_tensors(arguments)[-len(call.outputs) :], strict=True
        ):
            build_output.copyto(twin_output)
        return True

    def _find_call(self, symbol: str) -> int | None:
        """Return the position of the same call in the build; None where the build has a view."""
        for at in range(self._place, len(self._calls)):
            name = self._calls[at].kernel.removesuffix(PACKED)
            if name in self._outputs:
                self._place = at + (name == symbol)
                return at if name == symbol else None
        return None
