"""Rows, table, trace and comparison of a profile, of calls as a child process tells them."""

import json
from itertools import pairwise

import pytest

from autopipe.artifacts.model_nodes import (
    KernelCall,
    KernelFunction,
    KernelWork,
    LibraryNodes,
    ModelNode,
    NodeMap,
)
from autopipe.profiling.against import compare_profiles, match_node
from autopipe.profiling.profile import Peaks, build_profile
from autopipe.profiling.reference_profile import compute_node_times
from autopipe.profiling.table import list_comparison_lines, list_profile_lines, sort_rows
from autopipe.profiling.trace import list_trace_events

PEAKS = Peaks(gflops=100.0, gbps=20.0)
NODES = tuple(
    ModelNode(name=name, op=op, outputs=(f"{name}:0",))
    for name, op in (("conv1", "Conv"), ("relu1", "Relu"), ("conv2", "Conv"), ("sum\x1b", "Add"))
)


def call(symbol, start, seconds, *, kernel=True, moved=4000):
    return {"symbol": symbol, "kernel": kernel, "start": start, "seconds": seconds,
            "bytes": moved if kernel else 0, "shapes": [[10, 100]] if kernel else []}  # fmt: skip


def site(kernel, *nodes, added=False):
    return KernelCall(kernel=kernel, nodes=nodes, added=added)


MAIN = KernelFunction(
    name="main",
    calls=(site("transpose", 0, added=True), site("conv", 0, 1), site("conv", 2), site("add", 3)),
)
CALLS = [
    call("vm.builtin.alloc_storage", 0.0, 1e-6, kernel=False), call("transpose", 1e-6, 2e-6),
    call("conv", 4e-6, 10e-6), call("conv", 15e-6, 6e-6), call("add", 22e-6, 1e-6),
]  # fmt: skip


def profiled(calls=CALLS, functions=(MAIN,), whole=20.5e-6, others=0.0):
    library = LibraryNodes(
        library="lib.so", functions=functions, work=(KernelWork(kernel="conv", flops=1e6),)
    )
    answer = {"calls": calls, "whole": [whole], "call": 3e-5, "library": "lib.so", "threads": 2,
              "conditions": {"seconds": 1.0, "cpu": 1.9, "others": others, "stolen": 0.0,
                             "cores": 2, "load_before": 0.1, "load_after": 0.1},
              "shapes": {"x": [1, 3]}}  # fmt: skip
    return build_profile(answer, NodeMap(nodes=NODES, libraries=(library,)), 5, PEAKS)


def test_calls_of_one_kernel_are_told_apart_by_their_order():
    rows = profiled().rows
    assert [(row.symbol, row.nodes, row.added) for row in rows] == [
        ("vm.builtin.alloc_storage", (), False), ("transpose", ("conv1",), True),
        ("conv", ("conv1", "relu1"), False), ("conv", ("conv2",), False),
        ("add", ("sum\x1b",), False),
    ]  # fmt: skip
    assert sum(row.share for row in rows) == pytest.approx(1)
    assert rows[2].gflops == pytest.approx(100)
    assert rows[2].gbps == pytest.approx(0.4)
    assert rows[4].gflops is None


def test_what_took_the_processor_meanwhile_is_told():
    assert profiled().disturbed is None
    assert profiled(others=1.0).disturbed == "other programs took 50% of the processor"


def test_a_kernel_that_a_loop_calls_names_all_its_nodes():
    body = KernelFunction(name="body", calls=(site("conv", 2),))
    main = KernelFunction(name="main", calls=(site("conv", 0, 1),))
    (row,) = profiled([call("conv", i * 1e-5, 1e-6) for i in range(4)], (main, body)).rows
    assert (row.nodes, row.calls) == (("conv1", "relu1", "conv2"), 4)


def test_a_kernel_without_a_map_is_there_without_nodes():
    (row,) = profiled([call("conv", 0.0, 1e-6)], ()).rows
    assert row.nodes == ()


