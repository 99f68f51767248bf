"""What a recurrent layer computes, as data: all that its loops are written from."""

from typing import Annotated, Final, Literal

from pydantic import Field, ValidationError

from autopipe.config.frozen import Frozen

ATTRIBUTE: Final = "autopipe.recurrence"
"""Attribute of a PrimFunc that holds its form as JSON."""

GATES: Final = {"LSTM": 4, "GRU": 3, "RNN": 1}
"""Gates by kind of cell, in ONNX's order: i, o, f, c of an LSTM and z, r, h of a GRU."""

PEEPHOLES: Final = 3
"""Gates of an LSTM that see the cell: i, o and f."""

COUNTS: Final = ("zero", "total")
"""Whole numbers for each column of weights that are bytes: the byte that stands for zero, and the
sum of the column, less that byte for each."""

_Size = Annotated[int, Field(ge=1, le=2**31 - 1)]
_Open = Annotated[int, Field(ge=0, le=2**31 - 1)]
"""A size that is 0 where it is known only when the model runs."""


class Activation(Frozen, frozen=True):
    """A function of one number."""

    name: Literal[
        "affine", "elu", "hardsigmoid", "leakyrelu", "relu", "scaledtanh", "sigmoid", "softplus",
        "softsign", "tanh", "thresholdedrelu",
    ]  # fmt: skip
    alpha: float = 0.0
    beta: float = 0.0


class Direction(Frozen, frozen=True):
    """One pass over the steps."""

    reverse: bool
    """Whether it begins with the last step."""
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
    """What goes into the activations of gates stays between this and its negative."""
    coupled: bool = False
    """Whether the forget gate of an LSTM is 1 minus its input gate."""
    peepholes: bool = False
    """Whether gates of an LSTM see the cell."""
    reset_after: bool = False
    """Whether a GRU resets the product of the state (`linear_before_reset`), or the state."""
    lengths: bool = False
    """Whether each sequence of the batch has a length of its own."""
    initial: bool = False
    """Whether the states begin with given values; else with zeros."""
    resting: bool = False
    """Whether the first step multiplies no state, since that is zero and all weights are finite."""
    rounded: bool = False
    """Whether bytes are multiplied: the weights are bytes with a scale and a zero point for each
    column, and the state is rounded to 256 steps of its range."""

    @property
    def is_open(self) -> bool:
        """Whether steps or batch are known only when the model runs."""
        return not (self.steps and self.batch)

    @property
    def gates(self) -> int:
        """Gates of a cell."""
        return GATES[self.kind]

    @property
    def columns(self) -> int:
        """Sums of a step, for one sequence and all directions."""
        return len(self.directions) * self.gates * self.hidden

    @property
    def idle(self) -> bool:
        """Whether no step multiplies a state."""
        return self.resting and self.steps == 1

    @property
    def flops(self) -> float:
        """Operations of the products of states and weights."""
        multiplied = self.steps - self.resting
        return 2.0 * multiplied * self.batch * self.hidden * self.columns

    @property
    def cell(self) -> bool:
        """Whether there is a second state beside the hidden one."""
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
        named = {name: (shape, dtypes.get(name, self.dtype)) for name, shape in shapes.items()}
        return named | ({"lengths": ((self.batch,), "int32")} if self.lengths else {})

    @property
    def outputs(self) -> dict[str, tuple[int, ...]]:
        """Shape of each output by name, in order: all hidden states, then the last states."""
        ways = len(self.directions)
        shapes: dict[str, tuple[int, ...]] = {"y": (self.steps, ways, self.batch, self.hidden)}
        last = {f"last_{name}": (ways, self.batch, self.hidden) for name in self.states}
        return shapes | last

    @property
    def states(self) -> tuple[str, ...]:
        """What a step hands to the next."""
        return ("h", "c") if self.cell else ("h",)


def parse_form(text: str) -> Recurrence | None:
    """Return the form that a text says, or None if it says none, or one with open sizes."""
    form = parse_any(text)
    return None if form is None or form.is_open else form


def parse_any(text: str) -> Recurrence | None:
    """Return the form that a text says, its sizes open or not, or None if it says none."""
    try:
        return Recurrence.model_validate_json(text)
    except ValidationError:
        return None
