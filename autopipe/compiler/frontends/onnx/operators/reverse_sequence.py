"""ReverseSequence: the first steps of each sequence in reverse order."""

from collections.abc import Callable
from typing import Final

from tvm import te, tirx
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion.converter_types import Attributes
from autopipe.compiler.frontends.onnx.conversion.places import (
    Limits,
    PlaceRule,
    Shapes,
    require_places,
)
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import advise_on_sizes, is_open
from autopipe.compiler.frontends.onnx.operator import Operator
from autopipe.errors import ModelError


def convert_reverse_sequence(site: NodeSite) -> Expr:
    """Convert ReverseSequence: reverse the first `sequence_lens[n]` steps of sequence n."""
    data, lengths = site.inputs[:2]
    sizes = site.extents.shape(data, site.label)
    time, batch = (int(site.attr.get(f"{name}_axis", axis)) % len(sizes)
                   for axis, name in enumerate(("time", "batch")))  # fmt: skip
    (count,) = site.extents.shape(lengths, site.label)
    if is_open([sizes[batch]]) and not site.extents.equal(count, sizes[batch]):
        raise ModelError(f"{site.label} has {count} lengths for a batch of {sizes[batch]}; "
                         f"{advise_on_sizes([sizes[batch], count])}")  # fmt: skip
    require_places(_SEQUENCES, site)
    return site.bb.emit_te(
        make_reversal(time, batch), data, lengths, primfunc_name_hint="reverse_sequence"
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


def _limit_places(shapes: Shapes, attr: Attributes) -> Limits:
    data, lengths = shapes
    return [(data[int(attr.get("batch_axis", 1))], lengths[0])]


_SEQUENCES: Final = PlaceRule(_limit_places, lambda shapes: shapes[0])


OPERATORS: Final = (Operator(name="ReverseSequence", since=28, converter=convert_reverse_sequence),)
