"""A loaded library with its weights: numpy arrays in and out, by name."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np

from autopipe.artifacts.signature import Signature
from autopipe.backends import DEVICES
from autopipe.compiler.library.kernel_threads import KernelThreads
from autopipe.compiler.library.ports import check_inputs
from autopipe.compiler.library.stream import Held, Stream
from autopipe.errors import StageError

ALIGNMENT: Final = 64
"""Bytes; TVM compiles loads and stores that fault on anything less."""

_FAILURES: Final = (RuntimeError, ValueError, TypeError)
"""What TVM raises where a library is called with something else than it was built for."""
_IN_WORDS: Final = {
    "match_cast": "sizes that it is given or computes do not fit its tensors, or no memory",
    "bad_alloc": "there is not enough memory for what it computes",
}
"""What some errors of the runtime mean."""


class LoadedModel:
    """A loaded library with its weights. Calls from several threads take turns."""

    def __init__(
        self,
        signature: Signature,
        main: Callable[..., Any],
        weights: Sequence[object],
        threads: KernelThreads,
    ) -> None:
        from tvm_ffi import from_dlpack, get_global_func

        self.signature = signature
        self._main = main
        self._buffers = {port.name: aligned(port.shape, port.dtype) for port in signature.inputs}
        tensors = [from_dlpack(buffer) for buffer in self._buffers.values()]
        device = DEVICES[signature.device].piece("runtime")
        self._staging = device.Staging(tensors) if device else None
        put = self._staging.put if self._staging else lambda weight: weight
        self._arguments = [*tensors, *(put(weight) for weight in weights)]
        self._positions = {port.name: at for at, port in enumerate(signature.inputs)}
        self._names = [port.name for port in signature.outputs]
        self._item = get_global_func("ffi.ArrayGetItem")
        buffers = self._staging.places() if self._staging else tensors
        self._places = frozenset(buffer.data_ptr() for buffer in buffers)
        self._threads = threads

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run one inference; the outputs are the caller's own copies.

        Raises ConfigError where names, shapes or dtypes are not the model's, StageError where
        the library fails.
        """
        return self._threads.run(self.infer, inputs)

    def infer(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run one inference in the calling thread, whose turn it is."""
        made = self._given(check_inputs(self.signature.inputs, inputs), {})
        return dict(zip(self._names, self._arrays(made), strict=True))

    def stream(
        self, states: Mapping[str, str], start: Mapping[str, np.ndarray] | None = None
    ) -> Stream:
        """Return the model to be called step by step, with states that are kept in between.

        Args:
            states: The output that becomes the input of the next call, by the input's name.
            start: The states of the first call by input name; zeros where one is not given.

        Raises ConfigError for a name, shape or dtype that is not the model's.
        """
        return Stream(self, states, start)

    def step(
        self, arrays: Mapping[str, np.ndarray], held: Held, states: Mapping[str, str]
    ) -> tuple[dict[str, np.ndarray], Held]:
        """Run once and return the outputs and the states after it; `Stream` is the way to call it.

        `arrays` are inputs that were checked, `held` the others: states after an earlier step.
        Outputs that `states` names are returned as such, and not as arrays.
        """
        return self._threads.run(self._step, arrays, held, states)

    def _step(
        self, arrays: Mapping[str, np.ndarray], held: Held, states: Mapping[str, str]
    ) -> tuple[dict[str, np.ndarray], Held]:
        made = dict(zip(self._names, self._given(arrays, held), strict=True))
        kept = {given: self._lasting(made[name]) for given, name in states.items()}
        for name in states.values():
            made.pop(name, None)
        return dict(zip(made, self._arrays(made.values()), strict=True)), kept

    def close(self) -> None:
        """End the threads of the model; later calls raise ConfigError."""
        self._threads.close()

    def fetch(self, state: Any) -> np.ndarray:  # noqa: ANN401 - a tensor of the runtime
        """Return a copy of a state."""
        return self._arrays([state])[0]

    def _given(self, arrays: Mapping[str, np.ndarray], held: Held) -> list[Any]:
        """Run once on inputs that were checked, and states; return the outputs as they are."""
        for name, array in arrays.items():
            self._buffers[name][...] = array
        try:
            return self._run(held) if held or self._staging else self._outputs(self._arguments)
        except _FAILURES as error:
            raise StageError(f"the compiled model failed: {_describe_failure(error)}") from error

    def _run(self, held: Held) -> list[Any]:
        arguments = self._arguments.copy()
        if self._staging:
            places = {self._positions[name]: state for name, state in held.items()}
            arguments[: len(self._positions)] = self._staging.arguments(places)
        else:
            for name, state in held.items():
                arguments[self._positions[name]] = state
        return self._outputs(arguments)

    def _outputs(self, arguments: Sequence[Any]) -> list[Any]:
        returned = self._main(*arguments)
        if hasattr(returned, "__dlpack__"):
            return [returned]
        # Iterating over the runtime's arrays takes a microsecond and a half an item.
        return [self._item(returned, at) for at in range(len(self._names))]

    def _arrays(self, results: Collection[Any]) -> list[np.ndarray]:
        here = self._staging.results(list(results)) if self._staging else results
        return [np.array(np.from_dlpack(result)) for result in here]

    def _lasting(self, state: Any) -> Any:  # noqa: ANN401 - a tensor of the runtime
        """Return a state that the next call does not overwrite: it may be an input itself."""
        if state.data_ptr() not in self._places:
            return state
        from tvm_ffi import from_dlpack

        staging = self._staging
        copy = aligned(tuple(state.shape), self._arrays([state])[0].dtype)
        np.copyto(copy, self._arrays([state])[0])
        return staging.put(from_dlpack(copy)) if staging else from_dlpack(copy)


def aligned(shape: tuple[int, ...], dtype: np.typing.DTypeLike) -> np.ndarray:
    """Return an uninitialized array that starts at a multiple of `ALIGNMENT` bytes."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def last_line(error: Exception) -> str:
    """Return the last line of what the runtime says of an error."""
    return str(error).strip().splitlines()[-1]


def _describe_failure(error: Exception) -> str:
    """Return why a call failed, in plain words where the runtime has none."""
    line = last_line(error)
    return next((words for mark, words in _IN_WORDS.items() if mark in line), line)
