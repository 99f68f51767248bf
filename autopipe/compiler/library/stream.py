"""A model that is called again and again, and keeps what it remembers in between.

Example: a cell of a network for speech takes `x` and `h`, and returns `y` and `h_next`.

    stream = model.stream({"h": "h_next"})
    for x in frames:
        y = stream({"x": x})["y"]

A state stays where the model has put it: the tensor that one call returns is given to the next one.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from autopipe.artifacts.signature import Signature
from autopipe.compiler.library.call_limit import CallLimit
from autopipe.compiler.library.ports import (
    NO_ARRAYS,
    Arrays,
    check_buffers,
    check_inputs,
    describe_port,
)
from autopipe.errors import ConfigError

if TYPE_CHECKING:
    from tvm_ffi import Tensor

Held = Mapping[str, "Tensor"]
"""States as tensors of the runtime, by the input that takes each."""


class StreamCall(NamedTuple):
    """A call of a stream."""

    arrays: Arrays
    """Inputs that were checked."""
    held: Held
    """The other inputs: states after an earlier step."""
    states: Mapping[str, str]
    """The output that becomes the input of the next call, by the input's name."""


class Streamed(Protocol):
    """What a stream needs of a model."""

    signature: Signature

    def step(
        self, step: "StreamCall", *, outputs: Arrays, limit: float | CallLimit | None
    ) -> tuple[dict[str, np.ndarray], Held]:
        """Run once."""

    def fetch(self, state: "Tensor") -> np.ndarray:
        """Return a copy of a state."""


class Stream:
    """Calls of a model, one after the other; `LoadedModel.stream` makes it.

    For a second stream of data, open a second one of the same model.
    """

    def __init__(
        self,
        model: Streamed,
        states: Mapping[str, str],
        start: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        inputs = {port.name: port for port in model.signature.inputs}
        outputs = {port.name: port for port in model.signature.outputs}
        for given, made in states.items():
            for name, known, what in ((given, inputs, "input"), (made, outputs, "output")):
                if name not in known:
                    raise ConfigError(
                        f"the model has no {what} {name!r}; it has {', '.join(known)}"
                    )
            one, two = inputs[given], outputs[made]
            if (one.shape, one.dtype) != (two.shape, two.dtype):
                raise ConfigError(
                    f"output {made!r} {describe_port(two)} can not be input {given!r} "
                    f"{describe_port(one)}"
                )
        self._model, self._names = model, dict(states)
        self._kept = [inputs[name] for name in states]
        self._free = [port for port in inputs.values() if port.name not in states]
        self._returned = [port for port in outputs.values() if port.name not in states.values()]
        self._held: Held = {}
        self._start: dict[str, np.ndarray] = {}
        self.reset(start)

    def __call__(
        self,
        inputs: Arrays,
        *,
        outputs: Arrays = NO_ARRAYS,
        limit: float | CallLimit | None = None,
    ) -> dict[str, np.ndarray]:
        """Run one step on the inputs that are not states; return the outputs that are not states.

        All else is as in a call of the model; after an error the states are those before it.
        """
        arrays = check_inputs(self._free, inputs) | self._start
        check_buffers(self._returned, outputs)
        step = StreamCall(arrays, self._held, self._names)
        returned, self._held = self._model.step(step, outputs=outputs, limit=limit)
        self._start = {}
        return returned

    def reset(self, start: Mapping[str, np.ndarray] | None = None) -> None:
        """Begin anew, with the given states by input name, and zeros for those not given.

        Raises ConfigError for a name, shape or dtype that is not the model's.
        """
        zeros = {port.name: np.zeros(port.shape, port.dtype) for port in self._kept}
        given = check_inputs(self._kept, {**zeros, **(start or {})})
        self._start = {name: array.copy() for name, array in given.items()}
        self._held = {}

    @property
    def states(self) -> dict[str, np.ndarray]:
        """Copies of the states that the next call starts from, by input name."""
        if self._start:
            return {name: array.copy() for name, array in self._start.items()}
        return {name: self._model.fetch(state) for name, state in self._held.items()}
