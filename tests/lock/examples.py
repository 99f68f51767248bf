"""A lock to take apart."""

from typing import Any

from autopipe.lock.document import Lock, LockedTask

KNOBS = {"template": "contraction", "version": 2, "knobs": {"rows": 8, "outer": "columns"}}

TASKS = (
    LockedTask(
        name="fused_matmul_add", workload="8549ac96a0f6b7ff", ops=("matmul", "add"), calls=2,
        engine="autotvm", implementation="direct", schedule=KNOBS,
        microseconds=(4.5, 4.6, 5.25), trials=31,
    ),
    LockedTask(
        name="searched", workload="ef99bbf7cf3dda1d", ops=("nn.conv2d",), calls=1, engine="ansor",
        implementation="direct", schedule="trace 0123456789ab", microseconds=(1.0, 2.0, 3.0),
        trials=64,
    ),
    LockedTask(
        name="softmax", workload="7153a69ef80a8d0c", ops=("nn.softmax",), calls=1, engine="static",
        implementation="direct", schedule=None, microseconds=None, trials=0,
    ),
)  # fmt: skip

HARDWARE = {"l1": 32768, "l2": 1 << 20, "l3": 1 << 25}
TARGET: dict[str, Any] = {
    "kind": "llvm", "mcpu": "znver4", "mattr": [], "mtriple": "x86_64-linux-gnu", "num_cores": 2,
    "hardware": HARDWARE,
}  # fmt: skip

LOCK = Lock(
    version=1,
    pipeline="demo",
    configuration={
        "layout": None,
        "model": {
            "path": "modèle: #1.onnx",
            "inputs": {"on": {"shape": [1, 3]}, "a/b:0": None, "x" * 70: [1] * 40},
        },
        "tasks": {"include": [{"op": "*", "share": None}, {"op": "conv\n2d"}], "exclude": []},
    },
    sources={"import.model": "ab" * 32},
    target=TARGET,
    versions={"tvm": {"tvm": "0.27", "llvm": "22"}, "libraries": {}, "reference": {"onnx": None}},
    stages={"import": 3, "tune": 3},
    records="cd" * 32,
    tasks=TASKS,
    artifacts={"lib.so": "01" * 32, "demo.tar": "23" * 32},
)  # fmt: skip
