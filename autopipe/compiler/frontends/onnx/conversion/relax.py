"""Convert a cleaned-up ONNX model to a Relax module."""

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
from autopipe.compiler.frontends.onnx.control.scopes import has_control
from autopipe.compiler.frontends.onnx.conversion.converted_nodes import (
    NO_ORIGINS,
    ConvertedNodes,
    Origins,
)
from autopipe.compiler.frontends.onnx.conversion.converter_types import Size
from autopipe.compiler.frontends.onnx.conversion.converters import (
    hide_control_nodes,
    install_converters,
)
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
    """Convert a model to an IRModule; its `main` takes the inputs, then the weights, in order.

    Dynamic sizes come between them, as one shape: the number of multiples of each of `dimensions`.
    Example: with `height: {multiple: 32}` an input [1, 3, 32 * height, 640] follows from [height].

    The weights are inputs of the graph too: as initializers they would be copied repeatedly, and
    some converters would embed them as constants. Variables are labelled with their nodes of
    `origins`. Raises `ModelError`, with the node.
    """
    name_nodes(model.graph)
    if has_control(model.graph):
        renamed_model = type(model)()
        renamed_model.CopyFrom(model)
        hide_control_nodes(renamed_model)
        model = renamed_model
    steps = {
        name: tirx.Var(name, "int64") for name in sorted(dimensions)
    }  # in the order of documents
    shapes = _list_open_shapes(inputs, dimensions, steps)
    extents = Extents(steps, dimensions)
    module = _convert_nodes(model, shapes, extents, origins)
    main = module["main"]
    expected_names = [*(value.name for value in inputs), *weights]
    parameter_names = [parameter.name for parameter in main.params]
    if parameter_names != expected_names:
        difference = sorted(set(parameter_names) ^ set(expected_names)) or "in another order"
        raise ModelError(
            f"TVM imported other parameters than the graph has: {difference}"[:_LONGEST]
        )
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

    Data-dependent sizes are added to `extents`. Raises ModelError, with the node.
    """
    recorder = ConvertedNodes(origins, len(model.graph.node))
    try:
        with _silence_importer(), install_converters(extents, recorder):
            module = from_onnx(model, shape_dict=shapes or None, sanitize_input_names=False)
    except NodeError as error:
        raise ModelError(f"TVM cannot import {error}; {_ADVICE}") from error
    except ModelError:  # of our converters
        raise
    except Exception as error:  # TVM raises anything
        raise ModelError(f"TVM cannot import the model: {describe_error(error)}") from error
    return recorder.label(module)


def _list_open_shapes(
    inputs: Sequence[Value], dimensions: Mapping[str, Dimension], steps: Mapping[str, Expr]
) -> dict[str, list[Size]]:
    """Return the shapes of inputs with a dynamic size or a size of 0, which TVM misreads."""
    return {
        value.name: open_shape(value, dimensions, steps)
        for value in inputs
        if value.dimensions or 0 in value.shape
    }


def open_shape(
    value: Value, dimensions: Mapping[str, Dimension], steps: Mapping[str, Expr]
) -> list[Size]:
    """Return the shape of an input, with multiples of steps for dynamic sizes."""
    if not value.dimensions:
        return list(value.shape)
    multiples = {name: step * dimensions[name].multiple for name, step in steps.items()}
    return [
        _add_terms(extent, multiples) if extent else size
        for extent, size in zip(value.dimensions, value.shape, strict=True)
    ]


def _add_terms(extent: str, sizes: Mapping[str, Expr]) -> Size:
    """Build the expression of a dynamic size, as `past + 1`."""
    summands = (term if isinstance(term, int) else sizes[term] for term in parse_terms(extent))
    return reduce(add, summands, 0)


def _with_sizes(main: relax.Function, inputs: int, steps: Sequence[tirx.Var]) -> relax.Function:
    """Insert a shape parameter with the steps after the inputs of a function."""
    sizes = relax.Var(SIZES, relax.ShapeType(steps))
    params = [*main.params[:inputs], sizes, *main.params[inputs:]]
    # `main.ret_ty` keeps only sizes defined by inputs, and `32 * height` does not define `height`
    result = main.body.body.ty
    return relax.Function(params, main.body, result, main.is_pure, main.attrs, main.span)


def list_result_types(main: relax.Function) -> list[Type]:
    """Return the types of outputs; `main.ret_ty` lacks data-dependent sizes."""
    result = main.body.body.ty
    return list(result.fields) if isinstance(result, relax.TupleType) else [result]


@contextlib.contextmanager
def _silence_importer() -> Iterator[None]:
    """Suppress the importer's prints and warnings."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
