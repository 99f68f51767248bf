"""Instances of one model, which share its library and weights and run at the same time."""

from collections.abc import Mapping, Sequence
from queue import LifoQueue
from typing import Any, cast

import numpy as np

from autopipe.compiler.library.loaded_model import LoadedModel
from autopipe.compiler.library.open_model import OpenModel
from autopipe.compiler.library.stream import Held, Stream

Instance = LoadedModel | OpenModel


class ModelInstances:
    """Loaded instances of one model; a call takes a free one, or waits for it."""

    def __init__(self, instances: Sequence[Instance]) -> None:
        self.signature = instances[0].signature
        self._instances = tuple(instances)
        self._free: LifoQueue[Instance] = LifoQueue()
        for instance in reversed(instances):
            self._free.put(instance)

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run one inference, as `LoadedModel` does."""
        instance = self._free.get()
        try:
            return instance(inputs)
        finally:
            self._free.put(instance)

    def stream(
        self, states: Mapping[str, str], start: Mapping[str, np.ndarray] | None = None
    ) -> Stream:
        """Return the model to be called step by step; streams run at the same time."""
        self._instances[0].stream(states, start)  # a model with open sizes refuses
        return Stream(self, states, start)

    def step(
        self, arrays: Mapping[str, np.ndarray], held: Held, states: Mapping[str, str]
    ) -> tuple[dict[str, np.ndarray], Held]:
        """Run one step of a stream, as `LoadedModel` does."""
        instance = self._free.get()
        try:
            return cast("LoadedModel", instance).step(arrays, held, states)
        finally:
            self._free.put(instance)

    def fetch(self, state: Any) -> np.ndarray:  # noqa: ANN401 - a tensor of the runtime
        """Return a copy of a state."""
        return cast("LoadedModel", self._instances[0]).fetch(state)

    def close(self) -> None:
        """End the threads of all instances; later calls raise ConfigError."""
        for instance in self._instances:
            instance.close()
