"""Pad by a number that is computed, which TVM's takes for known."""

from typing import Any, Final

from tvm import relax, te, tirx
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx import known

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
        if mode != "constant" or not _is_computed(inputs, params):
            return super()._lower_pad(bb, inputs, attr, params, allowed_modes)
        before, after, _ = cls._parse_pads_and_axes(inputs, params)
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


def _is_computed(inputs: Any, params: Any) -> bool:
    """Whether the number that is put around the data is not known before the model runs."""
    number = (*inputs, None, None)[2]
    return number is not None and known.values(number, params) is None