def test_the_sum_is_compared_with_the_whole():
    near, far = profiled(), profiled(whole=40e-6)
    assert abs(near.difference - 0.5 / 20.5) < 1e-9
    assert "+2.4% are not in a row" in "\n".join(list_profile_lines(near, "time", 10_000))
    text = "\n".join(list_profile_lines(far, "time", 10_000))
    assert "sum 20.0 us of 40.0 us unwatched: +50.0% is spent between 5 calls, 4.00 us each" in text
    slow = "\n".join(list_profile_lines(profiled(whole=10e-6), "time", 10_000))
    assert "-100.0%: watching slows 5 calls by 2.00 us each" in slow


def test_a_table_fits_a_terminal_and_is_whole_in_a_pipe():
    made = profiled()
    folded, whole = (list(list_profile_lines(made, "time", width)) for width in (80, 10_000))
    assert max(map(len, folded)) <= 80
    words = [" ".join(lines).split() for lines in (folded, whole)]
    assert words[0] == words[1], "nothing is cut"
    assert len(folded) > len(whole)
    assert any("transpose: added for conv1" in line for line in whole)
    assert not any("\x1b" in line for line in whole)
    assert sort_rows(made.rows, "name")[0].symbol == "add"
    assert sort_rows(made.rows, "order") == list(made.rows)
    assert sort_rows(made.rows, "time")[0].nodes == ("conv1", "relu1")


def test_a_trace_has_the_calls_of_a_run_in_their_order():
    trace = json.loads(json.dumps(list_trace_events(profiled())))
    meta = [event for event in trace["traceEvents"] if event["ph"] == "M"]
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert {event["name"] for event in meta} == {"process_name", "thread_name"}
    assert [event["name"] for event in events] == [one["symbol"] for one in CALLS]
    assert events[2]["args"]["nodes"] == ["conv1", "relu1"]
    for one, following in pairwise(events):
        assert one["ts"] + one["dur"] <= following["ts"] + 1e-9


def test_a_reference_is_compared_by_nodes_and_first_where_it_is_ahead():
    times = {"": 1e-5, "conv1_nchwc": 2e-6, "conv2": 9e-6, "ReorderOutput": 1e-6}
    compared = compare_profiles(profiled(), NODES, "onnxruntime", times)
    assert [(group.nodes, group.theirs_nodes) for group in compared.groups] == [
        (("conv1", "relu1"), ("conv1_nchwc",)), (("sum\x1b",), ()), ((), ("ReorderOutput",)),
        (("conv2",), ("conv2",)),
    ]  # fmt: skip
    assert abs((compared.groups[0].ratio or 0) - 6) < 1e-9
    lines = list(list_comparison_lines(compared, 10_000))
    assert lines[1].split() == ["12.0", "2.0", "6.00", "conv1,", "relu1"]
    assert "only onnxruntime: ReorderOutput" in lines[3]


def test_names_of_another_runtime_are_matched_whole():
    known = {"conv1": "conv1", "conv10": "conv10", "r7": "conv9"}
    names = ("conv1", "conv1_nchwc", "fused conv10", "r7_nchwc", "conv11", "x")
    matched = [match_node(name, known) for name in names]
    assert matched == ["conv1", "conv1", "conv10", "conv9", None, None]


def test_a_profile_of_onnxruntime_is_read_as_data():
    events = [
        {"cat": "Node", "name": "a_kernel_time", "dur": duration} for duration in (10, 20, 90)
    ]
    others = [
        {"cat": "Node", "name": "a_fence_before", "dur": 5}, {"cat": "Session"}, 7,
        {"cat": "Node", "name": 3, "dur": 1}, {"cat": "Node", "name": "b_kernel_time"},
    ]  # fmt: skip
    assert compute_node_times([*events, *others], 3) == {"a": pytest.approx(15e-6)}
