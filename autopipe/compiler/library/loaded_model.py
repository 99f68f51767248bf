"""A loaded library with its weights: numpy arrays in and out, by name."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from autopipe.artifacts.signature import MAIN_INTO, Signature
from autopipe.backends import DEVICES
from autopipe.compiler.library.call_limit import CallLimit, CallLimits, VirtualMachine, call_within
from autopipe.compiler.library.kernel_threads import KernelThreads
from autopipe.compiler.library.model_display import Described
from autopipe.compiler.library.ports import (
    NO_ARRAYS,
    Arrays,
    Inputs,
    check_buffers,
    check_inputs,
    check_size,
    name_inputs,
)
from autopipe.compiler.library.stream import Held, Stream, StreamCall
from autopipe.errors import StageError
from autopipe.runtime.weights import ALIGNMENT

if TYPE_CHECKING:
    from tvm_ffi import Tensor

_FAILURES: Final = (RuntimeError, ValueError, TypeError)
"""The errors that TVM raises if a library is called with arguments it was not built for."""
_IN_WORDS: Final = {
    "match_cast": "sizes that it is given or computes do not fit its tensors, or no memory",
    "bad_alloc": "there is not enough memory for what it computes",
}
"""Explanations of some errors of the runtime."""


class LoadedModel(Described):
    """A loaded library with its weights. Calls from several threads take turns."""

    def __init__(
        self,
        signature: Signature,
        machine: VirtualMachine,
        weights: Sequence[object],
        threads: KernelThreads,
    ) -> None:
        from tvm_ffi import Tensor, from_dlpack, get_global_func

        self.signature = signature
        self.machine, self._main = machine, machine["main"]
        self._main_into = _find_function(machine, MAIN_INTO)
        self._buffers = {
            port.name: allocate_aligned(port.shape, port.dtype) for port in signature.inputs
        }
        tensors = [from_dlpack(buffer) for buffer in self._buffers.values()]
        device = DEVICES[signature.device].runtime()
        self._staging = device.Staging(tensors) if device else None
        to_device = self._staging.put if self._staging else lambda weight: weight
        self._arguments = [*tensors, *(to_device(weight) for weight in weights)]
        self._positions = {port.name: at for at, port in enumerate(signature.inputs)}
        self._names = [port.name for port in signature.outputs]
        self._tensor, self._item = Tensor, get_global_func("ffi.ArrayGetItem")
        buffers = self._staging.places() if self._staging else tensors
        self._places = frozenset(buffer.data_ptr() for buffer in buffers)
        self._threads = threads
        self._limits = CallLimits()

    def __call__(
        self,
        inputs: Inputs,
        *,
        outputs: Arrays = NO_ARRAYS,
        limit: float | CallLimit | None = None,
    ) -> dict[str, np.ndarray]:
        """Run one inference; the outputs are the caller's own copies.

        `inputs` are arrays by name, a list of them in the order of the signature, or the only one.
        `outputs` are arrays for outputs, by name; kernels write to them where they can. A
        call that takes longer than `limit` seconds, waiting included, ends before its next kernel.

        Raises ConfigError where names, shapes or dtypes are not the model's, CallLimitError,
        StageError where the library fails.
        """
        arrays = name_inputs(self.signature.inputs, inputs)
        if limit is None:  # as in most calls; each layer costs a small model
            return self._threads.run(self.infer, arrays, outputs)
        return self._threads.run_limited(self._limits, limit, self.infer, arrays, outputs)

    def infer(
        self, inputs: Arrays, outputs: Arrays = NO_ARRAYS, limit: CallLimit | None = None
    ) -> dict[str, np.ndarray]:
        """Run one inference in the calling thread, which holds the lock."""
        arrays = check_inputs(self.signature.inputs, inputs)
        if not outputs:
            results = self._run_checked(arrays, {}, limit)
            return dict(zip(self._names, self._copy_to_arrays(results), strict=True))
        check_buffers(self.signature.outputs, outputs)
        destinations = self._wrap_outputs(outputs) if limit is None else ()
        results = self._run_checked(arrays, {}, limit, destinations)
        return self._copy_outputs(dict(zip(self._names, results, strict=True)), outputs)

    @property
    def has_destinations(self) -> bool:
        """Whether kernels can write to a caller's arrays for all outputs."""
        sizes = [size for port in self.signature.outputs for size in port.shape]
        return self._main_into is not None and not self._staging and min(sizes, default=0) >= 0

    def repeat(self) -> None:
        """Run once more on the inputs of the last call, and leave the outputs where they are."""
        self._run_with_states({}, None)

    def cancel(self) -> None:
        """End the calls with a limit that run or wait now, each before its next kernel."""
        self._limits.cancel()

    def stream(
        self, states: Mapping[str, str], start: Mapping[str, np.ndarray] | None = None
    ) -> Stream:
        """Open a stream: calls step by step, with states that are kept in between.

        Args:
            states: The output that becomes the input of the next call, by the input's name.
            start: The states of the first call by input name; zeros by default.

        Raises ConfigError for a name, shape or dtype that is not the model's.
        """
        return Stream(self, states, start)

    def step(
        self,
        step: StreamCall,
        *,
        outputs: Arrays = NO_ARRAYS,
        limit: float | CallLimit | None = None,
    ) -> tuple[dict[str, np.ndarray], Held]:
        """Run once and return the outputs and the states after it; `Stream` is the way to call it.

        Outputs that are states are returned as such, and not as arrays.
        """
        return self._threads.run_limited(self._limits, limit, self._step, step, outputs)

    def _step(
        self, step: StreamCall, outputs: Arrays, limit: CallLimit | None = None
    ) -> tuple[dict[str, np.ndarray], Held]:
        results = dict(
            zip(self._names, self._run_checked(step.arrays, step.held, limit), strict=True)
        )
        states = {into: self._preserve_state(results[name]) for into, name in step.states.items()}
        for name in step.states.values():
            results.pop(name, None)
        return self._copy_outputs(results, outputs), states

    def close(self) -> None:
        """End the threads of the model; later calls raise ConfigError."""
        self._threads.close()

    def fetch(self, state: "Tensor") -> np.ndarray:
        """Return a copy of a state."""
        return self._copy_to_arrays([state])[0]

    def _wrap_outputs(self, outputs: Arrays) -> "Sequence[Tensor]":
        """Return tensors over the arrays of all outputs; none where kernels cannot write to one.

        A call with a limit has none: one that ends early leaves the arrays as they were.
        """
        if len(outputs) < len(self._names) or not self.has_destinations:
            return ()
        from tvm_ffi import from_dlpack

        arrays = [outputs[name] for name in self._names]
        if any(array.ctypes.data % ALIGNMENT for array in arrays):
            return ()
        if any(np.may_share_memory(*pair) for pair in combinations(arrays, 2)):
            return ()
        return [from_dlpack(array) for array in arrays]

    def _run_checked(
        self,
        arrays: Arrays,
        states: Held,
        limit: CallLimit | None = None,
        destinations: "Sequence[Tensor]" = (),
    ) -> "list[Tensor]":
        """Run once on checked inputs and states; return the output tensors without a copy."""
        for name, array in arrays.items():
            self._buffers[name][...] = array
        try:
            if destinations and self._main_into is not None:
                return self._list_tensors(self._main_into(*self._arguments, *destinations))
            if states or self._staging:
                return self._run_with_states(states, limit)
            return self._call_main(self._arguments, limit)
        except _FAILURES as error:
            raise StageError(f"the compiled model failed: {_describe_failure(error)}") from error

    def _run_with_states(self, states: Held, limit: CallLimit | None) -> "list[Tensor]":
        arguments = self._arguments.copy()
        if self._staging:
            places = {self._positions[name]: state for name, state in states.items()}
            arguments[: len(self._positions)] = self._staging.arguments(places)
        else:
            for name, state in states.items():
                arguments[self._positions[name]] = state
        return self._call_main(arguments, limit)

    def _call_main(self, arguments: Sequence[object], limit: CallLimit | None) -> "list[Tensor]":
        if limit is None:
            result = self._main(*arguments)
        else:
            result = call_within(limit, self.machine, arguments)
        return self._list_tensors(result)

    def _list_tensors(self, result: Any) -> "list[Tensor]":  # noqa: ANN401 - a tensor, or some
        if isinstance(result, self._tensor):
            return [result]
        # Iterating over the runtime's arrays takes a microsecond and a half an item.
        return [self._item(result, at) for at in range(len(self._names))]

    def _copy_outputs(
        self, results: "Mapping[str, Tensor]", outputs: Arrays
    ) -> dict[str, np.ndarray]:
        """Return copies of results by name, in the arrays of `outputs` where there is one."""
        if not outputs:
            return dict(zip(results, self._copy_to_arrays(results.values()), strict=True))
        views = dict(
            zip(results, map(np.from_dlpack, self._to_host(results.values())), strict=True)
        )
        for name, buffer in outputs.items():
            check_size(name, buffer, views[name].shape)
        for name, buffer in outputs.items():
            if views[name].ctypes.data != buffer.ctypes.data:
                np.copyto(buffer, views[name])
        return {name: outputs[name] if name in outputs else np.array(views[name]) for name in views}

    def _copy_to_arrays(self, results: "Collection[Tensor]") -> list[np.ndarray]:
        return [np.from_dlpack(result).copy() for result in self._to_host(results)]

    def _to_host(self, results: "Collection[Tensor]") -> "Collection[Tensor]":
        """Copy tensors to host memory."""
        return self._staging.results(list(results)) if self._staging else results

    def _preserve_state(self, state: "Tensor") -> "Tensor":
        """Copy a state if it is an input buffer, which the next call overwrites."""
        if state.data_ptr() not in self._places:
            return state
        from tvm_ffi import from_dlpack

        staging = self._staging
        copy = allocate_aligned(tuple(state.shape), self._copy_to_arrays([state])[0].dtype)
        np.copyto(copy, self._copy_to_arrays([state])[0])
        return staging.put(from_dlpack(copy)) if staging else from_dlpack(copy)


def allocate_aligned(shape: tuple[int, ...], dtype: np.typing.DTypeLike) -> np.ndarray:
    """Return an uninitialized array that starts at a multiple of `ALIGNMENT` bytes."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    array = memory[start : start + size].view(dtype).reshape(shape)
    if size:
        return array
    strides = np.cumprod([array.itemsize, *shape[:0:-1]])[::-1]  # as kernels expect them
    return np.lib.stride_tricks.as_strided(array, strides=tuple(map(int, strides)))


def _find_function(machine: VirtualMachine, name: str) -> Callable[..., Any] | None:
    try:
        return machine[name]
    except (AttributeError, KeyError):
        return None


def find_last_line(error: Exception) -> str:
    """Return the last line of an error of the runtime."""
    return str(error).strip().splitlines()[-1]


def _describe_failure(error: Exception) -> str:
    """Return the reason why a call failed, explained where the runtime's message is obscure."""
    line = find_last_line(error)
    return next((words for mark, words in _IN_WORDS.items() if mark in line), line)
