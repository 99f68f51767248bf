"""Calls of a recurrent model step by step, with states kept between the calls.

Example: a cell of a network for speech takes `x` and `h`, and returns `y` and `h_next`.

    stream = model.stream({"h": "h_next"})
    for x in frames:
        y = stream({"x": x})["y"]

A state is not copied: the tensor that one call returns is an argument of the next one.
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
    """Checked inputs."""
    held: Held
    """The other inputs: states after an earlier step."""
    states: Mapping[str, str]
    """The output that becomes the input of the next call, by the input's name."""


class Streamed(Protocol):
    """The methods of a model that a stream calls."""

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
        for input_name, output_name in states.items():
            for name, ports, kind in (
                (input_name, inputs, "input"),
                (output_name, outputs, "output"),
            ):
                if name not in ports:
                    raise ConfigError(
                        f"the model has no {kind} {name!r}; it has {', '.join(ports)}"
                    )
            input_port, output_port = inputs[input_name], outputs[output_name]
            if (input_port.shape, input_port.dtype) != (output_port.shape, output_port.dtype):
                raise ConfigError(
                    f"output {output_name!r} {describe_port(output_port)} cannot be "
                    f"input {input_name!r} {describe_port(input_port)}"
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

        Arguments are those of a call of the model; after an error the states are those before it.
        """
        arrays = check_inputs(self._free, inputs) | self._start
        check_buffers(self._returned, outputs)
        step = StreamCall(arrays, self._held, self._names)
        results, self._held = self._model.step(step, outputs=outputs, limit=limit)
        self._start = {}
        return results

    def reset(self, start: Mapping[str, np.ndarray] | None = None) -> None:
        """Restart with states by input name, zeros by default.

        Raises ConfigError for a name, shape or dtype that is not the model's.
        """
        zeros = {port.name: np.zeros(port.shape, port.dtype) for port in self._kept}
        arrays = check_inputs(self._kept, {**zeros, **(start or {})})
        self._start = {name: array.copy() for name, array in arrays.items()}
        self._held = {}

    @property
    def states(self) -> dict[str, np.ndarray]:
        """Copies of the states that the next call starts from, by input name."""
        if self._start:
            return {name: array.copy() for name, array in self._start.items()}
        return {name: self._model.fetch(state) for name, state in self._held.items()}
