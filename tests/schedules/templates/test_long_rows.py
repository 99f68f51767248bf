import pytest
import tvm
from tvm import te, topi

from autopipe.schedules.engines.fallback import choose_fallback
from autopipe.schedules.primitives import make_schedule
from autopipe.schedules.replay import replay_schedule
from autopipe.schedules.templates.long_rows import LONG_ROWS
from tests.schedules.computed import assert_same, positive
from tests.schedules.tasks import CONDITIONS
from tests.schedules.tensors import module_of

LONG = 1 << 17


def squares(length):
    x, k = te.placeholder((length,), "float32"), te.reduce_axis((0, length))
    return [x, te.compute((), lambda: te.sum(x[k] * x[k], axis=k))]


def normalized():
    x = te.placeholder((16, 1 << 13), "float32")
    total = topi.sum(x * x, axis=[0, 1])
    return [x, te.compute((16, 1 << 13), lambda i, j: x[i, j] * tvm.tirx.rsqrt(total[()]))]


def largest():
    x = te.placeholder((27, 1 << 13), "float32")
    return [x, topi.max(x)]


@pytest.mark.parametrize("tensors", [squares(LONG), normalized(), largest()])
def test_pieces_of_a_row_are_divided_among_threads(tensors):
    module = module_of(tensors)
    found = choose_fallback(["static"], module, CONDITIONS).planned
    assert found is not None
    assert '"long_rows"' in found.schedule
    assert "T.parallel" in found.module.script()
    again = replay_schedule(module, found.implementation, found.schedule, CONDITIONS)
    assert_same(module, again, inputs=[positive])


@pytest.mark.parametrize("length", [LONG // 2, 131071])  # too short; a prime
def test_other_rows_are_for_other_templates(length):
    assert LONG_ROWS.match(make_schedule(module_of(squares(length)))) is None


@pytest.mark.parametrize(("length", "pieces"), [(255744, 12), (LONG, 16)])
def test_pieces_are_of_whole_vectors(length, pieces):
    """LLVM makes no vectors of what is left of a piece, where indices have 64 bits."""
    found = choose_fallback(["static"], module_of(squares(length)), CONDITIONS).planned
    assert found is not None
    assert f"T.parallel({pieces})" in found.module.script()
