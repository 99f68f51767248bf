"""Slice by numbers that are known, its ends within the tensor.

TVM's converter takes starts and ends to be near the tensor: it adds the size to those that are far
below, and a step back from there has no element where ONNX has one.
"""

from typing import Any

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx import known

# ruff: noqa: ANN401  TVM's converters have no types


class Slice(onnx_frontend.Slice):
    """Slice, with attributes before opset 10 and with inputs since then."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        given = [relax.const(list(attr[name]), "int64") for name in ("starts", "ends")]
        axes = relax.const(list(attr["axes"]), "int64") if "axes" in attr else None
        return cls._impl_v13(bb, [inputs[0], *given, axes, None], attr, params)

    @classmethod
    def _impl_v13(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        data, *given = (*inputs, None, None)[:5]
        numbers = [known.values(value, params) for value in given]
        computed = any(
            value is not None and found is None for value, found in zip(given, numbers, strict=True)
        )
        if computed or not isinstance(data.ty, relax.TensorType) or not known.is_fixed(data.ty):
            return super()._impl_v13(bb, [data, *given], attr, params)
        sizes = known.sizes(data, f"input of {known.name(attr)}")
        listed = [[] if found is None else found.reshape(-1).tolist() for found in numbers]
        starts, ends, axes, steps = listed
        axes = list(range(len(starts))) if given[2] is None else axes
        steps = [1] * len(starts) if given[3] is None else steps
        parts = {
            axis % len(sizes): part(start, end, step, sizes[axis % len(sizes)])
            for axis, start, end, step in zip(axes, starts, ends, steps, strict=True)
        }
        if any(not taken for taken in parts.values()):
            left = [len(parts.get(axis, range(size))) for axis, size in enumerate(sizes)]
            return relax.op.zeros(left, str(data.ty.dtype))
        if not parts:
            return data
        firsts, lasts, strides = zip(*map(_ends, parts.values()), strict=True)
        return relax.op.strided_slice(data, list(parts), firsts, lasts, strides)

    _impl_v10 = _impl_v13


def part(start: int, end: int, step: int, size: int) -> range:
    """Return the places that ONNX's Slice takes of an axis.

    Unlike Python's, a start below a tensor counts as its first element, also for a step back.
    Example: -100 to -200 by -1 of 7 elements takes place 0.
    """
    start, end = (place + size if place < 0 else place for place in (start, end))
    if step > 0:
        return range(min(max(start, 0), size), min(max(end, 0), size), step)
    return range(min(max(start, 0), size - 1), min(max(end, -1), size), step)


def _ends(places: range) -> tuple[int, int, int]:
    """Return start, end and step for Relax, which counts an end below 0 from the back."""
    first, count = places.start, len(places)
    step = places.step if count > 1 else 1
    end = first + (count - 1) * step + (1 if step > 0 else -1)
    return first, end if end >= 0 else -(2**31), step
