"""Has TVM's importer know the numbers that follow from open sizes."""

from collections.abc import Mapping
from typing import Any

from tvm import ir, relax, tirx

from autopipe.compiler.frontends.onnx import known
from autopipe.compiler.frontends.onnx.found import nothing
from autopipe.compiler.frontends.onnx.named import shape_told
from autopipe.compiler.frontends.onnx.open import arithmetic, choosing
from autopipe.compiler.frontends.onnx.open.extents import Extents, advice, names, total
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.compiler.frontends.onnx.place_limits import OUTSIDE, read_shapes
from autopipe.compiler.frontends.onnx.tensors import Array
from autopipe.errors import ModelError

# ruff: noqa: ANN401, E501  TVM's converters have no types


class OpenConverter:
    """A converter that is asked where no numbers of open sizes are at hand."""

    def __init__(self, operator: Operator, converter: Any, extents: Extents) -> None:
        self._operator, self._converter, self._extents = operator, converter, extents

    def get_converter(self, opset: int) -> Any:
        """Return what converts a node, as TVM's importer calls it."""
        original = self._converter.get_converter(opset)

        def convert(bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
            numbers = [self._extents.of(value, params) for value in inputs]
            numbers = self._read(bb, inputs, numbers, attr)
            self._check_places(bb, inputs, attr)
            made = self._computed(bb, inputs, numbers, attr)
            if made is None and self._operator.name == "If":
                made = choosing.taken(bb, numbers[0], attr, params[0], opset)
            if made is None and self._operator.convert_dynamic is not None:
                made = self._operator.convert_dynamic(self._extents, bb, inputs, numbers, attr)
            if made is None:
                made = original(bb, inputs, attr, params)
            made = self._checked(bb, made, inputs, attr)
            return nothing.guarded(self._extents, bb, self._operator, made, inputs)

        return convert

    def _read(self, bb: Any, inputs: Any, numbers: list[Array | None], attr: Any) -> list[Any]:
        """Return numbers, those too that values of the model decide where they are sizes."""
        made = list(numbers)
        for at in self._operator.read_sizes:
            value = inputs[at] if at < len(inputs) else None
            if value is None or numbers[at] is not None:
                continue
            sizes = getattr(getattr(value.ty, "shape", None), "values", None)
            if sizes is not None and all(isinstance(size, tirx.IntImm) for size in sizes):
                node = str(attr["tvm_custom"]["name"])
                made[at] = self._extents.read(bb, value, f"{node}.{at}")
        return made

    def _check_places(self, bb: Any, inputs: Any, attr: Any) -> None:
        """Have a call end with an error where nothing is at the places that a node reads."""
        rule = self._operator.places
        shapes = None if rule is None else read_shapes(inputs)
        if rule is None or shapes is None:
            return
        sizes = [list(map(self._extents.simple, shape)) for shape in shapes]
        self._extents.require(
            bb,
            rule.list_limits(sizes, attr),
            f"{self._operator.name} {known.name(attr)} {OUTSIDE}",
            rule.list_counts(sizes),
        )

    def _checked(self, bb: Any, made: Any, inputs: Any, attr: Any) -> Any:
        """Refuse a node whose sizes fit each other at some open sizes only."""
        if not isinstance(made, ir.Expr):
            return made
        made = bb.normalize(made)
        if not isinstance(made.ty, relax.TensorType) or made.ty.shape is not None:
            return made
        given = [
            list(value.ty.shape.values)
            for value in inputs
            if value is not None
            and isinstance(value.ty, relax.TensorType)
            and isinstance(value.ty.shape, relax.ShapeExpr)
        ]
        sizes = [size for shape in given for size in shape]
        if len(given) < sum(value is not None for value in inputs) or not names(sizes):
            return made
        told = ", ".join(map(shape_told, given))
        raise ModelError(
            f"{self._operator.name} {known.name(attr)} of {told}: what comes out has a size that is not known, "
            f"or fits at some sizes only; {advice(sizes)}, or a multiple"
        )

    def _computed(self, bb: Any, inputs: Any, numbers: list[Array | None], attr: Any) -> Any:
        """Return a node that computes numbers of open sizes."""
        if self._operator.has(Trait.READS_SIZES):
            return self._shape(bb, inputs[0], attr)
        if all(value is None or self._extents.kept(value) is None for value in inputs):
            return None
        if any(
            value is not None and found is None
            for value, found in zip(inputs, numbers, strict=True)
        ):
            return None
        dtypes = ["" if value is None else str(value.ty.dtype) for value in inputs]
        made = arithmetic.evaluate(self._extents, self._operator, numbers, dtypes, attr)
        return None if made is None else self._extents.put(bb, *made)

    def _shape(self, bb: Any, data: Any, attr: Mapping[str, Any]) -> Any:
        import numpy as np

        sizes = self._extents.shape(data, f"{self._operator.name} {known.name(attr)}")
        numbers: Array = np.empty(len(sizes), object)
        numbers[:] = sizes
        if self._operator.name == "Shape":
            numbers = numbers[slice(attr.get("start"), attr.get("end"))]
        else:
            whole: Array = np.empty((), object)
            whole[()] = self._extents.simple(total(sizes))
            numbers = whole
        return self._extents.put(bb, numbers, "int64")
