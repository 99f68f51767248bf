"""ScatterND: rows of a tensor are replaced at places that are computed.

TVM's own copies element by element on one thread, and starts all threads anew for each row.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from tvm import tirx
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.frontends.onnx import known, lookups
from autopipe.compiler.frontends.onnx.found.kernels import extern
from autopipe.compiler.frontends.onnx.open.extents import wide

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
            lookups.check("ScatterND", inputs, attr)
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
    count = int(places.ty.shape.values[-1])
    sizes = data.ty.shape.values[:count]

    def scatter(data: Any, places: Any, updates: Any, *sizes: Any) -> Any:
        def write(data: Any, places: Any, updates: Any, out: Any) -> None:
            _Rows(data, places, updates, out, sizes).write()

        made = [(data.shape, data.dtype)]
        return extern(write, [data, places, updates], made, "scattered")[0]

    return bb.emit_te(scatter, data, places, updates, *sizes, primfunc_name_hint="scattered")


@dataclass(frozen=True)
class _Rows:
    """Writes the loops: all rows are copied, then some are replaced, each part of a row alike.

    Loops follow the axes of a row, as one index for all of them had to be divided.
    """

    data: Any
    places: Any
    updates: Any
    out: Any
    sizes: Sequence[Any]
    """Sizes of the axes that places are of."""

    @property
    def _row(self) -> list[Any]:
        return list(self.data.shape[len(self.sizes) :])

    def write(self) -> None:
        """Write the loops, over stripes of rows where a row is long."""
        most = self._stripe()
        rows = prod(self.sizes, start=wide(1))
        if most is None:
            with T.serial(wide(0), wide(1)):  # TVM wants a single statement
                whole = (wide(0), self._row[0] if self._row else wide(1))
                with T.parallel(wide(0), rows) as row:
                    self._copy(row, whole)
                self._replace(whole)
            return
        with T.parallel(wide(0), tirx.floordiv(self._row[0] + (most - 1), most)) as stripe:
            first = stripe * most
            part = first, tirx.min(self._row[0] - first, wide(most))
            with T.serial(wide(0), rows) as row:
                self._copy(row, part)
            self._replace(part)

    def _stripe(self) -> int | None:
        """Return how many steps of the first axis of a row a stripe has; None for one stripe."""
        if not self._row or not all(isinstance(size, tirx.IntImm) for size in self._row):
            return None
        first, *others = map(int, self._row)
        most = max(1, _STRIPE // max(1, prod(others)))
        return most if first > most else None

    def _copy(self, row: Any, part: tuple[Any, Any]) -> None:
        at = _unfolded(row, self.sizes)
        with self._elements(part) as element:
            self.out[(*at, *element)] = self.data[(*at, *element)]

    def _replace(self, part: tuple[Any, Any]) -> None:
        """Write a part of each row that is replaced. Where there are no rows, none is."""
        updated = list(self.places.shape[:-1])
        some = tirx.all(*(size > 0 for size in self.sizes))
        with T.If(some), T.Then(), T.serial(wide(0), prod(updated, start=wide(1))) as number:
            source = _unfolded(number, updated)
            at = []
            for axis, size in enumerate(self.sizes):
                place = tirx.Cast("int64", self.places[(*source, wide(axis))])
                place = tirx.if_then_else(place < 0, place + size, place)
                at.append(T.Bind(tirx.max(tirx.min(place, size - 1), wide(0))))
            with self._elements(part) as element:
                self.out[(*at, *element)] = self.updates[(*source, *element)]

    @contextmanager
    def _elements(self, part: tuple[Any, Any]) -> Iterator[list[Any]]:
        """Write loops over a part of a row; yield the place in the row."""
        first, length = part
        with ExitStack() as loops:
            lengths = [length, *self._row[1:]][: len(self._row)]
            at = [loops.enter_context(T.serial(wide(0), one)) for one in lengths]
            yield [first + at[0], *at[1:]] if at else []


def _unfolded(number: Any, sizes: Sequence[Any]) -> list[Any]:
    """Return the index along each axis of what is counted through all of them."""
    if len(sizes) < _SEVERAL:
        return [number] * len(sizes)
    inner = [prod(sizes[axis + 1 :], start=wide(1)) for axis in range(len(sizes))]
    return [
        tirx.floormod(tirx.floordiv(number, tirx.max(below, 1)), tirx.max(size, 1))
        for size, below in zip(sizes, inner, strict=True)
    ]


_SEVERAL: Final = 2
