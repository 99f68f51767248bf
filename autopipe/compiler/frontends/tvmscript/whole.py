"""Normalize a parsed source, module or PrimFunc, to one Relax `main` of static shapes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import tvm
from tvm import relax, tirx
from tvm.relax import transform
from tvm.s_tir import SBlock

from autopipe.compiler.find_nodes import find_nodes, is_among, list_loads
from autopipe.compiler.frontends.imported import Value
from autopipe.compiler.frontends.tvmscript.checks import read_static_sizes
from autopipe.compiler.module_io import list_prim_funcs
from autopipe.config.model import DType, Input
from autopipe.config.suggestion import find_closest
from autopipe.errors import ConfigError, ModelError

_INPUTS = "num_input"
_DTYPES = get_args(DType)


@dataclass(frozen=True, slots=True)
class Whole:
    """A normalized model, without values of its weights."""

    module: tvm.IRModule
    """`main` takes the inputs, then the weights."""
    inputs: tuple[Value, ...]
    weights: tuple[Value, ...]
    outputs: tuple[Value, ...]


def normalize_model(
    parsed_model: tvm.IRModule | tirx.PrimFunc, inputs: Mapping[str, Input]
) -> Whole:
    """Return the model of a source, with its inputs bound to the shapes of the pipeline.

    Raises `ModelError`, and `ConfigError` if `inputs` contradict the model.
    """
    module = _as_module(parsed_model)
    _check_names([p.name for p in module["main"].params], inputs)
    module = _bind_symbols(module, inputs)
    main = module["main"]
    ports = [_read_value(f"parameter {p.name!r}", p.name, p.ty) for p in main.params]
    count = int((main.attrs or {}).get(_INPUTS, len(ports)))
    if not 1 <= count <= len(ports):
        raise ModelError(f"num_input is {count}; main has {len(ports)} parameters")
    for value in ports[:count]:
        _check_given(value, inputs.get(value.name))
    if stray := sorted(inputs.keys() & {value.name for value in ports[count:]}):
        raise ConfigError(f"model.inputs.{stray[0]}: a weight, as num_input is {count}")
    return Whole(
        _make_private(module, count),
        tuple(ports[:count]),
        tuple(ports[count:]),
        _list_outputs(main),
    )


def _as_module(parsed_model: tvm.IRModule | tirx.PrimFunc) -> tvm.IRModule:
    """Return the model as a module with a graph `main`."""
    if isinstance(parsed_model, tirx.PrimFunc):
        return _wrap_kernel(parsed_model)
    kernel = _find_single_kernel(parsed_model)
    return parsed_model if kernel is None else _wrap_kernel(kernel)


def _find_single_kernel(module: tvm.IRModule) -> tirx.PrimFunc | None:
    """Return the PrimFunc if it is the whole model, else None."""
    functions = list(module.functions.values())
    return functions[0] if len(functions) == 1 and list_prim_funcs(module) else None


def _wrap_kernel(function: tirx.PrimFunc) -> tvm.IRModule:
    """Wrap a PrimFunc in a module: `main` calls it with inputs and returns its outputs.

    `call_tir` requires the outputs last, so the parameters are reordered.
    """
    read_names, written_names = _find_accesses(function)
    shared_names = [p.name for p in function.params if p.name in read_names & written_names]
    if shared_names:
        raise ModelError(
            f"{shared_names[0]!r} is read and written; a model leaves its inputs alone"
        )
    outputs = [p for p in function.params if p.name in written_names]
    inputs = [p for p in function.params if p.name not in written_names]
    if not outputs:
        raise ModelError("nothing is written to a buffer among the parameters")
    if unread := [p.name for p in inputs if p.name not in read_names]:
        raise ModelError(f"{unread[0]!r} is neither read nor written")
    builder = relax.BlockBuilder()
    name = str((function.attrs or {}).get("global_symbol", "main"))
    count = int((function.attrs or {}).get(_INPUTS, len(inputs)))
    body = tirx.PrimFunc([*inputs, *outputs], function.body, function.ret_type, function.attrs)
    for attribute in ("global_symbol", _INPUTS):
        body = body.without_attr(attribute)
    types = [_to_tensor_type(p) for p in outputs]
    params = [relax.Var(p.name, _to_tensor_type(p)) for p in inputs]
    with builder.function("main", params, {_INPUTS: count}):
        variable = builder.add_func(body, "main_body" if name == "main" else name)
        with builder.dataflow():
            if len(types) == 1:
                call = relax.call_tir(variable, params, types[0])
                results = [builder.emit_output(call, outputs[0].name)]
            else:
                result = builder.emit(relax.call_tir(variable, params, types))
                fields = (relax.TupleGetItem(result, index) for index in range(len(types)))
                named_fields = zip(fields, outputs, strict=True)
                results = [builder.emit_output(field, p.name) for field, p in named_fields]
        builder.emit_func_output(results[0] if len(types) == 1 else relax.Tuple(results))
    return builder.finalize()


def _find_accesses(function: tirx.PrimFunc) -> tuple[set[str], set[str]]:
    """Return the names of the input parameters and of the output parameters.

    A reduction also reads its output, but its block does not list that read.
    """
    blocks = find_nodes(function.body, SBlock)
    stores = find_nodes(function.body, tirx.BufferStore)
    read_names: set[str] = set()
    written_before: set[str] = set()
    for block in blocks:
        read_names |= (
            _match_params(function, [region.source for region in block.reads]) - written_before
        )
        written_before |= _match_params(function, [region.source for region in block.writes])
    written_names = _match_params(function, [store.buffer for store in stores])
    if not blocks:
        sources = [load.source for load in list_loads(function.body)]
        read_names = _match_params(function, sources) - written_names
    return read_names, written_names


def _match_params(function: tirx.PrimFunc, buffers: Sequence[Any]) -> set[str]:
    return {p.name for p in function.params if is_among(p, buffers)}


def _bind_symbols(module: tvm.IRModule, inputs: Mapping[str, Input]) -> tvm.IRModule:
    """Replace the symbols in the shapes of inputs by the sizes of the pipeline file."""
    symbols: dict[str, int] = {}
    for param in module["main"].params:
        shape = getattr(getattr(param.ty, "shape", None), "values", None)
        if param.name not in inputs or shape is None or len(shape) != len(inputs[param.name].shape):
            continue
        for extent, size in zip(shape, inputs[param.name].sizes, strict=True):
            if isinstance(extent, tirx.Var):
                symbols.setdefault(extent.name, size)
    return transform.BindSymbolicVars(symbols, "main")(module) if symbols else module


def _check_names(names: Sequence[str], inputs: Mapping[str, Input]) -> None:
    for name in inputs.keys() - set(names):
        suggestion = find_closest(name, names)
        hint = f"; did you mean {suggestion!r}?" if suggestion else ";"
        raise ConfigError(
            f"model.inputs.{name}: the model has no such input{hint} it has {', '.join(names)}"
        )


def _check_given(value: Value, input_spec: Input | None) -> None:
    if input_spec is None:
        return
    field_path = f"model.inputs.{value.name}"
    if input_spec.dtype not in {None, value.dtype}:
        raise ConfigError(
            f"{field_path}.dtype: {input_spec.dtype} is given, the model has {value.dtype}"
        )
    if input_spec.value is not None:
        raise ConfigError(
            f"{field_path}.value: only an input of an ONNX model can be made a constant"
        )
    if input_spec.shape != value.shape:
        raise ConfigError(
            f"{field_path}.shape: {list(input_spec.shape)}, the model has {list(value.shape)}"
        )


def _make_private(module: tvm.IRModule, count: int) -> tvm.IRModule:
    """Return the module with `main` as its only public function, all bindings in dataflow."""
    for name, function in list_prim_funcs(module):
        variable = module.get_global_var(name)
        for attribute in ("global_symbol", "layout_free_buffers"):  # set again when it is lowered
            function = function.without_attr(attribute)  # noqa: PLW2901
        module.update_func(variable, function)
    main = module["main"].with_attr({"global_symbol": "main", _INPUTS: count})
    module.update_func(module.get_global_var("main"), main)
    return transform.ConvertToDataflow(1)(module)


def _list_outputs(main: relax.Function) -> tuple[Value, ...]:
    """Return the outputs of `main`, with the names of its variables."""
    result = main.body.body
    kind = main.ret_ty
    types = list(kind.fields) if isinstance(kind, relax.TupleType) else [kind]
    fields = list(result.fields) if isinstance(result, relax.Tuple) else [result]
    names = [field.name if isinstance(field, relax.Var) else "" for field in fields]
    if len(names) != len(types) or len(set(names)) != len(names) or "" in names:
        names = [f"output{index}" for index in range(len(types))]
    return tuple(_read_value(f"output {n!r}", n, t) for n, t in zip(names, types, strict=True))


def _read_value(label: str, name: str, kind: object) -> Value:
    if not isinstance(kind, relax.TensorType):
        raise ModelError(f"{label} is no tensor")
    if str(kind.dtype) not in _DTYPES:
        raise ModelError(f"{label} is {kind.dtype}, not one of {', '.join(_DTYPES)}")
    shape = read_static_sizes(label, getattr(kind.shape, "values", None))
    return Value(name=name, shape=shape, dtype=str(kind.dtype))


def _to_tensor_type(buffer: tirx.Buffer) -> relax.TensorType:
    return relax.TensorType(buffer.shape, str(buffer.dtype))
