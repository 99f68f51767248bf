"""Runs a loaded library and keeps what its kernels are given and make."""

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
    """Positions of the calls that wrote what it reads."""


class OutputRecorder:
    """Keeps the outputs of each kernel call, and from which calls its inputs are."""

    def __init__(self, outputs: Outputs, begun: Callable[[str], None]) -> None:
        """Tell `begun` the symbol of each kernel before it is called."""
        self._outputs, self._begun = outputs, begun
        self._writers: dict[int, int] = {}
        self.calls: list[CapturedCall] = []

    def begin(self, function: Callable[..., object], symbol: str, given: Sequence[Any]) -> bool:
        """Make a call of a kernel here, and copy its outputs."""
        if symbol not in self._outputs:
            return False
        self._begun(symbol)
        tensors = select_tensors(given)
        count = self._outputs[symbol]
        read = {self._writers.get(one.data_ptr()) for one in tensors[:-count]}
        function(*given)
        written = tensors[-count:]
        self._writers |= {one.data_ptr(): len(self.calls) for one in written}
        sources = tuple(sorted(at for at in read if at is not None))
        self.calls.append(CapturedCall(symbol, tuple(map(copy_tensor, written)), sources))
        return True

    def end(self, symbol: str) -> None:
        """Functions and builtins need no look."""


class CallRecorder:
    """Keeps what one kernel call is given, and what it makes."""

    def __init__(
        self, outputs: Outputs, position: int, ready: Callable[[str, Sequence[Any]], None]
    ) -> None:
        """Tell `ready` the symbol of the call at this position, and what it is given, before it."""
        self._outputs, self._ready = outputs, ready
        self._left = position
        self.made: list[Tensor] = []

    def begin(self, function: Callable[..., object], symbol: str, given: Sequence[Any]) -> bool:
        """Make the call at the position here, and copy its outputs."""
        if symbol not in self._outputs:
            return False
        self._left -= 1
        if self._left != -1:
            return False
        self._ready(symbol, given)
        function(*given)
        self.made = [copy_tensor(one) for one in select_tensors(given)[-self._outputs[symbol] :]]
        return True

    def end(self, symbol: str) -> None:
        """Functions and builtins need no look."""


def run_watched(
    model: Instance,
    inputs: Mapping[str, np.ndarray],
    watch_of: Callable[[str], CallWatch],
    *,
    generic: bool = False,
) -> None:
    """Run a model that was never run before, each of its libraries under a watch of its own.

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


def select_tensors(given: Sequence[Any]) -> "list[Tensor]":
    """Return the tensors among the arguments of a kernel; others are sizes."""
    return [one for one in given if hasattr(one, "data_ptr")]


def copy_tensor(tensor: "Tensor") -> "Tensor":
    """Return a copy of a tensor, whose memory the machine uses again."""
    import tvm

    return tensor.copyto(tvm.cpu())
