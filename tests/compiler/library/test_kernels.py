import pytest
import tvm
from tvm import te, topi
from tvm.s_tir import Schedule

from autopipe.compiler.library.kernels import find_kernel_refusal, is_threaded
from autopipe.schedules.engines import dlight
from tests.compiler.cuda_graphs import CONDITIONS, TARGET


@pytest.fixture
def module():
    x = te.placeholder((4, 64), "float32")
    return tvm.IRModule({"main": te.create_prim_func([x, topi.nn.softmax(x)])})


def test_loops_outside_of_threads_are_no_kernel(module):
    assert not is_threaded(module, TARGET)
    assert find_kernel_refusal(module, TARGET) == "some of its loops are outside of threads"


def test_one_loop_nest_outside_of_threads_is_enough(module):
    sch = Schedule(module)
    for block in sch.get_child_blocks(sch.get_sblock("root"))[1:]:
        sch.bind(sch.get_loops(block)[0], "blockIdx.x")
    assert not is_threaded(sch.mod, TARGET)
    sch.bind(sch.get_loops(sch.get_sblock("T_softmax_maxelem"))[0], "blockIdx.x")
    assert is_threaded(sch.mod, TARGET)
    assert find_kernel_refusal(sch.mod, TARGET) is None


def test_what_tvm_can_not_lower_is_refused(module):
    """A cross-thread reduction whose loop is not innermost."""
    sch = Schedule(module)
    for name in ("T_softmax_maxelem", "T_softmax_exp", "T_softmax_norm"):
        sch.bind(sch.get_loops(sch.get_sblock(name))[0], "blockIdx.x")
    rows, terms = sch.get_loops(sch.get_sblock("T_softmax_expsum"))
    sch.reorder(terms, rows)
    sch.bind(terms, "threadIdx.x")
    assert is_threaded(sch.mod, TARGET)
    assert "ross-thread reduction" in str(find_kernel_refusal(sch.mod, TARGET))


def test_what_the_rules_make_is_a_kernel(module):
    planned = dlight.plan(module, CONDITIONS)
    assert planned is not None
    assert find_kernel_refusal(planned.module, TARGET) is None
