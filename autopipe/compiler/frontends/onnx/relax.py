"""A cleaned-up ONNX model as a Relax module."""

import contextlib
import io
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

from autopipe.compiler.frontends.imported import Value
from autopipe.compiler.frontends.onnx import known
from autopipe.compiler.frontends.onnx.control.converters import hide
from autopipe.compiler.frontends.onnx.control.scopes import has_control
from autopipe.compiler.frontends.onnx.converters import replaced
from autopipe.compiler.frontends.onnx.named import NodeError, name_nodes, plain
from autopipe.compiler.frontends.onnx.tensors import Proto, dtype_name
from autopipe.errors import ModelError

_LONGEST = 500
_ADVICE = "do the sizes in model.inputs fit the model? If so, export it in another form or opset"


def to_relax(model: Proto, inputs: Sequence[Value], weights: Sequence[str]) -> Any:  # noqa: ANN401
    """Return an IRModule whose `main` takes the inputs, then the weights, in order.

    The weights are inputs of the graph too: as initializers they would be copied again and
    again, and some converters would make constants of them. Raises `ModelError`, with the node.
    """
    name_nodes(model.graph)
    if has_control(model.graph):
        hidden = type(model)()
        hidden.CopyFrom(model)
        hide(hidden)
        model = hidden
    try:
        with _silence(), replaced():
            module = from_onnx(model, sanitize_input_names=False)
    except NodeError as error:
        raise ModelError(f"TVM can not import {error}; {_ADVICE}") from error
    except ModelError:  # of a converter of ours
        raise
    except Exception as error:  # TVM raises what it likes
        raise ModelError(f"TVM can not import the model: {plain(error)}") from error
    main = module["main"].with_attr("num_input", len(inputs))
    expected = [*(value.name for value in inputs), *weights]
    found = [parameter.name for parameter in main.params]
    if found != expected:
        other = sorted(set(found) ^ set(expected)) or "in another order"
        raise ModelError(f"TVM imported other parameters than the graph has: {other}"[:_LONGEST])
    module.update_func(module.get_global_var("main"), main)
    return module


def outputs(module: Any, graph: Proto) -> tuple[Value, ...]:  # noqa: ANN401
    """Return the outputs of `main` under the model's names.

    Raises `ModelError` for a shape that depends on data, and for a dtype that the model declares
    differently.
    """
    result = module["main"].ret_ty
    types = list(result.fields) if isinstance(result, relax.TupleType) else [result]
    return tuple(
        _output(declared, kind) for declared, kind in zip(graph.output, types, strict=True)
    )


def misdeclared(values: Sequence[Value], graph: Proto) -> list[str]:
    """Say which outputs have another shape than the model declares, a line each.

    Published models are wrong about that, and onnxruntime computes them all the same.
    """
    found = []
    for value, declared in zip(values, graph.output, strict=True):
        stated = declared.type.tensor_type
        sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in stated.shape.dim]
        fits = len(sizes) == len(value.shape) and all(
            size in {None, real} for size, real in zip(sizes, value.shape, strict=True)
        )
        if stated.HasField("shape") and not fits:
            words = ", ".join("?" if size is None else str(size) for size in sizes)
            real = list(value.shape)
            found.append(f"output {value.name!r} is declared as [{words}], and {real} comes out")
    return found


def _output(declared: Proto, kind: Any) -> Value:  # noqa: ANN401
    what = f"output {declared.name!r}"
    if isinstance(kind, relax.ShapeType):
        raise ModelError(f"{what} is a shape, which TVM does not return as a tensor")
    shape = tuple(known.sizes_of(kind, what))
    stated, dtype = declared.type.tensor_type, str(kind.dtype)
    if stated.elem_type and dtype_name(stated.elem_type, what) != dtype:
        raise ModelError(
            f"{what} is {dtype_name(stated.elem_type, what)}, and TVM imports it as {dtype}"
        )
    return Value(name=declared.name, shape=shape, dtype=dtype)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep the importer's prints and warnings from the user."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
