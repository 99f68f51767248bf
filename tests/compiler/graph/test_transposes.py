"""Transposes that undo each other are taken out, and ops between them move; numbers stay."""

import numpy as np
import tvm
from tvm import relax

from autopipe.compiler.graph.calls import bindings
from autopipe.compiler.graph.transposes import fewer_transposes

LAST, FIRST = [0, 2, 3, 1], [0, 3, 1, 2]


def _module(shape, body):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(body(builder, x))
        builder.emit_func_output(out)
    return builder.get()


def _clean(module):
    passes = [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination()]
    return tvm.transform.Sequential(passes)(fewer_transposes(module))


def _transposes(module):
    found = [binding.value for binding in bindings(module["main"])]
    calls = [value for value in found if isinstance(value, relax.Call)]
    return sum(call.op.name == "relax.permute_dims" for call in calls)


def _run(module, given):
    machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
    return machine["main"](tvm.runtime.tensor(given)).numpy()


def _same(module, given, left):
    clean = _clean(module)
    assert _transposes(clean) == left
    np.testing.assert_array_equal(_run(clean, given), _run(module, given))


def test_ops_of_every_kind_move_behind_none():
    rng = np.random.default_rng(0)
    scale = relax.const(rng.standard_normal((1, 5, 1, 1)).astype("float32"))

    def body(builder, x):
        a = builder.emit(relax.op.permute_dims(x, FIRST))
        b = builder.emit(relax.op.nn.pad(a, [0, 0, 0, 0, 1, 2, 2, 0], "reflect"))
        c = builder.emit(relax.op.multiply(b, scale))
        d = builder.emit(relax.op.image.resize2d(c, (18, 20), layout="NCHW"))
        return relax.op.permute_dims(builder.emit(relax.op.nn.relu(d)), LAST)

    module = _module((1, 6, 8, 5), body)
    clean = _clean(module)
    # what is left turns the five numbers of the scale
    assert _transposes(clean) == 1
    given = rng.standard_normal((1, 6, 8, 5)).astype("float32")
    np.testing.assert_allclose(_run(clean, given), _run(module, given), rtol=1e-6)


def test_transposes_are_composed_and_those_that_do_nothing_go():
    def body(builder, x):
        a = builder.emit(relax.op.permute_dims(x, [0, 1, 2, 3]))
        b = builder.emit(relax.op.permute_dims(a, [1, 2, 3, 0]))
        return relax.op.permute_dims(b, [1, 2, 3, 0])

    given = np.arange(120, dtype="float32").reshape(2, 3, 4, 5)
    _same(_module((2, 3, 4, 5), body), given, 1)


def test_an_op_whose_result_is_read_in_its_own_order_stays():
    def body(builder, x):
        a = builder.emit(relax.op.permute_dims(x, FIRST))
        return relax.op.nn.pad(a, [0, 0, 0, 0, 1, 1, 1, 1], "reflect")

    given = np.arange(96, dtype="float32").reshape(1, 4, 6, 4)
    _same(_module((1, 4, 6, 4), body), given, 1)


def test_another_large_operand_keeps_its_transpose():
    def body(builder, x):
        a = builder.emit(relax.op.permute_dims(x, FIRST))
        b = builder.emit(relax.op.permute_dims(x, [0, 3, 2, 1]))
        return relax.op.permute_dims(builder.emit(relax.op.add(a, b)), LAST)

    given = np.arange(64, dtype="float32").reshape(1, 4, 4, 4)
    module = _module((1, 4, 4, 4), body)
    np.testing.assert_array_equal(_run(_clean(module), given), _run(module, given))
