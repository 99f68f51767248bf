"""Makes PrimFuncs again from their op information: the proof that it is complete."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import tvm
from tvm import relax
from tvm.relax import transform

from autopipe.compiler.graph.calls import find_callee, list_bindings
from autopipe.compiler.graph.literals import list_tensors
from autopipe.compiler.passes.legalize import legalize_ops
from autopipe.tasks.op_info import Argument, Fields, Literal, Op, OpInfo, Parameter
from autopipe.tasks.tensor import Tensor

_FUSED: Final = "fused"

_BOXED: Final = ("indices_or_sections",)
"""Attributes that hold numbers as TVM's objects, so that there may be one or a list."""

_STATISTICS: Final = ("max", "mean", "median", "min", "prod", "std", "sum", "variance")

_ATTRS: Final = {
    "argmax": "relax.attrs.ArgmaxArgminAttrs",
    "argmin": "relax.attrs.ArgmaxArgminAttrs",
    "bucketize": "relax.attrs.BucketizeAttrs",
    "matmul": "relax.attrs.MatmulAttrs",
} | dict.fromkeys(_STATISTICS, "relax.attrs.StatisticalAttrs")
"""Classes of attributes that TVM's registry of ops does not name."""

_NO_JSON: Final = {text: float(text) for text in ("inf", "-inf", "nan")}


class RebuildError(ValueError):
    """The op information is not enough to make the function again. The message says why."""


def rebuild(info: OpInfo, inputs: Sequence[Tensor], target: tvm.target.Target) -> tvm.tirx.PrimFunc:
    """Return the PrimFunc that op information describes, over the tensors it reads, in order.

    Raises RebuildError for TIR that came with the model, and for an op that was lowered to several
    functions. Also for symbolic shapes, large constants and index maps, which op information does
    not hold.
    """
    with target, tvm.transform.PassContext(opt_level=3):
        module = transform.AnnotateTIROpPattern()(legalize_ops(graph(info, inputs)))
        calls = [b.value for b in list_bindings(module["main"]) if find_callee(b.value) is not None]
        if len(calls) != len(info.ops):
            raise RebuildError(f"{', '.join(info.names)}: {len(calls)} functions")
        names = [param.name for param in module["main"].params]
        read = [[getattr(arg, "name", "") for arg in call.args[1]] for call in calls]
        if any(name in names[len(inputs) :] for arguments in read for name in arguments):
            raise RebuildError("it reads a large constant")
        if read == [names[: len(inputs)]] and info.results == info.ops[0].results(0):
            return module[calls[0].args[0]]
        return transform.FuseTIR()(_as_one(module, len(inputs)))[_FUSED]


def graph(info: OpInfo, inputs: Sequence[Tensor]) -> tvm.IRModule:
    """Return a module whose `main` applies the ops to the inputs. Raises the errors of `rebuild`.

    After the inputs, `main` takes the tensors of which the ops need only the shape, and large
    constants.
    """
    unknown = [
        Tensor(shape=tensor.shape or (), dtype=tensor.dtype or "") for tensor in _unknown(info)
    ]
    params = [relax.Var(f"p{i}", _type(tensor)) for i, tensor in enumerate((*inputs, *unknown))]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            flow = _Emitter(builder, params[: len(inputs)], iter(params[len(inputs) :]))
            for op in info.ops:
                flow.add(op)
            results = [builder.emit_output(flow.value(result)) for result in info.results]
        builder.emit_func_output(results[0] if len(results) == 1 else relax.Tuple(results))
    return builder.get()


