"""The parameters of a recurrent layer, from which its loops are written."""

from typing import Annotated, Final, Literal

from pydantic import Field, ValidationError

from autopipe.config.frozen import Frozen

ATTRIBUTE: Final = "autopipe.recurrence"
"""Attribute of a PrimFunc that holds its form as JSON."""

GATES: Final = {"LSTM": 4, "GRU": 3, "RNN": 1}
"""Gates by kind of cell, in ONNX's order: i, o, f, c of an LSTM and z, r, h of a GRU."""

PEEPHOLES: Final = 3
"""Gates of an LSTM with a peephole: i, o and f."""

COUNTS: Final = ("zero", "total")
"""Integers for each column of int8 weights: the zero point, and the sum of the column, less the
zero point of each element."""

_Size = Annotated[int, Field(ge=1, le=2**31 - 1)]
_Open = Annotated[int, Field(ge=0, le=2**31 - 1)]
"""A size; 0 if it is dynamic."""


class Activation(Frozen, frozen=True):
    """A unary activation function."""

    name: Literal[
        "affine", "elu", "hardsigmoid", "leakyrelu", "relu", "scaledtanh", "sigmoid", "softplus",
        "softsign", "tanh", "thresholdedrelu",
    ]  # fmt: skip
    alpha: float = 0.0
    beta: float = 0.0


class Direction(Frozen, frozen=True):
    """One pass over the steps."""

    reverse: bool
    """Whether the pass begins with the last step."""
    activations: tuple[Activation, ...]
    """f, g and h of an LSTM, f and g of a GRU, f of a simple network."""


class Recurrence(Frozen, frozen=True):
    """A recurrent layer."""

    kind: Literal["LSTM", "GRU", "RNN"]
    steps: _Open
    batch: _Open
    hidden: _Size
    directions: tuple[Direction, ...]
    """One or two."""
    dtype: Literal["float32", "float64"] = "float32"
    clip: float | None = None
    """Inputs of the gates' activations are clipped to this magnitude."""
    coupled: bool = False
    """Whether the forget gate of an LSTM is 1 minus its input gate."""
    peepholes: bool = False
    """Whether gates of an LSTM have peepholes to the cell."""
    reset_after: bool = False
    """Whether a GRU resets the matmul of the state (`linear_before_reset`), or the state."""
    lengths: bool = False
    """Whether sequences of the batch have individual lengths."""
    initial: bool = False
    """Whether the initial states are inputs; otherwise they are zero."""
    resting: bool = False
    """Whether the first step skips the matmul: the state is zero and all weights are finite."""
    rounded: bool = False
    """Whether the matmul is quantized: the weights are int8 with a scale and a zero point for each
    column, and the state is quantized to uint8 dynamically."""

    @property
    def is_open(self) -> bool:
        """Whether steps or batch are dynamic."""
        return not (self.steps and self.batch)

    @property
    def gates(self) -> int:
        """Gates of a cell."""
        return GATES[self.kind]

    @property
    def columns(self) -> int:
        """Sums per step and sequence, over all directions."""
        return len(self.directions) * self.gates * self.hidden

    @property
    def idle(self) -> bool:
        """Whether no step has a matmul of the state."""
        return self.resting and self.steps == 1

    @property
    def flops(self) -> float:
        """Operations of the matmuls of states and weights."""
        matmul_steps = self.steps - self.resting
        return 2.0 * matmul_steps * self.batch * self.hidden * self.columns

    @property
    def cell(self) -> bool:
        """Whether there is a cell state besides the hidden state."""
        return self.kind == "LSTM"

    @property
    def inputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and dtype of each input by name, in order."""
        ways, state = len(self.directions), (len(self.directions), self.batch, self.hidden)
        shapes: dict[str, tuple[int, ...]] = {
            "x": (self.steps, self.batch, self.columns),
            "r": (ways, self.hidden, self.gates * self.hidden),
        }
        if self.rounded:
            shapes |= dict.fromkeys(("scale", *COUNTS), (ways, self.gates * self.hidden))
        if self.reset_after:
            shapes["bias"] = (ways, self.hidden)
        if self.peepholes:
            shapes["p"] = (ways, PEEPHOLES * self.hidden)
        if self.initial:
            shapes |= dict.fromkeys(self.states, state)
        dtypes = {"r": "int8", **dict.fromkeys(COUNTS, "int32")} if self.rounded else {}
        ports = {name: (shape, dtypes.get(name, self.dtype)) for name, shape in shapes.items()}
        return ports | ({"lengths": ((self.batch,), "int32")} if self.lengths else {})

    @property
    def outputs(self) -> dict[str, tuple[int, ...]]:
        """Shape of each output by name, in order: all hidden states, then the last states."""
        ways = len(self.directions)
        shapes: dict[str, tuple[int, ...]] = {"y": (self.steps, ways, self.batch, self.hidden)}
        last = {f"last_{name}": (ways, self.batch, self.hidden) for name in self.states}
        return shapes | last

    @property
    def states(self) -> tuple[str, ...]:
        """Names of the states that a step passes to the next."""
        return ("h", "c") if self.cell else ("h",)


def parse_form(text: str) -> Recurrence | None:
    """Parse a form of static sizes from JSON; None for other text or dynamic sizes."""
    form = parse_any(text)
    return None if form is None or form.is_open else form


def parse_any(text: str) -> Recurrence | None:
    """Parse a form of static or dynamic sizes from JSON; None for other text."""
    try:
        return Recurrence.model_validate_json(text)
    except ValidationError:
        return None
