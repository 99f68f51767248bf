"""Bound dynamic sizes by 0, so that TVM's code generation knows that none is negative.

A division that rounds down is one instruction where the divisor is not negative. Of a size that a
kernel reads from the shape of its argument TVM knows no bound. So it writes each division with all
combinations of signs, one division inside the other, and simplifies them again for each variable
that they are bound to: a tile of a convolution of dynamic height and width took half a minute, of
which LLVM took a tenth of a second.

    width = shape[2]                       width_read = shape[2]
    ... row // width ...        becomes    width = max(width_read, 0)
                                           ... row // width ...

It is done as late as can be. Before, TVM simplifies indices, and would see less of them.
"""

from typing import Final

import tvm
import tvm_ffi
from tvm import tirx

_GETS: Final = "tirx.tvm_struct_get"
_SHAPE, _ELEMENT, _ARGUMENT = 2, 17, 15
"""Field numbers of TVM: a tensor's shape, an element of an array, and an argument."""

_SIZE: Final = "int64"


def assume_nonnegative_sizes(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Bound the sizes that a kernel reads from its arguments by 0.

    The body that loops of a kernel share takes sizes and its position by value.
    """
    if "global_symbol" not in function.attrs:
        return _bound_parameters(function)
    shapes: list[tvm.ir.Var] = []

    def collect_shape(bind: tirx.Bind) -> None:
        if _read_struct_field(bind.value) == _SHAPE:
            shapes.append(bind.var)

    def bound_size(bind: tirx.Bind) -> tirx.Stmt:
        kind, value = _read_struct_field(bind.value), bind.value
        if kind not in {_ELEMENT, _ARGUMENT} or str(value.ty) != _SIZE:
            return bind
        if kind == _ELEMENT and not any(map(value.args[0].same_as, shapes)):
            return bind
        read = tirx.Var(f"{bind.var.name}_read", bind.var.ty)
        size = tirx.max(read, tirx.const(0, _SIZE))
        return tirx.SeqStmt([tirx.Bind(read, value), tirx.Bind(bind.var, size)])

    tvm_ffi.structural_walk(function, (tirx.Bind, collect_shape))
    return tvm_ffi.structural_map(function, (tirx.Bind, bound_size))


def _bound_parameters(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Bound the integer parameters of a function without the packed interface by 0."""
    reads = {
        at: tirx.Var(f"{param.name}_read", param.ty)
        for at, param in enumerate(function.params)
        if str(param.ty) == _SIZE
    }
    bounds = [
        tirx.Bind(function.params[at], tirx.max(read, tirx.const(0, _SIZE)))
        for at, read in reads.items()
    ]
    params = [reads.get(at, param) for at, param in enumerate(function.params)]
    body = tirx.stmt_seq(*bounds, function.body)
    return tirx.PrimFunc(params, body, function.ret_type, function.attrs)


def _read_struct_field(value: tvm.ir.Expr) -> int | None:
    """Return the number of the struct field that an expression reads, or None."""
    is_field_read = isinstance(value, tvm.ir.Call) and getattr(value.op, "name", "") == _GETS
    return int(value.args[2]) if is_field_read else None
