"""Gradients of TE computes: each case beside central differences, in float64."""

import numpy as np
import pytest
from tvm import te, tirx, topi

import autopipe
from autopipe.errors import ModelError
from tests.compiler.gradient.differences import compiled, placeholder, worst

X = placeholder(2, 3, 9, 9)
W = placeholder(4, 3, 3, 3, name="w")
Q = placeholder(4, 10, name="q")
V = placeholder(10, name="v")
U = placeholder(10, name="u")


def axis(count, name="k"):
    return te.reduce_axis((0, count), name=name)


def conv(stride, padding, dilation=1):
    return topi.nn.conv2d_nchw(X, W, stride, padding, dilation, out_dtype="float64")


def product():
    y, k = placeholder(10, 7, name="y"), axis(10)
    return [Q, y], te.compute((4, 7), lambda i, j: te.sum(Q[i, k] * y[k, j], axis=k))


def layer_norm():
    k, kk = axis(10), axis(10)
    mean = te.compute((4,), lambda i: te.sum(Q[i, k] / 10.0, axis=k))
    spread = te.compute(
        (4,), lambda i: te.sum((Q[i, kk] - mean[i]) * (Q[i, kk] - mean[i]), axis=kk)
    )
    return [Q, V, U], te.compute(
        (4, 10), lambda i, j: (Q[i, j] - mean[i]) * te.rsqrt(spread[i] / 10.0 + 1e-5) * V[j] + U[j]
    )


def prefix_sums():
    k = axis(10)
    guard = lambda i, j: te.if_then_else(k <= j, Q[i, k], tirx.const(0, "float64"))  # noqa: E731
    return [Q], te.compute((4, 10), lambda i, j: te.sum(guard(i, j), axis=k))


