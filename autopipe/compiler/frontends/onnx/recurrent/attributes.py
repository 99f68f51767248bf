"""Check the attributes of a recurrent node and derive the form of its loops."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import Attributes
from autopipe.compiler.recurrence.form import GATES, Activation, Direction, Recurrence
from autopipe.errors import ModelError

_DIRECTIONS: Final = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""Whether each pass is in reverse, by direction."""

_USUAL: Final = {
    "LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",),
}  # fmt: skip

_PARAMETERS: Final[Mapping[str, Mapping[str, float]]] = {
    "affine": {"alpha": 0.0, "beta": 0.0},
    "elu": {"alpha": 1.0},
    "hardsigmoid": {"alpha": 0.2, "beta": 0.5},
    "leakyrelu": {"alpha": 0.01},
    "relu": {},
    "scaledtanh": {"alpha": 0.0, "beta": 0.0},
    "sigmoid": {},
    "softplus": {},
    "softsign": {},
    "tanh": {},
    "thresholdedrelu": {"alpha": 0.0},
}
"""The parameters of each function from `activation_alpha` and `activation_beta`, with defaults;
ONNX has none for some, and onnxruntime uses zero."""

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RecurrentNode:
    """A recurrent node: its kind, attributes, and the shapes of its inputs."""

    kind: str
    attributes: Attributes
    shapes: Mapping[str, Shape]
    """Of the present inputs, steps first: `X`, `W`, `R` and others. A dynamic size is -1."""

    def form(
        self, *, lengths: bool, dtype: str, finite: bool = False, rounded: bool = False
    ) -> Recurrence:
        """Return the form of the layer. Raises ModelError for inconsistent attributes or shapes.

        `lengths`: sequences have individual lengths; `finite`: all recurrent weights are known to
        be finite; `rounded`: products are of int8.
        """
        directions = self._read_directions()
        steps, batch, size = self._read_dims("X", 3)
        hidden_size = self._read_hidden_size()
        initial = "initial_h" in self.shapes or "initial_c" in self.shapes
        self._check_shapes(len(directions), batch, size, hidden_size)
        if not min(steps, batch, size, hidden_size):
            self._refuse_node("nothing to compute: a dimension is 0")
        return Recurrence(
            kind=self.kind,
            steps=max(steps, 0),
            batch=max(batch, 0),
            hidden=hidden_size,
            directions=directions,
            dtype=dtype,
            clip=self._read_clip(),
            coupled=bool(self._read_int("input_forget")),
            peepholes="P" in self.shapes,
            reset_after=self.kind == "GRU" and bool(self._read_int("linear_before_reset")),
            lengths=lengths,
            initial=initial,
            resting=finite and not initial,
            rounded=rounded,
        )

    def _check_shapes(self, ways: int, batch: int, size: int, hidden_size: int) -> None:
        """Raise ModelError if the shape of an input contradicts the others."""
        columns = GATES[self.kind] * hidden_size
        expected_shapes = {
            "W": (ways, columns, size),
            "R": (ways, columns, hidden_size),
            "B": (ways, 2 * columns),
            "sequence_lens": (batch,),
            "initial_h": (ways, batch, hidden_size),
            "initial_c": (ways, batch, hidden_size),
            "P": (ways, 3 * hidden_size),
        }
        for name, shape in expected_shapes.items():
            if self.shapes.get(name, shape) != shape:
                self._refuse_node(
                    f"input {name} has shape {list(self.shapes[name])}, and {list(shape)} fits"
                    f" hidden_size {hidden_size} and the other inputs"
                )

    def _read_hidden_size(self) -> int:
        weight_size = self._read_dims("R", 3)[2]
        attribute_size = self.attributes.get("hidden_size", weight_size)
        if attribute_size != weight_size:
            self._refuse_node(f"hidden_size is {attribute_size}, and input R is for {weight_size}")
        return weight_size

    def _read_dims(self, name: str, rank: int) -> Shape:
        shape = self.shapes[name]
        if len(shape) != rank:
            self._refuse_node(f"input {name} has shape {list(shape)}, not {rank} dimensions")
        return shape

    def _read_directions(self) -> tuple[Direction, ...]:
        direction = operand_facts.decode_text(self.attributes.get("direction", "forward"))
        if direction not in _DIRECTIONS:
            self._refuse_node(f"direction {direction!r} is none of {', '.join(_DIRECTIONS)}")
        reversed_ = _DIRECTIONS[direction]
        count = len(_USUAL[self.kind])
        functions = list(self._read_activations(len(reversed_) * count))
        return tuple(
            Direction(reverse=reverse, activations=tuple(functions[at * count : (at + 1) * count]))
            for at, reverse in enumerate(reversed_)
        )

    def _read_activations(self, count: int) -> Iterator[Activation]:
        usual = _USUAL[self.kind]
        names: Sequence[Any] = self.attributes.get("activations") or usual * (count // len(usual))
        if len(names) != count:
            self._refuse_node(f"activations has {len(names)} names, and {count} are needed")
        remaining_values = {
            name: list(map(float, self.attributes.get(f"activation_{name}", ())))
            for name in ("alpha", "beta")
        }
        for name, values in remaining_values.items():
            if not all(map(math.isfinite, values)):
                self._refuse_node(f"activation_{name} holds {', '.join(map(str, values))}")
        for name in map(operand_facts.decode_text, names):
            if name.lower() not in _PARAMETERS:
                self._refuse_node(
                    f"activation {name!r} is unknown; known are {', '.join(_PARAMETERS)}"
                )
            parameters = {
                parameter: remaining_values[parameter].pop(0)
                if remaining_values[parameter]
                else usually
                for parameter, usually in _PARAMETERS[name.lower()].items()
            }
            yield Activation.model_validate({"name": name.lower(), **parameters})

    def _read_clip(self) -> float | None:
        clip = float(self.attributes.get("clip", 0.0))
        if not 0 <= clip < float("inf"):
            self._refuse_node(f"clip is {clip:g}, and it has to be positive")
        return clip or None

    def _read_int(self, name: str) -> int:
        return int(self.attributes.get(name, 0))

    def _refuse_node(self, why: str) -> None:
        raise ModelError(f"{self.attributes['tvm_custom']['name'] or self.kind}: {why}")
