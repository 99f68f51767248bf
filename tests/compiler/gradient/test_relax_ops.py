"""Adjoints of Relax operators that TVM lacks."""

import math

import numpy as np
import pytest
import tvm
from tvm import relax

import autopipe
from autopipe.errors import ModelError

HOST = tvm.target.Target({"kind": "llvm"})
op = relax.op


def module(call, shapes, dtype="float64"):
    """Return a function that sums what an operator returns, times the last parameter."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"p{n}", relax.TensorType(shape, dtype)) for n, shape in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            found = builder.emit(op.multiply(builder.emit(call(*params[:-1])), params[-1]))
            out = builder.emit_output(op.sum(found))
        builder.emit_func_output(out)
    return builder.get()


def gradients(given, arrays, by):
    built = autopipe.relax_gradient(given, by=by)
    machine = relax.VirtualMachine(tvm.compile(op_legal(built), HOST), tvm.cpu())
    _, found = machine["main_adjoint"](*map(tvm.runtime.tensor, arrays))
    return [tensor.numpy() for tensor in found]


def op_legal(given):
    return relax.transform.LegalizeOps()(given)


def draw(*shapes, dtype="float64"):
    generator = np.random.default_rng(0)
    return [generator.uniform(-2, 2, shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("tanh", [False, True])
def test_gelu(tanh):
    x, g = arrays = draw((4, 6), (4, 6))
    call = op.nn.gelu_tanh if tanh else op.nn.gelu
    (found,) = gradients(module(call, [(4, 6)] * 2), arrays, ["p0"])

    def value(at):
        if tanh:
            return at / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (at + 0.044715 * at**3)))
        return at / 2 * (1 + np.vectorize(math.erf)(at / math.sqrt(2)))

    np.testing.assert_allclose(found, g * (value(x + 1e-6) - value(x - 1e-6)) / 2e-6, rtol=1e-6)


@pytest.mark.parametrize("axes", [[-1], [1, 2]])
def test_layer_norm(axes):
    inner = (3, 6)[-len(axes) :]
    shapes = [(4, 3, 6), inner, inner, (4, 3, 6)]
    arrays = draw(*shapes, dtype="float32")
    given = module(lambda x, g, b: op.nn.layer_norm(x, g, b, axes=axes), shapes, "float32")
    found = gradients(given, arrays, ["p0", "p1", "p2"])
    x, gamma, beta, head = (array.astype("float64") for array in arrays)
    over = tuple(axes)

    def loss(x, gamma, beta):
        mean = x.mean(over, keepdims=True)
        spread = ((x - mean) ** 2).mean(over, keepdims=True)
        return (((x - mean) / np.sqrt(spread + 1e-5) * gamma + beta) * head).sum()

    for at, gradient in enumerate(found):
        right = np.zeros(shapes[at])
        for place in np.ndindex(*shapes[at]):
            up, down = ([each.copy() for each in (x, gamma, beta)] for _ in range(2))
            up[at][place] += 1e-6
            down[at][place] -= 1e-6
            right[place] = (loss(*up) - loss(*down)) / 2e-6
        np.testing.assert_allclose(gradient, right, rtol=1e-3, atol=1e-4)


def test_what_tvm_refuses_is_said():
    given = module(op.nn.gelu, [(4, 6)] * 2)
    with pytest.raises(ModelError, match="has no function 'other'"):
        autopipe.relax_gradient(given, "other")
    with pytest.raises(ModelError, match="main has no parameter x"):
        autopipe.relax_gradient(given, by=["x"])
    with pytest.raises(ModelError, match="TVM makes no gradient of main"):
        autopipe.relax_gradient(module(op.erf, [(4, 6)] * 2))
