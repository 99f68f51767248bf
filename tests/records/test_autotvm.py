"""Logs of TVM's old AutoTVM."""

import json

import pytest

from autopipe.records import autotvm
from autopipe.records.seed import list_seed_keys
from autopipe.tasks.op_info import Op, OpInfo, Parameter
from autopipe.tasks.task import Task
from autopipe.tasks.tensor import Tensor

TARGET = "llvm -keys=cpu -mcpu=skylake-avx512"
TILE = [["tile_ic", "sp", [-1, 16]], ["tile_oc", "sp", [-1, 32]], ["tile_ow", "sp", [-1, 14]]]


def read(text):
    return autotvm.read(line.encode() for line in text.split("\n"))


def tensor(*shape):
    return ["TENSOR", list(shape), "float32"]


def line(task, arguments, *, costs=(0.25, 0.75), error=0, entity=TILE, target=TARGET):
    config = {"index": 1, "code_hash": None, "entity": entity}
    return json.dumps(
        {
            "input": [target, task, arguments, {}], "config": config,
            "result": [costs, error, 1.0, 1.6e9], "version": 0.2, "tvm_version": "0.8.0",
        }
    )  # fmt: skip


STEPS = [[2, 2], [1, 1, 1, 1], [1, 1], "NCHW", "NCHW", "float32"]
CONV = line("conv2d_NCHWc.x86", [tensor(1, 64, 56, 56), tensor(128, 64, 3, 3), *STEPS])
SPLIT = line("conv2d_NCHWc.x86", [tensor(1, 8, 56, 56, 8), tensor(4, 8, 3, 3, 8, 32), *STEPS])
DEPTH = line("depthwise_conv2d_NCHWc.x86", [tensor(1, 24, 9, 9), tensor(24, 1, 3, 3), *STEPS])
DENSE = line("dense_pack.x86", [tensor(8, 128), tensor(256, 128), None, "float32"])


def task(name, attributes, read, written):
    made = [Tensor(shape=shape, dtype="float32") for shape in read]
    output = Tensor(shape=written, dtype="float32")
    arguments = (Parameter(parameter=0), Parameter(parameter=1))
    op = Op(name=name, attributes=attributes, arguments=arguments, outputs=(output,))
    return Task(
        index=0, name="t", workload="0", functions=("t",), calls=1, reductions=1,
        info=OpInfo(kind="opaque", ops=(op,)), inputs=tuple(made), outputs=(output,),
        flops=1, bytes=1, dropped=None,
    )  # fmt: skip


def conv(data_layout, kernel_layout, read, written, groups=1):
    attributes = {
        "strides": [2, 2], "padding": [1, 1, 1, 1], "dilation": [1, 1], "groups": groups,
        "data_layout": data_layout, "kernel_layout": kernel_layout,
    }  # fmt: skip
    return task("nn.conv2d", attributes, read, written)


FIRST = conv("NCHW", "OIHW", [(1, 64, 56, 56), (128, 64, 3, 3)], (1, 128, 28, 28))
LAST = conv("NHWC", "HWIO", [(1, 56, 56, 64), (3, 3, 64, 128)], (1, 28, 28, 128))
THIN = conv("NHWC", "HWOI", [(1, 9, 9, 24), (3, 3, 24, 1)], (1, 5, 5, 24), groups=24)
PRODUCT = task("matmul", {}, [(8, 128), (128, 256)], (8, 256))


@pytest.mark.parametrize(
    ("text", "tasks"),
    [(CONV, [FIRST, LAST]), (SPLIT, [FIRST, LAST]), (DEPTH, [THIN]), (DENSE, [PRODUCT])],
)
def test_a_seed_is_for_the_operator_in_any_layout(text, tasks):
    (seed,) = read(text).seeds
    assert seed.seconds == 0.5
    assert json.loads(seed.document)["knobs"]["tile_oc"] == [-1, 32]
    assert [
        each for each in (FIRST, LAST, THIN, PRODUCT) if seed.key in list_seed_keys(each)
    ] == tasks


@pytest.mark.parametrize(
    "other",
    [
        conv("NCHW", "OIHW", [(1, 64, 56, 56), (128, 64, 1, 1)], (1, 128, 28, 28)),
        conv("NCHW8c", "OIHW", [(1, 8, 56, 56, 8), (128, 64, 3, 3)], (1, 128, 28, 28)),
        task("nn.relu", {}, [(8, 128), (128, 256)], (8, 256)),
        task("matmul", {}, [(8, 128, 1), (128, 256, 1)], (8, 256, 1)),
    ],
)
def test_a_seed_is_for_no_other_operator(other):
    known = {seed.key for seed in read(f"{CONV}\n{DENSE}").seeds}
    assert not known & set(list_seed_keys(other))


def test_what_has_no_likeness_here_is_left_out_with_the_reason():
    log = read(
        "\n".join(
            [
                CONV, line("dense_nopack.x86", []), line("conv2d_NCHWc.x86", [], target="cuda -x"),
                line("dense_pack.x86", [], costs=[1e9], error=4), line("dense_pack.x86", []),
                line("dense_pack.x86", [], costs=[float("nan")]), CONV[:-40], "[]", "",
            ]
        )
    )  # fmt: skip
    assert len(log.seeds) == 1
    assert log.left_out == {
        "template dense_nopack.x86, which has no likeness here": 1,
        "for target cuda, whose templates are not ours": 1, "failed trials": 1, "damaged": 4,
    }  # fmt: skip


@pytest.mark.fault("K7")
@pytest.mark.parametrize(
    "text",
    [
        line("dense_pack.x86", [tensor(8, 128), tensor(*[10**99] * 3), None, "float32"]),
        line("dense_pack.x86", [tensor(8, 128), tensor(*[2] * 1000), None, "float32"]),
        line("dense_pack.x86", [tensor(8, 128), tensor(1.5, 128), None, "float32"]),
        line("dense_pack.x86", [tensor(8, 0), tensor(256, 128), None, "float32"]),
        line("conv2d_NCHWc.x86", [tensor(1, 10**99, 8, 8), tensor(8, 8, 3, 3), *STEPS]),
        line("dense_pack.x86", json.loads(DENSE)["input"][2], costs=["1" * 10]),
        line("dense_pack.x86", json.loads(DENSE)["input"][2], costs=[1.0] * 1000),
    ],
    ids=["huge", "deep", "fraction", "empty", "channels", "text", "repeats"],
)
def test_a_line_that_no_autotvm_wrote_is_damaged(text):
    """The product of as many extents as a line has room for would take minutes."""
    log = read(text)
    assert not log.seeds
    assert log.left_out == {"damaged": 1}


def test_of_many_settings_the_fastest_stay():
    times = [5.0, 1.0, 4.0, 2.0, 3.0, 0.5]
    log = read(
        "\n".join(line("dense_pack.x86", json.loads(DENSE)["input"][2], costs=[t]) for t in times)
    )
    assert [seed.seconds for seed in log.seeds] == [0.5, 1.0, 2.0, 3.0]
