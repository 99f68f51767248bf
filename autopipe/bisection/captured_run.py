"""Runs a loaded library and records the inputs and outputs of its kernels."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autopipe.artifacts.signature import LIBRARY
from autopipe.compiler.library.model_instances import Instance
from autopipe.compiler.library.open_model import OpenModel
from autopipe.measure.call_watch import CallWatch, set_watch

if TYPE_CHECKING:
    from tvm.runtime import Tensor

Outputs = Mapping[str, int]
"""How many of its last tensors a kernel writes, by its symbol."""


@dataclass(frozen=True, slots=True)
class CapturedCall:
    """A kernel call of a run."""

    kernel: str
    outputs: "tuple[Tensor, ...]"
    """Copies of the tensors that it wrote."""
    sources: tuple[int, ...]
    """Positions of the calls that wrote its inputs."""


class OutputRecorder(CallWatch):
    """Records the outputs of each kernel call, and which calls its inputs are from."""

    def __init__(self, outputs: Outputs, on_begin: Callable[[str], None]) -> None:
        """Call `on_begin` with the symbol of each kernel before it runs."""
        self._outputs, self._begun = outputs, on_begin
        self._writers: dict[int, int] = {}
        self.calls: list[CapturedCall] = []

    def begin(self, function: Callable[..., object], symbol: str, arguments: Sequence[Any]) -> bool:
        """Call a kernel, and copy its outputs."""
        if symbol not in self._outputs:
            return False
        self._begun(symbol)
        tensors = select_tensors(arguments)
        count = self._outputs[symbol]
        read = {self._writers.get(one.data_ptr()) for one in tensors[:-count]}
        function(*arguments)
        output_tensors = tensors[-count:]
        self._writers |= {one.data_ptr(): len(self.calls) for one in output_tensors}
        sources = tuple(sorted(at for at in read if at is not None))
        self.calls.append(CapturedCall(symbol, tuple(map(copy_tensor, output_tensors)), sources))
        return True


class CallRecorder(CallWatch):
    """Records the inputs and outputs of one kernel call."""

    def __init__(
        self, outputs: Outputs, position: int, ready: Callable[[str, Sequence[Any]], None]
    ) -> None:
        """Call `ready` with symbol and arguments before the call at this position runs."""
        self._outputs, self._ready = outputs, ready
        self._left = position
        self.made: list[Tensor] = []

    def begin(self, function: Callable[..., object], symbol: str, arguments: Sequence[Any]) -> bool:
        """Run the call at the position, and copy its outputs."""
        if symbol not in self._outputs:
            return False
        self._left -= 1
        if self._left != -1:
            return False
        self._ready(symbol, arguments)
        function(*arguments)
        self.made = [
            copy_tensor(one) for one in select_tensors(arguments)[-self._outputs[symbol] :]
        ]
        return True


def run_watched(
    model: Instance,
    inputs: Mapping[str, np.ndarray],
    watch_of: Callable[[str], CallWatch],
    *,
    generic: bool = False,
) -> None:
    """Run a model for the first time, with a separate watch for each of its libraries.

    With `generic`, the library for every size runs.
    """
    machines = model.machines if isinstance(model, OpenModel) else {LIBRARY: model.machine}
    for library, machine in machines.items():
        set_watch(machine, watch_of(library))
    try:
        if generic and isinstance(model, OpenModel):
            model(inputs, generic=True)
        else:
            model(inputs)
    finally:
        for machine in machines.values():
            set_watch(machine, None)


def select_tensors(arguments: Sequence[Any]) -> "list[Tensor]":
    """Return the tensors among the arguments of a kernel; others are sizes."""
    return [one for one in arguments if hasattr(one, "data_ptr")]


def copy_tensor(tensor: "Tensor") -> "Tensor":
    """Copy a tensor whose memory the virtual machine reuses."""
    import tvm

    return tensor.copyto(tvm.cpu())
