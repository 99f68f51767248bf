"""ScatterND: rows of a tensor are replaced at places that are computed.

TVM's own copies element by element on one thread, and starts all threads anew for each row.
"""

from dataclasses import dataclass
from math import prod
from typing import Any, Final

from tvm import relax, tirx
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.frontends.onnx import known
from autopipe.compiler.frontends.onnx.found.kernels import extern
from autopipe.compiler.frontends.onnx.open.extents import shape_of, wide

# ruff: noqa: ANN401  TVM's converters have no types, and one signature

_STRIPE: Final = 1024
"""Elements of a row that one thread takes care of, in all rows."""


@dataclass(frozen=True)
class ScatteredRows:
    """A converter of ScatterND where nothing is added up and the places are computed."""

    otherwise: Any
    """What converts all others."""

    def get_converter(self, opset: int) -> Any:
        """Return what converts a node, as TVM's importer calls it."""

        def convert(bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
            added = known.text(attr.get("reduction", b"none")) != "none"
            if added or not _computed(inputs, params):
                return self.otherwise.get_converter(opset)(bb, inputs, attr, params)
            return replaced(bb, *inputs)

        return convert


def _computed(inputs: Any, params: Any) -> bool:
    """Tell whether places are computed, and the shapes are known but for open sizes."""
    shaped = all(getattr(getattr(one.ty, "shape", None), "values", None) for one in inputs)
    return shaped and known.values(inputs[1], params) is None


def replaced(bb: Any, data: Any, places: Any, updates: Any) -> Any:
    """Return data with rows replaced, one after the other; places are cut to be inside.

    Args:
        bb: TVM's builder of blocks.
        data: A tensor [n1, ..., nk, row...].
        places: Whole numbers [updates..., k]; negative ones count from the end.
        updates: What is put there: [updates..., row...].
    """
    shape, count = list(data.ty.shape.values), int(places.ty.shape.values[-1])
    sizes, row = shape[:count], prod(shape[count:], start=wide(1))
    number = prod(places.ty.shape.values[:-1], start=wide(1))
    flat = [
        bb.emit(relax.op.reshape(one, shape_of(list(kind))))
        for one, kind in (
            (data, (prod(sizes, start=wide(1)), row)),
            (places, (number, wide(count))),
            (updates, (number, row)),
        )
    ]

    def scatter(data: Any, places: Any, updates: Any, *sizes: Any) -> Any:
        def write(data: Any, places: Any, updates: Any, out: Any) -> None:
            _write(data, places, updates, out, sizes)

        made = [(data.shape, data.dtype)]
        return extern(write, [data, places, updates], made, "scattered")[0]

    made = bb.emit_te(scatter, *flat, *sizes, primfunc_name_hint="scattered")
    return relax.op.reshape(bb.emit(made), shape_of(shape))


def _write(data: Any, places: Any, updates: Any, out: Any, sizes: Any) -> None:
    """Write the loops, over stripes of rows where a row is long."""
    rows, row = data.shape
    if isinstance(row, tirx.IntImm) and int(row) < _STRIPE:
        with T.serial(wide(0), wide(1)):  # TVM wants a single statement
            with T.parallel(wide(0), rows) as at, T.serial(wide(0), row) as element:
                out[at, element] = data[at, element]
            _update(places, updates, out, sizes, (wide(0), row))
        return
    stripes = tirx.floordiv(row + (_STRIPE - 1), _STRIPE)
    with T.parallel(wide(0), stripes) as stripe:
        first = stripe * _STRIPE
        length = tirx.min(row - first, wide(_STRIPE))
        with T.serial(wide(0), rows) as at, T.serial(wide(0), length) as element:
            out[at, first + element] = data[at, first + element]
        _update(places, updates, out, sizes, (first, length))


def _update(places: Any, updates: Any, out: Any, sizes: Any, part: tuple[Any, Any]) -> None:
    """Write a part of each row that is replaced."""
    first, length = part
    with T.If(out.shape[0] > 0), T.Then(), T.serial(wide(0), places.shape[0]) as at:
        row = wide(0)
        for axis, size in enumerate(sizes):
            place = tirx.Cast("int64", places[at, axis])
            place = tirx.if_then_else(place < 0, place + size, place)
            row = row * size + tirx.max(tirx.min(place, size - 1), wide(0))
        there = T.Bind(row)
        with T.serial(wide(0), length) as element:
            out[there, first + element] = updates[at, first + element]
