"""The outputs of an imported model, with the names or ranges of dynamic dimensions."""

from collections.abc import Mapping, Sequence

from onnx import GraphProto, ValueInfoProto
from tvm import relax, tirx
from tvm.ir import IRModule, Type

from autopipe.artifacts.signature import MOST_ELEMENTS
from autopipe.compiler.dynamic_sizes.kernel_sizes import FOUND_SIZES
from autopipe.compiler.frontends.imported import Value
from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import Size
from autopipe.compiler.frontends.onnx.conversion.relax import list_result_types, open_shape
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import Extents
from autopipe.compiler.frontends.onnx.reading.tensors import to_dtype_name
from autopipe.compiler.frontends.onnx.reading.value_types import read_type
from autopipe.config.dimension import Dimension
from autopipe.errors import ModelError


def describe_outputs(
    module: IRModule,
    graph: GraphProto,
    inputs: Sequence[Value],
    dimensions: Mapping[str, Dimension],
) -> tuple[Value, ...]:
    """Return the outputs of `main` under the model's names.

    A dynamic dimension equal to one of an input has its name; others have a range. Raises
    `ModelError` for a shape of unknown rank, and for a dtype other than the declared one.
    """
    main = module["main"]
    kinds = [param.ty for param in main.params if isinstance(param.ty, relax.ShapeType)]
    steps = {str(step.name): step for kind in kinds for step in kind.values}
    extents = _bound_sizes(main, Extents(steps, dimensions))
    sizes_by_name = {
        name: size
        for value in inputs
        for name, size in zip(value.dimensions, open_shape(value, dimensions, steps), strict=False)
        if name
    }
    return tuple(
        _describe_output(declared, kind, extents, sizes_by_name)
        for declared, kind in zip(graph.output, list_result_types(main), strict=True)
    )


def _bound_sizes(main: relax.Function, extents: Extents) -> Extents:
    """Bind the data-dependent sizes of the outputs to their ranges."""
    most = {str(name): int(number) for name, number in (main.attrs or {}).get(FOUND_SIZES, ())}
    for kind in list_result_types(main):
        for size in getattr(getattr(kind, "shape", None), "values", None) or ():
            for variable in tirx.analysis.undefined_vars(size):
                if str(variable.name) in most:
                    extents.bind_found(variable, most.pop(str(variable.name)))
    return extents


def _describe_output(
    declared_value: ValueInfoProto, kind: Type, extents: Extents, sizes_by_name: Mapping[str, Size]
) -> Value:
    label = f"output {declared_value.name!r}"
    if isinstance(kind, relax.ShapeType):
        raise ModelError(f"{label} is a shape, which TVM does not return as a tensor")
    shape = tuple(operand_facts.read_extents(kind, label))
    tensor_type, dtype = declared_value.type.tensor_type, str(kind.dtype)
    if tensor_type.elem_type and to_dtype_name(tensor_type.elem_type, label) != dtype:
        declared_dtype = to_dtype_name(tensor_type.elem_type, label)
        raise ModelError(f"{label} is {declared_dtype}, and TVM imports it as {dtype}")
    names = tuple(
        next((name for name, one in sizes_by_name.items() if extents.equal(one, size)), "")
        if extent < 0
        else ""
        for extent, size in zip(shape, kind.shape.values, strict=True)
    )
    ranges = tuple(
        find_size_range(size, extents) if extent < 0 and not name else None
        for extent, name, size in zip(shape, names, kind.shape.values, strict=True)
    )
    return Value(
        name=declared_value.name, shape=shape, dtype=dtype, dimensions=names if any(names) else (),
        ranges=ranges if any(ranges) else (),
    )  # fmt: skip


def find_size_range(size: Size, extents: Extents) -> tuple[int, int] | None:
    """Return the bounds of a size, both inclusive; None if it is unbounded."""
    least, most = extents.bounds(extents.simple(size))
    return (max(least, 0), most) if 0 <= most <= MOST_ELEMENTS else None


def list_misdeclared(values: Sequence[Value], graph: GraphProto) -> list[str]:
    """List the outputs of another shape than declared, a line each.

    Published models declare wrong shapes, which onnxruntime ignores.
    """
    lines = []
    for value, declared_value in zip(values, graph.output, strict=True):
        sizes = read_type(declared_value.type).sizes
        fits = sizes is None or (
            len(sizes) == len(value.shape)
            and all(
                not isinstance(size, int) or size == real or real < 0
                for size, real in zip(sizes, value.shape, strict=True)
            )
        )
        if sizes is not None and not fits:
            words = ", ".join(str(size) if isinstance(size, int) else "?" for size in sizes)
            real = list(value.shape)
            lines.append(f"output {value.name!r} is declared as [{words}], and {real} comes out")
    return lines
