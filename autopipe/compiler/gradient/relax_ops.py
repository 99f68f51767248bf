"""Gradients of Relax functions: TVM's own pass, and adjoints of operators that it lacks.

`relax.transform.Gradient` of TVM 0.27 knows 52 operators, layer norm and GELU not among them.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Final

import tvm
from tvm import relax
from tvm.error import InternalError
from tvm.ir import Call, Expr

from autopipe.errors import ModelError

_TVM: Final = (InternalError, RuntimeError, TypeError, ValueError)


def relax_gradient(
    module: tvm.IRModule, function: str = "main", by: list[str] | None = None
) -> tvm.IRModule:
    """Add the function `{function}_adjoint` to a module.

    The function returns a scalar, or a tuple with one first. Its adjoint returns the same and the
    gradients by the parameters that `by` names, in order; None is all float parameters. It is built
    by `relax.transform.Gradient`. Raises ModelError for functions that TVM refuses.
    """
    if function not in {var.name_hint for var in module.get_global_vars()}:
        raise ModelError(f"the module has no function {function!r}")
    params = {param.name: param for param in module[function].params}
    unknown_names = [name for name in by or () if name not in params]
    if unknown_names:
        raise ModelError(f"{function} has no parameter {', '.join(unknown_names)}")
    _register_adjoints()
    parameters = None if by is None else [params[name] for name in by]
    try:
        return relax.transform.Gradient(function, parameters)(module)
    except _TVM as error:
        reason = str(error).strip().splitlines()[-1]
        raise ModelError(f"TVM makes no gradient of {function}: {reason}") from None


@cache
def _register_adjoints() -> None:
    """Register the adjoints that TVM lacks, once per process."""
    for name, adjoint in _ADJOINTS.items():
        if tvm.ir.Op.get(name).get_attr("FPrimalGradient") is None:
            tvm.ir.register_op_attr(name, "FPrimalGradient", adjoint)


def _differentiate_layer_norm(
    _var: Expr, call: Call, grad: Expr, _ctx: relax.BlockBuilder
) -> list[Expr]:
    """Return the adjoints of x, gamma and beta of a layer norm over the last axes.

    With h = (x - mean) / deviation and g = grad * gamma: dx = (g - mean(g) - h * mean(g * h)) /
    deviation, dgamma and dbeta are sums over all rows of grad * h and of grad.
    """
    data, gamma, _ = call.args
    rank = data.ty.ndim
    axes = [int(axis) % rank for axis in call.attrs.axes]
    rows = [axis for axis in range(rank) if axis not in axes]
    if axes != list(range(rank - len(axes), rank)):
        raise ModelError("the gradient of a layer norm is known over its last axes only")
    op = relax.op
    mean = op.mean(data, axes, keepdims=True)
    epsilon = relax.const(float(call.attrs.epsilon), str(data.ty.dtype))
    scale = op.rsqrt(op.add(op.variance(data, axes, keepdims=True), epsilon))
    normal = op.multiply(op.subtract(data, mean), scale)
    scaled_grad = op.multiply(grad, gamma) if call.attrs.scale else grad
    along = op.multiply(normal, op.mean(op.multiply(scaled_grad, normal), axes, keepdims=True))
    inner = op.subtract(op.subtract(scaled_grad, op.mean(scaled_grad, axes, keepdims=True)), along)
    by_gamma = op.sum(op.multiply(grad, normal), rows) if call.attrs.scale else _make_zeros(gamma)
    by_beta = op.sum(grad, rows) if call.attrs.center else _make_zeros(call.args[2])
    return [op.multiply(inner, scale), by_gamma, by_beta]


def _make_zeros(like: Expr) -> Expr:
    return relax.op.zeros_like(like)


def _differentiate_gelu(_var: Expr, call: Call, grad: Expr, _ctx: relax.BlockBuilder) -> list[Expr]:
    """Return the adjoint of x / 2 * (1 + erf(x / sqrt 2))."""
    op, (data,) = relax.op, call.args
    half, root, peak = (
        relax.const(value, str(data.ty.dtype))
        for value in (0.5, math.sqrt(0.5), 1 / math.sqrt(2 * math.pi))
    )
    below = op.add(half, op.multiply(half, op.erf(op.multiply(data, root))))
    bell = op.multiply(peak, op.exp(op.negative(op.multiply(half, op.multiply(data, data)))))
    return [op.multiply(grad, op.add(below, op.multiply(data, bell)))]


def _differentiate_gelu_tanh(
    _var: Expr, call: Call, grad: Expr, _ctx: relax.BlockBuilder
) -> list[Expr]:
    """Return the adjoint of x / 2 * (1 + t) with t = tanh(s * (x + c * x^3)).

    It is (1 + t) / 2 + x / 2 * (1 - t^2) * s * (1 + 3 * c * x^2).
    """
    op, (data,) = relax.op, call.args
    half, unit, scale, cubic = (
        relax.const(value, str(data.ty.dtype))
        for value in (0.5, 1.0, math.sqrt(2 / math.pi), 0.044715)
    )
    square = op.multiply(cubic, op.multiply(data, data))
    bent = op.tanh(op.multiply(op.multiply(scale, data), op.add(unit, square)))
    three = relax.const(3.0, str(data.ty.dtype))
    slope = op.multiply(scale, op.add(unit, op.multiply(three, square)))
    product = op.multiply(op.subtract(unit, op.multiply(bent, bent)), op.multiply(data, slope))
    return [op.multiply(grad, op.multiply(half, op.add(op.add(unit, bent), product)))]


_ADJOINTS: Final[dict[str, Callable[..., list[Expr]]]] = {
    "relax.nn.layer_norm": _differentiate_layer_norm,
    "relax.nn.gelu": _differentiate_gelu,
    "relax.nn.gelu_tanh": _differentiate_gelu_tanh,
}
