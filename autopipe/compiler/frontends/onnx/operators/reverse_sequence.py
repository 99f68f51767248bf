"""ReverseSequence: the first steps of each sequence in reverse order."""

from collections.abc import Callable, Sequence
from typing import Final

from tvm import te, tirx
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Numbers,
    Parameters,
    Size,
)
from autopipe.compiler.frontends.onnx.conversion.place_limits import (
    Limits,
    PlaceRule,
    Shapes,
    check_places,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    Extents,
    advise_on_sizes,
    is_open,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.shape_converters import describe_node
from autopipe.compiler.frontends.onnx.operator import Operator
from autopipe.errors import ModelError

# ruff: noqa: ARG001, ARG003  TVM's converters have one signature


class ReverseSequence(onnx_frontend.OnnxOpConverter):
    """ReverseSequence: reverse the first `sequence_lens[n]` steps of sequence n."""

    @classmethod
    def _impl_v10(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        axes = [int(attr.get("time_axis", 0)), int(attr.get("batch_axis", 1))]
        time, batch = (axis % inputs[0].ty.ndim for axis in axes)
        label = f"ReverseSequence {operand_facts.quote_node_name(attr)}"
        if operand_facts.read_extents(inputs[0].ty, f"input of {label}")[batch] < 0:
            raise ModelError(f"{label} has a dynamic batch; give its size")

        check_places("ReverseSequence", _SEQUENCES, inputs[:2], attr)
        return bb.emit_te(
            make_reversal(time, batch), *inputs[:2], primfunc_name_hint="reverse_sequence"
        )


def make_reversal(time: int, batch: int) -> Callable[..., te.Tensor]:
    """Build the tensor expression that reverses the first `lengths[n]` elements along `time`.

    n is the index along `batch`. Example: `[a, b, c, d]` and 3 give `[c, b, a, d]`.
    Lengths are clipped to 0 and the number of elements.
    """

    def reverse(data: te.Tensor, lengths: te.Tensor, *_: object) -> te.Tensor:
        def at(*index: Expr) -> Expr:
            length = tirx.min(lengths[index[batch]].astype("int64"), data.shape[time])
            place = index[time].astype("int64")
            source = tirx.if_then_else(place < length, length - 1 - place, place)
            return data[*index[:time], source, *index[time + 1 :]]

        return te.compute(data.shape, at, name="reverse_sequence")

    return reverse


def convert_dynamic_reverse_sequence(
    extents: Extents, bb: BlockBuilder, inputs: Inputs, numbers: Numbers, attr: Attributes
) -> Expr | None:
    """Convert ReverseSequence of a dynamic batch; None for a static one."""
    data, lengths = inputs[:2]
    label = describe_node("ReverseSequence", attr)
    sizes = extents.shape(data, label)
    time, batch = (int(attr.get(f"{name}_axis", axis)) % len(sizes)
                   for axis, name in enumerate(("time", "batch")))  # fmt: skip
    if not is_open([sizes[batch]]):
        return None
    (count,) = extents.shape(lengths, label)
    if not extents.equal(count, sizes[batch]):
        raise ModelError(f"{label} has {count} lengths for a batch of {sizes[batch]}; "
                         f"{advise_on_sizes([sizes[batch], count])}")  # fmt: skip
    return bb.emit_te(
        make_reversal(time, batch), data, lengths, primfunc_name_hint="reverse_sequence"
    )


def _limit_places(shapes: Shapes, attr: Attributes) -> Limits:
    data, lengths = shapes
    return [(data[int(attr.get("batch_axis", 1))], lengths[0])]


def _list_data(shapes: Shapes) -> Sequence[Size]:
    return shapes[0]


_SEQUENCES: Final = PlaceRule(_limit_places, _list_data)


OPERATORS: Final = (
    Operator(
        name="ReverseSequence",
        since=28,
        converter=ReverseSequence,
        convert_dynamic=convert_dynamic_reverse_sequence,
    ),
)
