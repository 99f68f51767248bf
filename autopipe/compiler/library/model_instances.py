"""Instances of one model, which share its library and weights and run at the same time."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from queue import Empty, LifoQueue
from typing import TYPE_CHECKING, cast

import numpy as np

from autopipe.compiler.library.call_limit import CallLimit, CallLimits
from autopipe.compiler.library.loaded_model import LoadedModel
from autopipe.compiler.library.model_display import Described
from autopipe.compiler.library.open_model import OpenModel
from autopipe.compiler.library.ports import NO_ARRAYS, Arrays, Inputs
from autopipe.compiler.library.stream import Held, Stream, StreamCall

if TYPE_CHECKING:
    from tvm_ffi import Tensor

Instance = LoadedModel | OpenModel


class ModelInstances(Described):
    """Loaded instances of one model; a call takes a free one, or waits for it."""

    def __init__(self, instances: Sequence[Instance]) -> None:
        self.signature = instances[0].signature
        self._instances = tuple(instances)
        self._free: LifoQueue[Instance] = LifoQueue()
        for instance in reversed(instances):
            self._free.put(instance)
        self._limits = CallLimits()

    def __call__(
        self,
        inputs: Inputs,
        *,
        outputs: Arrays = NO_ARRAYS,
        limit: float | CallLimit | None = None,
    ) -> dict[str, np.ndarray]:
        """Run one inference, as `LoadedModel` does."""
        with self._borrow_instance(limit) as (instance, running_limit):
            return instance(inputs, outputs=outputs, limit=running_limit)

    def cancel(self) -> None:
        """End the calls with a limit that run or wait now, each before its next kernel."""
        self._limits.cancel()

    def stream(
        self, states: Mapping[str, str], start: Mapping[str, np.ndarray] | None = None
    ) -> Stream:
        """Open a stream: calls step by step; streams run at the same time."""
        self._instances[0].stream(states, start)  # a model with dynamic shapes refuses
        return Stream(self, states, start)

    def step(
        self,
        step: StreamCall,
        *,
        outputs: Arrays = NO_ARRAYS,
        limit: float | CallLimit | None = None,
    ) -> tuple[dict[str, np.ndarray], Held]:
        """Run one step of a stream, as `LoadedModel` does."""
        with self._borrow_instance(limit) as (instance, running_limit):
            return cast("LoadedModel", instance).step(step, outputs=outputs, limit=running_limit)

    @contextmanager
    def _borrow_instance(
        self, limit: float | CallLimit | None
    ) -> Iterator[tuple[Instance, CallLimit | None]]:
        """Yield a free instance and the limit; its time includes the wait for the instance."""
        with nullcontext() if limit is None else self._limits.start(limit) as running_limit:
            try:
                instance = self._free.get(
                    timeout=running_limit.remaining() if running_limit else None
                )
            except Empty:
                raise cast("CallLimit", running_limit).error() from None
            try:
                yield instance, running_limit
            finally:
                self._free.put(instance)

    def fetch(self, state: "Tensor") -> np.ndarray:
        """Return a copy of a state."""
        return cast("LoadedModel", self._instances[0]).fetch(state)

    def close(self) -> None:
        """End the threads of all instances; later calls raise ConfigError."""
        for instance in self._instances:
            instance.close()
