"""A cleaned-up ONNX model as a Relax module."""

import contextlib
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import add
from types import MappingProxyType
from typing import Final

from onnx import ModelProto
from tvm import relax, tirx
from tvm.ir import Expr, IRModule, Type
from tvm.relax.frontend.onnx import from_onnx

from autopipe.compiler.dynamic_sizes.kernel_sizes import FOUND_SIZES
from autopipe.compiler.frontends.imported import Value
from autopipe.compiler.frontends.onnx.control.converters import hide_control_nodes
from autopipe.compiler.frontends.onnx.control.scopes import has_control
from autopipe.compiler.frontends.onnx.conversion.converted_nodes import (
    NO_ORIGINS,
    ConvertedNodes,
    Origins,
)
from autopipe.compiler.frontends.onnx.conversion.converter_types import Size
from autopipe.compiler.frontends.onnx.conversion.converters import install_converters
from autopipe.compiler.frontends.onnx.conversion.failing_node import NodeError, describe_error
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import Extents
from autopipe.compiler.frontends.onnx.reading.tensors import name_nodes
from autopipe.config.dimension import Dimension, parse_terms
from autopipe.errors import ModelError

SIZES: Final = "autopipe.sizes"
"""Name of the parameter that holds dynamic sizes."""

_LONGEST = 500
_ADVICE = "do the sizes in model.inputs fit the model? If so, export it in another form or opset"


def to_relax(
    model: ModelProto,
    inputs: Sequence[Value],
    weights: Sequence[str],
    dimensions: Mapping[str, Dimension] = MappingProxyType({}),
    origins: Origins = NO_ORIGINS,
) -> IRModule:
    """Convert a model to an IRModule whose `main` takes the inputs, then the weights, in order.

    Dynamic sizes come between them, as one shape: how many multiples each of `dimensions` has.
    Example: with `height: {multiple: 32}` an input [1, 3, 32 * height, 640] follows from [height].

    The weights are inputs of the graph too: as initializers they would be copied again and
    again, and some converters would make constants of them. Variables are labelled with their
    nodes of `origins`. Raises `ModelError`, with the node.
    """
    name_nodes(model.graph)
    if has_control(model.graph):
        hidden = type(model)()
        hidden.CopyFrom(model)
        hide_control_nodes(hidden)
        model = hidden
    steps = {name: tirx.Var(name, "int64") for name in sorted(dimensions)}  # as documents have them
    shapes = _list_open_shapes(inputs, dimensions, steps)
    extents = Extents(steps, dimensions)
    module = _convert_nodes(model, shapes, extents, origins)
    main = module["main"]
    expected = [*(value.name for value in inputs), *weights]
    given = [parameter.name for parameter in main.params]
    if given != expected:
        other = sorted(set(given) ^ set(expected)) or "in another order"
        raise ModelError(f"TVM imported other parameters than the graph has: {other}"[:_LONGEST])
    if steps:
        main = _with_sizes(main, len(inputs), list(steps.values()))
    if extents.found:
        main = main.with_attr(FOUND_SIZES, [[size.name, size.most] for size in extents.found])
    main = main.with_attr("num_input", len(inputs) + bool(steps))
    module.update_func(module.get_global_var("main"), main)
    return module


def _convert_nodes(
    model: ModelProto, shapes: Mapping[str, Sequence[Size]], extents: Extents, origins: Origins
) -> IRModule:
    """Convert each node once, whether its shapes are static, dynamic or data-dependent.

    Sizes that the model computes are added to `extents`. Raises ModelError, with the node.
    """
    converted = ConvertedNodes(origins, len(model.graph.node))
    try:
        with _silence_importer(), install_converters(extents, converted):
            module = from_onnx(model, shape_dict=shapes or None, sanitize_input_names=False)
    except NodeError as error:
        raise ModelError(f"TVM can not import {error}; {_ADVICE}") from error
    except ModelError:  # of a converter of ours
        raise
    except Exception as error:  # TVM raises what it likes
        raise ModelError(f"TVM can not import the model: {describe_error(error)}") from error
    return converted.label(module)


def _list_open_shapes(
    inputs: Sequence[Value], dimensions: Mapping[str, Dimension], steps: Mapping[str, Expr]
) -> dict[str, list[Size]]:
    """Return the shapes that TVM does not take as they are declared: an open size, or one of 0."""
    return {
        value.name: open_shape(value, dimensions, steps)
        for value in inputs
        if value.dimensions or 0 in value.shape
    }


def open_shape(
    value: Value, dimensions: Mapping[str, Dimension], steps: Mapping[str, Expr]
) -> list[Size]:
    """Return the shape of an input, with multiples of steps where its size is open."""
    if not value.dimensions:
        return list(value.shape)
    multiples = {name: step * dimensions[name].multiple for name, step in steps.items()}
    return [
        _add_terms(extent, multiples) if extent else size
        for extent, size in zip(value.dimensions, value.shape, strict=True)
    ]


def _add_terms(extent: str, sizes: Mapping[str, Expr]) -> Size:
    """Return a dynamic size: of `past + 1` the sum of both."""
    summands = (term if isinstance(term, int) else sizes[term] for term in parse_terms(extent))
    return reduce(add, summands, 0)


def _with_sizes(main: relax.Function, inputs: int, steps: Sequence[tirx.Var]) -> relax.Function:
    """Return a function that takes the steps after its inputs, as one shape."""
    sizes = relax.Var(SIZES, relax.ShapeType(steps))
    params = [*main.params[:inputs], sizes, *main.params[inputs:]]
    # `main.ret_ty` has only sizes that inputs alone define; `32 * height` defines no `height`
    result = main.body.body.ty
    return relax.Function(params, main.body, result, main.is_pure, main.attrs, main.span)


def list_result_types(main: relax.Function) -> list[Type]:
    """Return the types of outputs; `main.ret_ty` forgets sizes that are computed inside."""
    result = main.body.body.ty
    return list(result.fields) if isinstance(result, relax.TupleType) else [result]


@contextlib.contextmanager
def _silence_importer() -> Iterator[None]:
    """Keep the importer's prints and warnings from the user."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