class _Emitter:
    """Emits ops one after the other; each may read the results of earlier ones."""

    def __init__(
        self,
        builder: relax.BlockBuilder,
        inputs: Sequence[relax.Var],
        unknown: Iterator[relax.Var],
    ) -> None:
        self._builder = builder
        self._inputs = inputs
        self._unknown = unknown
        self._outputs: list[list[relax.Expr]] = []

    def add(self, op: Op) -> None:
        if not op.whole:
            raise RebuildError(f"it is a part of {op.name} only")
        if op.name == "call_tir":
            raise RebuildError("it is TIR that came with the model")
        registered = tvm.ir.Op.get(f"relax.{op.name}")
        args = [self.value(argument) for argument in op.arguments]
        call = self._emit(relax.Call(registered, args, _attributes(registered, op)))
        if list_tensors(call.ty) != op.outputs:
            raise RebuildError(f"{op.name} computes {call.ty}")
        fields = range(len(op.outputs))
        many = isinstance(call.ty, relax.TupleType)
        self._outputs.append([relax.TupleGetItem(call, i) for i in fields] if many else [call])

    def _emit(self, call: relax.Call) -> relax.Var:
        try:
            return self._builder.emit(call)
        except ValueError as error:
            raise RebuildError(str(error).splitlines()[0]) from error

    def value(self, argument: Argument) -> relax.Expr:
        if isinstance(argument, Parameter):
            return self._inputs[argument.parameter]
        if isinstance(argument, Fields):
            return relax.Tuple([self.value(field) for field in argument.fields])
        if not isinstance(argument, Literal):
            return self._outputs[argument.op][argument.output]
        return next(self._unknown) if _is_unknown(argument) else _literal(argument)


def _as_one(module: tvm.IRModule, inputs: int) -> tvm.IRModule:
    """Return the module with all ops of `main` in one function, ready to be fused."""
    main = module["main"]
    whole = relax.Function(main.params[:inputs], main.body, main.ret_ty).with_attr("Primitive", 1)
    functions = {v: f for v, f in module.functions_items() if v.name_hint != "main"}
    builder = relax.BlockBuilder(tvm.IRModule(functions))
    fused = builder.add_func(whole, _FUSED)
    params = [relax.Var(param.name, param.ty) for param in whole.params]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(relax.Call(fused, params))
        builder.emit_func_output(out)
    return builder.get()


def _unknown(info: OpInfo) -> list[Literal]:
    """Return the tensors of which only the shape and the element type are known."""
    arguments = [argument for op in info.ops for argument in op.arguments]
    flat = [f for a in arguments for f in (a.fields if isinstance(a, Fields) else (a,))]
    return [
        argument for argument in flat if isinstance(argument, Literal) and _is_unknown(argument)
    ]


def _is_unknown(literal: Literal) -> bool:
    return literal.shape is not None and literal.value is None


def _literal(literal: Literal) -> relax.Expr:
    value = literal.value
    if literal.shape is not None:
        return relax.const(np.array(value, literal.dtype).reshape(literal.shape), literal.dtype)
    if isinstance(value, list):
        return relax.ShapeExpr([_number(size, None) for size in value])
    return _number(value, literal.dtype)


def _number(value: Any, dtype: str | None) -> tvm.ir.Expr:
    value = _finite(value)
    if not isinstance(value, int | float):
        raise RebuildError(f"it has a symbolic shape: {value}")
    return tvm.tirx.const(value, dtype or ("float64" if isinstance(value, float) else "int64"))


def _attributes(registered: tvm.ir.Op, op: Op) -> Any:
    key = _ATTRS.get(op.name) or str(registered.attrs_type_key)
    values = {
        name: _boxed(v) if name in _BOXED else _finite(v) for name, v in op.attributes.items()
    }
    if not values:
        return None
    if not key:  # TVM crashes on an op without the attributes that it has
        raise RebuildError(f"the class of the attributes of {op.name} is not known")
    try:
        return tvm.ir.make_node(key, **values)
    except TypeError as error:
        raise RebuildError(f"attributes of {op.name}: {error}") from error


def _boxed(value: Any) -> Any:
    return [_boxed(item) for item in value] if isinstance(value, list) else _number(value, None)


def _finite(value: Any) -> Any:
    return _NO_JSON.get(value, value) if isinstance(value, str) else value


def _type(tensor: Tensor) -> relax.TensorType:
    if -1 in tensor.shape:
        raise RebuildError("it has a symbolic shape")
    return relax.TensorType(tensor.shape, tensor.dtype)
