import io
import sys

import pytest

from autopipe.cli.tasks import Order
from autopipe.report.tasks import Prospects, choose_table_width, format_task_table, list_task_lines
from autopipe.tasks.op_info import Op, OpInfo
from autopipe.tasks.task import Task
from autopipe.tasks.tensor import Tensor

CONV = OpInfo(kind="out_elementwise_fusable", ops=(Op(name="nn.conv2d"),))


def task(index=0, **changes):
    tensor = Tensor(shape=(1, 56, 56, 64), dtype="float32")
    return Task(**{
        "index": index, "name": "fused_conv2d_add_relu", "workload": "0" * 16,
        "functions": ("f",), "calls": 2, "info": CONV,
        "reductions": 1,
        "inputs": (tensor, Tensor(shape=(3, 3, 64, 64), dtype="float32")), "outputs": (tensor,),
        "flops": 231_211_008.0, "bytes": 1_753_088, "dropped": None, **changes,
    })  # fmt: skip


def test_the_table():
    scalar = Tensor(shape=(), dtype="int64")
    small = task(
        11, name="add", info=OpInfo(kind="elementwise"), calls=1, flops=64.0, bytes=1024,
        outputs=(scalar,), share=0.001, dropped="64 FLOPs, fewer than 100000",
    )  # fmt: skip
    assert format_task_table([task(share=0.975), small]).splitlines() == [
        " #  share  calls  FLOPs   bytes  kind         task",
        " 0  97.5%      2  231 M  1.75 M  out_ewise    fused_conv2d_add_relu",
        "      nn.conv2d: 1x56x56x64, 3x3x64x64 -> 1x56x56x64 float32",
        "11   0.1%      1     64  1.02 k  elementwise  add",
        "      1x56x56x64 float32, 3x3x64x64 float32 -> scalar int64",
        "      dropped: 64 FLOPs, fewer than 100000",
        "",
        "2 tasks, 1 kept: 100.0% of 462 M FLOPs, 97.5% of the estimated time",
    ]


def test_ops_have_a_line_of_their_own_where_shapes_leave_no_room():
    many = OpInfo(kind="out_elementwise_fusable", ops=(Op(name="nn.conv2d"), Op(name="add")) * 4)
    assert format_task_table([task(info=many)]).splitlines()[2:4] == [
        "      nn.conv2d, add, nn.conv2d, add, nn.conv2d, add, nn.conv2d, add:",
        "      1x56x56x64, 3x3x64x64 -> 1x56x56x64 float32",
    ]
    (line,) = format_task_table([task(info=many)], 160).splitlines()[2:-2]
    assert line.endswith("nn.conv2d, add: 1x56x56x64, 3x3x64x64 -> 1x56x56x64 float32")


def test_a_wider_terminal_shows_longer_names():
    long = task(name="fused_" + "x" * 100)
    assert "fused_" + "x" * 100 in format_task_table([long], 160)
    assert max(map(len, format_task_table([long], 80).splitlines())) == 80


@pytest.mark.parametrize(("there", "width"), [(None, 10_000), (60, 80), (132, 132)])
def test_a_table_is_as_wide_as_the_terminal_and_whole_elsewhere(monkeypatch, there, width):
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: there is not None)
    monkeypatch.setenv("COLUMNS", str(there or 200))
    monkeypatch.setattr(sys, "stdout", stream)
    assert choose_table_width() == width


def test_one_task_in_full():
    schedules = Prospects(1, ("autotvm", "ansor"), ("default",), {"direct": "conv", "m\x1b": None})
    lines = list_task_lines(task(), schedules, "# TIR\n\nfor i in range(4):\n    \x1b[2J\n")
    assert lines[1].endswith("fused_conv2d_add_relu")
    assert "      p1: 3x3x64x64 float32" in lines
    assert lines[-7:-1] == [
        "",
        "      engines: autotvm, ansor (rule 1)",
        "      fallback: default",
        "      implementation direct: template conv",
        "      implementation m\\x1b: no template",
        "",
    ]
    assert lines[-1] == "# TIR\n\nfor i in range(4):\n    \\x1b[2J"


def test_it_fits_eighty_columns_whatever_the_names():
    wild = task(
        99_999, name="\x1b[31m" + "x" * 10_000, calls=10**6, flops=9.99e14, bytes=10**14, share=1.0,
        info=OpInfo(kind="y" * 99), inputs=(Tensor(shape=(1, 2, 3), dtype="float32"),) * 50,
        dropped="\r" + "z" * 10_000,
    )  # fmt: skip
    lines = format_task_table([wild]).splitlines()
    assert max(map(len, lines)) <= 80
    assert all(line.isprintable() for line in lines)


def test_a_model_without_work_has_no_share():
    nothing = "kept: 0.0% of 0 FLOPs, 0.0% of the estimated time"
    assert format_task_table([task(flops=0.0)]).endswith(f"1 tasks, 1 {nothing}")
    assert format_task_table([]).endswith(f"0 tasks, 0 {nothing}")


def test_what_costs_most_comes_first_unless_the_index_orders():
    tasks = [task(1, flops=2.0, bytes=9, share=0.5), task(0, flops=3.0, bytes=1, share=0.5)]
    assert [[each.index for each in order.sorted(tasks)] for order in Order] == [
        [0, 1], [1, 0], [0, 1], [1, 0],
    ]  # fmt: skip
