"""Pad by a number that is computed, and by less than nothing: TVM's converter takes neither."""

from collections.abc import Sequence
from typing import Any, Final

from tvm import relax, te, tirx
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx import known
from autopipe.errors import ModelError

# ruff: noqa: ANN401  TVM's converters have no types


class Pad(onnx_frontend.Pad):
    """Pad by any number."""

    @classmethod
    def _parse_pads_and_axes(cls, inputs: Any, params: Any) -> Any:
        given = list(inputs)
        if _is_computed(inputs, params):
            given[2] = None
        known.numbers(given[1], params, "what Pad adds")
        return super()._parse_pads_and_axes(onnx_frontend.onnx_input(given), params)

    @classmethod
    def _lower_pad(cls, bb: Any, inputs: Any, attr: Any, params: Any, allowed_modes: Any) -> Any:
        mode = known.text(attr.get("mode", b"constant"))
        before, after, _ = cls._parse_pads_and_axes(inputs, params)
        if mode != "constant":
            cropped = _cropped(bb, inputs[0], before, after)
            widths = [max(width, 0) for width in (*before, *after)]
            if mode == "reflect":
                _check_reflection(cropped, widths, attr)
            given = onnx_frontend.onnx_input([cropped, relax.const(widths, "int64"), None])
            return super()._lower_pad(bb, given, attr, params, allowed_modes)
        if not _is_computed(inputs, params):
            return super()._lower_pad(bb, inputs, attr, params, allowed_modes)
        number = bb.normalize(relax.op.reshape(inputs[2], []))

        def pad(data: Any, number: Any) -> Any:
            sizes = [int(size) for size in data.shape]
            shape = [sum(each) for each in zip(before, sizes, after, strict=True)]

            def at(*index: Any) -> Any:
                places = [place - less for place, less in zip(index, before, strict=True)]
                inside = [
                    tirx.all(place >= 0, place < size)
                    for place, size in zip(places, sizes, strict=True)
                ]
                return tirx.if_then_else(tirx.all(*inside), data[tuple(places)], number[()])

            return te.compute(shape, at, name="pad")

        return bb.emit_te(pad, inputs[0], number, primfunc_name_hint="pad")


CONVERTERS: Final = {"Pad": Pad}


def _cropped(bb: Any, data: Any, before: Sequence[int], after: Sequence[int]) -> Any:
    """Return data without the elements that negative widths take away.

    They go first: what is put around the rest is taken from the rest.
    """
    axes = [axis for axis, widths in enumerate(zip(before, after, strict=True)) if min(widths) < 0]
    if not axes:
        return data
    sizes = known.sizes(data, "what Pad takes elements away from")
    firsts = [max(-before[axis], 0) for axis in axes]
    ends = [sizes[axis] - max(-after[axis], 0) for axis in axes]
    return bb.normalize(relax.op.strided_slice(data, axes, firsts, ends))


def _check_reflection(data: Any, widths: Sequence[int], attr: Any) -> None:
    """Refuse a border that reflects more than there is; the first element is not repeated."""
    sizes = known.extents_of(data.ty, f"input of Pad {known.name(attr)}")
    for size, *borders in zip(sizes, widths[: len(sizes)], widths[len(sizes) :], strict=True):
        if 0 <= size <= max(borders):
            raise ModelError(f"Pad {known.name(attr)} reflects {max(borders)} of {size} elements")


def _is_computed(inputs: Any, params: Any) -> bool:
    """Whether the number that is put around the data is not known before the model runs."""
    number = (*inputs, None, None)[2]
    return number is not None and known.values(number, params) is None
