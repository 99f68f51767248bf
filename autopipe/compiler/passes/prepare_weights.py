"""Add a function to a library that converts stored weights when the library is loaded.

It returns the weights as `main` takes them. The virtual machine checks the arguments of a function
against its signature, so that kernels need not check their weights. Transformed Winograd kernels
take more bytes than the weights that they are computed from; these are stored, and transformed
here:

    prepare_weights(w: Tensor((3, 3, 64, 64)), b: Tensor((64,))) -> Tuple:
      u = call_tir(fused_conv2d_weight_prepack, (w,))    # (2, 6, 6, 1, 64, 32)
      return (u, b)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.transform import DeadCodeElimination
from tvm.tirx import For, ForKind, IntImm, PrimFunc

from autopipe.artifacts.signature import PREPARE
from autopipe.compiler.graph.calls import find_callee, list_bindings
from autopipe.compiler.graph.hoist import COUNT
from autopipe.compiler.graph.literals import count_bytes
from autopipe.compiler.graph.weights import TRANSFORM
from autopipe.compiler.pass_state import LinkState

_GROWTH: Final = 1.5
"""Smallest ratio of bytes for which a weight is transformed when it is loaded: that of F(2x2, 3x3)
is 16 / 9, and padding to whole vectors stays below."""

_LEAST: Final = 32 << 10
"""Fewest bytes saved in a package: a kernel takes some kilobytes of code."""

_SHORT: Final = 8
"""Most iterations of an unrolled loop: rows of the largest tile."""


@dataclass(frozen=True, slots=True)
class _LateWeight:
    """A weight that is transformed when it is loaded."""

    stored: relax.Var
    """The variable that it is computed from, in the work on weights."""
    kernel: tvm.ir.GlobalVar


def prepare_weights(module: tvm.IRModule, state: LinkState) -> tvm.IRModule:
    """Add the function `prepare_weights` to a module, and move work from `state.packing` to it.

    Without `state.packs_at_load` the function returns its arguments.
    """
    main = module["main"]
    weights = main.params[int(main.attrs[COUNT]) :]
    late = _find_late_weights(state.packing) if state.packs_at_load else {}
    stored_types = [late[at].stored.ty if at in late else var.ty for at, var in enumerate(weights)]
    params = [relax.Var(var.name, kind) for var, kind in zip(weights, stored_types, strict=True)]
    builder = relax.BlockBuilder(module)
    kernels = {
        kernel: builder.add_func(_serialize_kernel(state.packing[kernel]), str(kernel.name_hint))
        for kernel in dict.fromkeys(weight.kernel for weight in late.values())
    }
    with builder.function(PREPARE, params):
        results = [
            builder.emit(relax.call_tir(kernels[late[at].kernel], (param,), weights[at].ty))
            if at in late
            else param
            for at, param in enumerate(params)
        ]
        builder.emit_func_output(relax.Tuple(results))
    extended_module = builder.get()
    extended_module[PREPARE] = extended_module[PREPARE].with_attr(
        COUNT, len(params)
    )  # only inputs are checked
    state.packing = _drop_late_weights(state.packing, late)
    return extended_module


def _find_late_weights(packing: tvm.IRModule) -> dict[int, _LateWeight]:
    """Find the weights that are transformed when they are loaded, by position."""
    function = packing[TRANSFORM]
    values: dict[relax.Expr, relax.Expr] = {b.var: b.value for b in list_bindings(function)}
    late = {}
    for at, result in enumerate(_read_result_tuple(function).fields):
        value = values.get(result)
        if value is None or find_callee(value) is None or len(value.args[1].fields) != 1:
            continue
        (source,) = value.args[1].fields
        before, after = count_bytes(source.ty), count_bytes(result.ty)
        if after >= _GROWTH * before and after - before >= _LEAST:
            late[at] = _LateWeight(source, value.args[0])
    return late


def _drop_late_weights(packing: tvm.IRModule, late: Mapping[int, _LateWeight]) -> tvm.IRModule:
    """Remove the work on some weights, which are stored untransformed."""
    if not late:
        return packing
    function = packing[TRANSFORM]
    (block,) = function.body.blocks
    fields = [
        late[at].stored if at in late else field
        for at, field in enumerate(_read_result_tuple(function).fields)
    ]
    result = relax.Var("stored", tvm.ir.TupleType([field.ty for field in fields]))
    block = relax.DataflowBlock([*block.bindings, relax.VarBinding(result, relax.Tuple(fields))])
    body = relax.SeqExpr([block], result)
    new_packing = tvm.IRModule(dict(packing.functions_items()))
    new_packing[TRANSFORM] = relax.Function(
        function.params, body, result.ty, function.is_pure, function.attrs
    )
    return DeadCodeElimination([TRANSFORM])(new_packing)


def _read_result_tuple(function: relax.Function) -> relax.Tuple:
    """Return the tuple of a function's results; empty if it returns its parameter."""
    values = {binding.var: binding.value for binding in list_bindings(function)}
    value = function.body.body
    while value in values:
        value = values[value]
    return value if isinstance(value, relax.Tuple) else relax.Tuple([])


def _serialize_kernel(function: PrimFunc) -> PrimFunc:
    """Make the loops of a kernel serial, and unroll short loops.

    Unrolled, the transform matrices become constants, of which many are zero.
    """

    def alone(loop: For) -> For:
        kind = loop.kind
        if kind == ForKind.PARALLEL:
            kind = ForKind.SERIAL
        elif kind == ForKind.SERIAL and isinstance(loop.extent, IntImm) and loop.extent <= _SHORT:
            kind = ForKind.UNROLLED
        return For(loop.loop_var, loop.min, loop.extent, kind, loop.body, None, loop.annotations)

    return tvm_ffi.structural_map(function, (For, alone))