def odd_windows():
    k = axis(6)
    return [Q], te.compute((3, 5), lambda i, j: te.sum(Q[i + k // 3, j + k % 3], axis=k))


def periodic_stencil():
    return [X], te.compute(
        (2, 3, 9, 9),
        lambda n, c, h, w: (
            X[n, c, (h + 1) % 9, w] * X[n, (c + 2) % 3, h, w] + X[n, c, h, (w + 8) % 9]
        ),
    )


def functions():
    root = te.compute((4, 10), lambda i, j: te.sqrt(Q[i, j] + 2.0) / te.log(Q[i, j] + 3.0))
    power = te.compute((4, 10), lambda i, j: te.power(Q[i, j] + 2.0, 2.5) * te.sin(Q[i, j]))
    return [Q], topi.tanh(root) + topi.sigmoid(power) + topi.abs(Q) - topi.maximum(Q, power)


def gelu(i, j):
    return Q[i, j] * 0.5 * (1.0 + te.erf(Q[i, j] * 0.7071067811865476))


def pool(kind, size, stride, padding):
    return topi.nn.pool2d(X, [size] * 2, [stride] * 2, [1, 1], [padding] * 4, kind)


CASES = {
    "product": product,
    "layer norm": layer_norm,
    "gelu": lambda: ([Q], te.compute((4, 10), gelu)),
    "convolution": lambda: ([X, W], conv(1, 1)),
    "strided convolution": lambda: ([X, W], conv(3, 2)),
    "dilated convolution": lambda: ([X, W], conv(1, 1, 2)),
    "max pool": lambda: ([X], pool("max", 2, 2, 0)),
    "max pool that overlaps": lambda: ([X], pool("max", 3, 2, 1)),
    "mean pool": lambda: ([X], pool("avg", 3, 2, 1)),
    "softmax": lambda: ([Q], topi.nn.softmax(Q)),
    "log softmax": lambda: ([Q], topi.nn.log_softmax(Q)),
    "reshape": lambda: ([X], topi.reshape(X, (6, 27, 3))),
    "transpose": lambda: ([X], topi.transpose(X, [0, 2, 3, 1])),
    "broadcast": lambda: ([Q, V], topi.add(Q, V) * topi.multiply(Q, V)),
    "sums and maxima": lambda: ([Q], topi.sum(Q * Q, axis=0) + topi.max(Q) * topi.min(Q)),
    "stencil": lambda: ([Q], te.compute((4, 8), lambda i, j: Q[i, j] * Q[i, j + 1] - Q[i, j + 2])),
    "reversed and strided": lambda: ([Q], te.compute((4, 5), lambda i, j: Q[3 - i, j * 2])),
    "diagonal": lambda: ([Q], te.compute((4,), lambda i: Q[i, i])),
    "prefix sums": prefix_sums,
    "circle": lambda: ([V], te.compute((10,), lambda i: V[(i + 1) % 10])),
    "neighbours in a circle": lambda: ([V], te.compute((10,), lambda i: V[i] * V[(i + 1) % 10])),
    "circle, reversed": lambda: ([V], te.compute((10,), lambda i: V[(3 - i) % 10])),
    "circle in steps": lambda: ([V], te.compute((10,), lambda i: V[(4 * i + 3) % 10])),
    "periodic stencil": periodic_stencil,
    "repeated": lambda: (
        [V, Q],
        te.compute((4, 25), lambda i, j: V[(j + i + 3) % 10] * Q[i, j % 7]),
    ),
    "part of a circle": lambda: ([V], te.compute((7,), lambda i: V[(i + 8) % 10])),
    "circle of bits": lambda: ([V], te.compute((8,), lambda i: V[i ^ 3])),
    "windows in one loop": odd_windows,
    "functions": functions,
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_what_central_differences_are(name):
    inputs, output = CASES[name]()
    assert worst(inputs, output) < 1e-5


def test_circles_are_solved_for_and_not_compared():
    """So the gradient of a stencil of n points takes n steps, and not n for each point."""
    for name in ("circle", "circle, reversed", "periodic stencil"):
        inputs, output = CASES[name]()
        (gradient,) = autopipe.gradient(output, inputs)
        assert not any(
            "reduce" in str(one.op.body[0]) for one in (gradient, *gradient.op.input_tensors)
        )


def test_rows_that_are_looked_up_get_what_all_who_read_them_hand_on():
    rows = te.placeholder((6,), "int32", name="rows")
    looked_up = te.compute((6, 10), lambda i, j: Q[rows[i], j] * 2.0)
    (gradient,) = autopipe.gradient(looked_up, [Q])
    chosen = np.array([0, 1, 1, 3, 0, 1], "int32")
    right = np.zeros((4, 10))
    np.add.at(right, chosen, 2.0)
    np.testing.assert_array_equal(compiled([rows], [gradient])({rows.op: chosen})[0], right)


def test_equal_maxima_share_and_a_constant_takes_nothing_from_nobody():
    k = axis(10)
    highest = te.compute((4,), lambda i: te.max(Q[i, k], axis=k))
    (by_max,) = autopipe.gradient(highest, [Q])
    values = np.zeros((4, 10))
    values[1, :4] = 2.0
    (found,) = compiled([Q], [by_max])({Q.op: values})
    np.testing.assert_allclose(found[0], 0.1)
    np.testing.assert_allclose(found[1], [0.25] * 4 + [0] * 6)
    (by_relu,) = autopipe.gradient(topi.nn.relu(Q), [Q])
    (found,) = compiled([Q], [by_relu])({Q.op: np.zeros((4, 10))})
    assert not found.any()


def test_the_gradient_of_a_convolution_by_its_image_is_one_without_guards():
    data = placeholder(2, 3, 11, 11)
    plain = topi.nn.conv2d_nchw(data, W, 1, 0, 1, out_dtype="float64")
    (by_image,) = autopipe.gradient(plain, [plain.op.input_tensors[0]])
    assert isinstance(by_image.op.body[0].source[0], tirx.Mul)
    (block,) = [
        each for each in autopipe.auto_schedule([W, by_image]).blocks
        if each.name == by_image.op.name
    ]  # fmt: skip
    assert str(block) == f"{block.name}: complex reduction, 2x3x11x11 over 4x3x3"


def test_what_does_not_depend_on_an_input_has_a_gradient_of_zeros():
    (by_v,) = autopipe.gradient(topi.exp(Q), [V])
    assert not compiled([], [by_v])({})[0].any()


def test_what_has_no_gradient_is_said():
    k = axis(10)
    whole = te.placeholder((4,), "int32", name="n")
    first = te.comm_reducer(lambda a, b: a * b, lambda dtype: tirx.const(1, dtype), name="prod")
    for output, inputs, error in (
        (te.compute((4,), lambda i: first(Q[i, k], axis=k)), [Q], "the reducer of compute"),
        (te.compute((4,), lambda i: whole[i] + 1), [whole], "of TE tensors of floats"),
        (te.compute((4,), lambda i: te.fmod(Q[i, 0], Q[i, 1])), [Q], "through tirx.fmod"),
        (topi.cumsum(Q, axis=1), [Q], "it is no compute"),
    ):
        with pytest.raises(ModelError, match=error):
            autopipe.gradient(output, inputs)
    with pytest.raises(ModelError, match="has the shape and type of the output"):
        autopipe.gradient(topi.exp(Q), [Q], V)
    with pytest.raises(ModelError, match="`head`"):
        autopipe.gradient(topi.exp(Q), [Q], 1.0)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"pass \[tensor\] for one"):
        autopipe.gradient(topi.exp(Q), Q)  # to iterate over a tensor has no end
