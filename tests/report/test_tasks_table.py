from autopipe.op_info import Op, OpInfo
from autopipe.report.tasks import table
from autopipe.task import Task
from autopipe.tensor import Tensor

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
    assert table([task(share=0.975), small]).splitlines() == [
        " #  share  calls  FLOPs   bytes  kind         task",
        " 0  97.5%      2  231 M  1.75 M  out_ewise    fused_conv2d_add_relu",
        "      1x56x56x64 float32, 3x3x64x64 float32 -> 1x56x56x64 float32",
        "11   0.1%      1     64  1.02 k  elementwise  add",
        "      1x56x56x64 float32, 3x3x64x64 float32 -> scalar int64",
        "      dropped: 64 FLOPs, fewer than 100000",
        "",
        "2 tasks, 1 kept: 100.0% of 462 M FLOPs, 97.5% of the estimated time",
    ]


def test_it_fits_eighty_columns_whatever_the_names():
    wild = task(
        99_999, name="\x1b[31m" + "x" * 10_000, calls=10**6, flops=9.99e14, bytes=10**14, share=1.0,
        info=OpInfo(kind="y" * 99), inputs=(Tensor(shape=(1, 2, 3), dtype="float32"),) * 50,
        dropped="\r" + "z" * 10_000,
    )  # fmt: skip
    lines = table([wild]).splitlines()
    assert max(map(len, lines)) <= 80
    assert all(line.isprintable() for line in lines)


def test_a_model_without_work_has_no_share():
    nothing = "kept: 0.0% of 0 FLOPs, 0.0% of the estimated time"
    assert table([task(flops=0.0)]).endswith(f"1 tasks, 1 {nothing}")
    assert table([]).endswith(f"0 tasks, 0 {nothing}")
