import numpy as np
import pytest
import tvm
from tvm import relax

from autopipe.compiler.graph.weights import TRANSFORM
from autopipe.compiler.library import evaluate_weights as module
from autopipe.compiler.library.evaluate_weights import evaluate_weights
from tests.compiler import graphs

WEIGHTS = [
    np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")
    for shape in ((4, 3, 2, 2), (5,), ())
]


def transform(*ops):
    """Return work on weights that applies each op to the weight of its place, and returns all."""
    builder = relax.BlockBuilder()
    kinds = [relax.TensorType(array.shape, "float32") for array in WEIGHTS]
    given = relax.Var("given", tvm.ir.TupleType(kinds))
    with builder.function(TRANSFORM, [given]):
        with builder.dataflow():
            parts = [builder.emit(relax.TupleGetItem(given, at)) for at in range(len(ops))]
            made = [
                part if op is None else builder.emit(op(part))
                for op, part in zip(ops, parts, strict=True)
            ]
            result = builder.emit_output(relax.Tuple(made))
        builder.emit_func_output(result)
    return builder.get()


def expand(axis):
    return lambda x: relax.op.expand_dims(x, axis)


MOVES = {
    "layout": (lambda x: relax.op.permute_dims(x, [2, 3, 1, 0]), expand([0, 2]), None),
    "reversed": (relax.op.permute_dims, lambda x: relax.op.flip(x, 0), expand(0)),
    "rows": (lambda x: relax.op.reshape(x, (4, 12)), None, None),
    "inner": (lambda x: relax.op.flip(x, 3), None, None),
}


@pytest.mark.parametrize("case", MOVES)
def test_moves_give_the_bytes_that_compiled_kernels_give(case, monkeypatch):
    work = transform(*MOVES[case])
    with monkeypatch.context() as patch:
        patch.setattr(module, "compile_model", None)
        moved = evaluate_weights(work, WEIGHTS, graphs.TARGET, lambda made: made)
    monkeypatch.setattr(module, "_has_only_moves", lambda _: False)
    compiled = evaluate_weights(work, WEIGHTS, graphs.TARGET, lambda made: made)
    for one, other in zip(moved, compiled, strict=True):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
        assert one.flags.c_contiguous


def test_arithmetic_is_compiled():
    work = transform(lambda x: relax.op.add(x, x), None, None)
    assert not module._has_only_moves(work[TRANSFORM])
    found = evaluate_weights(work, WEIGHTS, graphs.TARGET, lambda made: made)
    assert np.array_equal(found[0], WEIGHTS[0] + WEIGHTS[0])


def test_a_model_may_have_no_weights():
    assert evaluate_weights(transform(), [], graphs.TARGET, lambda made: made) == []


def test_functions_that_compute_are_compiled_beside_copies(monkeypatch):
    """Copies are done by NumPy, and what computes takes their results."""
    monkeypatch.setattr(module, "compile_model", None)
    work = transform(lambda x: relax.op.add(relax.op.permute_dims(x), relax.op.permute_dims(x)))
    work = relax.transform.LegalizeOps()(relax.transform.Normalize()(work))
    found = evaluate_weights(work, WEIGHTS, graphs.TARGET, lambda made: made)
    assert np.array_equal(found[0], WEIGHTS[0].T + WEIGHTS[0].T)
