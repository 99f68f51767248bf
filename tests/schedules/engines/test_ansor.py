import math

import pytest
import tvm
import tvm_ffi
from tvm import te

from autopipe.compiler.library.kernels import find_kernel_refusal
from autopipe.errors import StageError
from autopipe.schedules.engines.ansor import Ansor
from autopipe.schedules.engines.engine import MeasuredSchedule, Problem
from autopipe.schedules.replay import apply_trace, dump_trace
from tests.compiler.cuda_graphs import CONDITIONS as GPU
from tests.schedules.engines.test_dlight import conv, softmax
from tests.schedules.tasks import CONDITIONS, task
from tests.schedules.tensors import matmul

TARGET = tvm.target.Target({"kind": "llvm", "mcpu": "znver4", "num-cores": 2})


def search(module, known=(), engine=None):
    return (engine or Ansor(CONDITIONS)).search(Problem(task(), module, CONDITIONS, known, 8, 0))


@pytest.fixture(scope="module")
def proposed():
    module = matmul(32)
    found = search(module)
    batches = []
    for _ in range(3):
        traces = found.propose(8)
        found.learn(
            [
                MeasuredSchedule(t, 1e-3 * (i + 1)) if i else MeasuredSchedule(t)
                for i, t in enumerate(traces)
            ]
        )
        batches.append(traces)
    return module, batches


def test_every_proposal_is_a_new_schedule_that_replays(proposed):
    module, batches = proposed
    traces = [trace for batch in batches for trace in batch]
    assert len(traces) == len(set(traces)) == 24
    for trace in traces[::6]:
        scheduled = apply_trace(module, trace).mod
        assert not tvm_ffi.structural_equal(scheduled, module)


def test_a_trace_survives_being_written_down(proposed):
    module, batches = proposed
    trace = batches[0][0]
    assert dump_trace(apply_trace(module, trace).trace) == trace


def test_a_search_does_not_propose_what_is_known(proposed):
    module, batches = proposed
    known = [MeasuredSchedule(t, 1e-3) for batch in batches for t in batch] + [
        MeasuredSchedule("[[],[]]", math.inf)
    ]
    assert not set(search(module, known).propose(8)) & {k.schedule for k in known}
    late = search(module)
    own = late.propose(8)
    late.observe(known)
    late.learn([MeasuredSchedule(trace, 1e-3) for trace in own])
    assert not set(late.propose(8)) & {*own, *(k.schedule for k in known)}


def test_no_more_is_proposed_than_asked_for():
    assert len(search(matmul(32)).propose(3)) == 3


def test_a_small_design_space_runs_out():
    data = te.placeholder((2,), "float32", name="data")
    module = tvm.IRModule(
        {"main": te.create_prim_func([data, te.compute((2,), lambda i: data[i])])}
    )
    found = search(module)
    for _ in range(20):
        traces = found.propose(8)
        if not traces:
            return
        found.learn([MeasuredSchedule(t, 1.0) for t in traces])
    pytest.fail("never ran out")


@pytest.mark.parametrize(
    ("trace", "why"),
    [
        ("", "no JSON"), ("[]", "no trace"), ("[[]]", "no trace"), ("{}", "no trace"),
        ('[[["NoSuchThing", [], [], []]], []]', "instruction 1, NoSuchThing: none of the kinds"),
    ],
)  # fmt: skip
def test_a_trace_that_does_not_apply_is_an_error_in_words(trace, why):
    with pytest.raises(StageError, match=why):
        apply_trace(matmul(32), trace)


def test_a_trace_of_another_workload_does_not_apply():
    data = te.placeholder((8,), "float32", name="data")
    other = tvm.IRModule({"main": te.create_prim_func([data, te.compute((8,), lambda i: data[i])])})
    with pytest.raises(StageError, match="the trace does not fit"):
        apply_trace(other, search(matmul(32)).propose(1)[0])


@pytest.mark.parametrize("workload", [conv, softmax], ids=["conv", "softmax"])
def test_schedules_of_a_gpu_are_all_threads_without_tensor_cores(workload):
    module = workload()
    engine = Ansor(GPU)
    search = engine.search(Problem(task(), module, GPU, (), 8, 0))
    assert search is not None
    traces = search.propose(8)  # a later batch may be empty: many samples do not fit a GPU
    assert len(set(traces)) == len(traces) > 0
    # TVM's own sampling makes some that its code generation then refuses: they cost a trial
    refused = [
        find_kernel_refusal(apply_trace(module, trace).mod, GPU.target) for trace in traces[::2]
    ]
    assert refused.count(None) > len(refused) / 2
    assert not any("wmma" in trace for trace in traces)
