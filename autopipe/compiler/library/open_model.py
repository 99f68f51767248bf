"""A model with dynamic shapes: a library for each specialized size, and one for all sizes.

model({"x": image of 1x3x640x640})     # lib.0.so, made for 640 x 640
model({"x": image of 1x3x352x96})      # lib.so, for every size
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, Never

import numpy as np

from autopipe.artifacts.signature import LIBRARY, Signature
from autopipe.compiler.library.call_limit import CallLimit, CallLimits, VirtualMachine
from autopipe.compiler.library.kernel_threads import KernelThreads
from autopipe.compiler.library.loaded_model import LoadedModel
from autopipe.compiler.library.model_display import Described
from autopipe.compiler.library.ports import NO_ARRAYS, Arrays, Inputs, name_inputs, solve_sizes
from autopipe.config.dimension import format_sizes
from autopipe.errors import ConfigError, StageError
from autopipe.host.memory import give_back, resident

_KEPT: Final = 8
"""Number of sizes with cached buffers."""
_FRESH: Final = 16
"""New sizes after which unused memory is released: TVM keeps what it has allocated
for each size."""
_HELD: Final = 64 << 20
"""Bytes that the process may grow by since then; more is released at the next new size."""


class OpenModel(Described):
    """Loaded libraries with their weights. Calls from several threads take turns."""

    def __init__(
        self,
        signature: Signature,
        machines: Mapping[str, VirtualMachine],
        weights: Mapping[str, Sequence[object]],
        threads: KernelThreads,
    ) -> None:
        """Hold the machine of each library and its weights, by file name."""
        self.signature = signature
        self.machines, self._weights = machines, weights
        self._entries = {
            tuple(entry.sizes[name] for name in signature.dimensions): entry.library
            for entry in signature.entries
        }
        self._open = [port.name for port in signature.inputs if port.dimensions]
        self._ready: OrderedDict[tuple[object, ...], LoadedModel] = OrderedDict()
        self._fresh = 0
        self._floor = resident()
        self._threads = threads
        self._limits = CallLimits()

    def __call__(
        self,
        inputs: Inputs,
        *,
        outputs: Arrays = NO_ARRAYS,
        limit: float | CallLimit | None = None,
        generic: bool = False,
    ) -> dict[str, np.ndarray]:
        """Run one inference as `LoadedModel` does.

        With `generic`, the library for every size runs it, even where there is one for this size.
        Raises ConfigError also where a size is out of its range.
        """
        arrays = name_inputs(self.signature.inputs, inputs)
        infer = partial(self._run_model, generic=generic)
        return self._threads.run_limited(self._limits, limit, infer, arrays, outputs)

    @property
    def last_called(self) -> LoadedModel:
        """The model for the sizes of the last call."""
        return self._ready[next(reversed(self._ready))]

    def cancel(self) -> None:
        """End the calls with a limit that run or wait now, each before its next kernel."""
        self._limits.cancel()

    def close(self) -> None:
        """End the threads of the model; later calls raise ConfigError."""
        self._threads.close()

    def _run_model(
        self, inputs: Arrays, outputs: Arrays, limit: CallLimit | None = None, *, generic: bool
    ) -> dict[str, np.ndarray]:
        try:
            key = (generic, *[np.shape(inputs[name]) for name in self._open])
        except KeyError:  # a missing input is reported before the model is cached
            key = (generic,)
        if key not in self._ready:
            self._build_model(key, inputs, generic=generic)
        self._ready.move_to_end(key)
        return self._ready[key].infer(inputs, outputs, limit)

    def stream(self, *_: object, **__: object) -> Never:
        """Raise ConfigError: the states of a stream have one size."""
        raise ConfigError("a model with dynamic shapes has no streams; build it for one size")

    def _build_model(
        self, key: tuple[object, ...], inputs: Mapping[str, np.ndarray], *, generic: bool
    ) -> None:
        """Load the model for the sizes of inputs, and cache it under a key."""
        from tvm_ffi import Shape

        ports, dimensions = self.signature.inputs, self.signature.dimensions
        shapes = {name: np.shape(array) for name, array in inputs.items()}
        sizes = solve_sizes(ports, dimensions, shapes)
        library = (None if generic else self._entries.get(tuple(sizes.values()))) or LIBRARY
        steps = Shape(tuple(sizes[name] // dimensions[name].multiple for name in sorted(sizes)))
        static_signature = self.signature.model_copy(update={"inputs": self.signature.at(sizes)})
        weights = [steps, *self._weights[library]]
        try:
            model = LoadedModel(static_signature, self.machines[library], weights, self._threads)
        except MemoryError as error:
            raise StageError(f"no memory for inputs with {format_sizes(sizes)}") from error
        self._ready[key] = model
        self._release_memory()

    def _release_memory(self) -> None:
        """Release memory of the sizes least recently used."""
        if len(self._ready) > _KEPT:
            self._ready.popitem(last=False)
        self._fresh += 1
        if self._fresh == _FRESH or resident() > self._floor + _HELD:
            from tvm_ffi import get_global_func

            get_global_func("vm.builtin.memory_manager.clear")()
            give_back()
            self._fresh, self._floor = 0, resident()
