"""The outputs of an imported model, and what their sizes are known to be before a call."""

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
from autopipe.config.dimension import Dimension
from autopipe.errors import ModelError


def describe_outputs(
    module: IRModule,
    graph: GraphProto,
    inputs: Sequence[Value],
    dimensions: Mapping[str, Dimension],
) -> tuple[Value, ...]:
    """Return the outputs of `main` under the model's names.

    A size that an input has is called as there; of other open sizes the range is told. Raises
    `ModelError` for a shape that depends on data, and for a dtype that the model declares
    differently.
    """
    main = module["main"]
    kinds = [param.ty for param in main.params if isinstance(param.ty, relax.ShapeType)]
    steps = {str(step.name): step for kind in kinds for step in kind.values}
    extents = _bound_sizes(main, Extents(steps, dimensions))
    named = {
        name: size
        for value in inputs
        for name, size in zip(value.dimensions, open_shape(value, dimensions, steps), strict=False)
        if name
    }
    return tuple(
        _describe_output(declared, kind, extents, named)
        for declared, kind in zip(graph.output, list_result_types(main), strict=True)
    )


def _bound_sizes(main: relax.Function, extents: Extents) -> Extents:
    """Return what is known of sizes, with those that the model computes in its outputs."""
    most = {str(name): int(number) for name, number in (main.attrs or {}).get(FOUND_SIZES, ())}
    for kind in list_result_types(main):
        for size in getattr(getattr(kind, "shape", None), "values", None) or ():
            for variable in tirx.analysis.undefined_vars(size):
                if str(variable.name) in most:
                    extents.bind_found(variable, most.pop(str(variable.name)))
    return extents


def _describe_output(
    declared: ValueInfoProto, kind: Type, extents: Extents, named: Mapping[str, Size]
) -> Value:
    what = f"output {declared.name!r}"
    if isinstance(kind, relax.ShapeType):
        raise ModelError(f"{what} is a shape, which TVM does not return as a tensor")
    shape = tuple(operand_facts.read_extents(kind, what))
    stated, dtype = declared.type.tensor_type, str(kind.dtype)
    if stated.elem_type and to_dtype_name(stated.elem_type, what) != dtype:
        raise ModelError(
            f"{what} is {to_dtype_name(stated.elem_type, what)}, and TVM imports it as {dtype}"
        )
    names = tuple(
        next((name for name, one in named.items() if extents.equal(one, size)), "")
        if extent < 0
        else ""
        for extent, size in zip(shape, kind.shape.values, strict=True)
    )
    ranges = tuple(
        find_size_range(size, extents) if extent < 0 and not name else None
        for extent, name, size in zip(shape, names, kind.shape.values, strict=True)
    )
    return Value(
        name=declared.name, shape=shape, dtype=dtype, dimensions=names if any(names) else (),
        ranges=ranges if any(ranges) else (),
    )  # fmt: skip


def find_size_range(size: Size, extents: Extents) -> tuple[int, int] | None:
    """Return the smallest and the largest value of a size; None where nothing bounds it."""
    least, most = extents.bounds(extents.simple(size))
    return (max(least, 0), most) if 0 <= most <= MOST_ELEMENTS else None


def list_misdeclared(values: Sequence[Value], graph: GraphProto) -> list[str]:
    """Say which outputs have another shape than the model declares, a line each.

    Published models are wrong about that, and onnxruntime computes them all the same.
    """
    found = []
    for value, declared in zip(values, graph.output, strict=True):
        stated = declared.type.tensor_type
        sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in stated.shape.dim]
        fits = len(sizes) == len(value.shape) and all(
            size in {None, real} or real < 0 for size, real in zip(sizes, value.shape, strict=True)
        )
        if stated.HasField("shape") and not fits:
            words = ", ".join("?" if size is None else str(size) for size in sizes)
            real = list(value.shape)
            found.append(f"output {value.name!r} is declared as [{words}], and {real} comes out")
    return found
