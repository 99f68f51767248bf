"""Measures candidates that misbehave; prints what became of each, as JSON. Run as a program."""

import ctypes
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import tvm
from tvm import te

from autopipe.config.tuning import Measure
from autopipe.measure.check import checked
from autopipe.measure.local import Local

TARGET = tvm.target.Target({"kind": "llvm", "num-cores": 2})
LIMITS = Measure(build_timeout=4.0, run_timeout=2.0, repeat=2, min_repeat=0.001, memory=512)


def good(size=1024):
    data = te.placeholder((size,), "float32", name="data")
    out = te.compute((size,), lambda i: data[i] * 2.0, name="out")
    return tvm.IRModule({"main": te.create_prim_func([data, out])})


def slow():
    return good(1 << 22)


def endless():
    outer, inner = te.reduce_axis((0, 1 << 24)), te.reduce_axis((0, 1 << 24))
    data = te.placeholder((16,), "float32", name="data")
    out = te.compute((1,), lambda _: te.sum(data[(outer * inner) % 16], [outer, inner]), name="out")
    return tvm.IRModule({"main": te.create_prim_func([data, out])})


def divides_by_zero():
    data = te.placeholder((64,), "int32", name="data")
    out = te.compute((64,), lambda i: tvm.tirx.truncdiv(7, data[i]), name="out")
    return tvm.IRModule({"main": te.create_prim_func([data, out])})


def too_large():
    return good(1 << 29)


def raises():
    raise ValueError("no such schedule")


def segfaults():
    ctypes.string_at(0)


def hangs():
    time.sleep(60)


def exits():
    os._exit(3)


def quits():
    sys.exit(4)


def eats_memory():
    return bytearray(2 << 30)


def floods():
    for _ in range(100):
        os.write(1, b"x" * (1 << 20))
        os.write(2, b"x" * (1 << 20))
    return good()


def forks():
    if os.fork() == 0:
        time.sleep(60)
    os.kill(os.getpid(), 11)


def half_wrong():
    data = te.placeholder((1024,), "float32", name="data")
    out = te.compute((1024,), lambda i: data[i] * te.if_then_else(i < 1000, 2.0, 1.0), name="out")
    return tvm.IRModule({"main": te.create_prim_func([data, out])})


def wrong():
    return checked(good(), half_wrong(), TARGET)


def right():
    return checked(good(), good(), TARGET)


ALL = (good, endless, divides_by_zero, too_large, raises, segfaults, hangs, exits, quits,
       eats_memory, floods, forks, wrong, right, good)  # fmt: skip


def shared(local):
    """Tell how many children build six candidates."""
    with tempfile.NamedTemporaryFile() as file:

        def noted():
            with Path(file.name).open("a") as lines:
                lines.write(f"{os.getpid()}\n")
            return good()

        errors = [found.error for found in local.measure([noted] * 6)]
        return {"errors": errors, "children": len(set(file.read().split()))}


def main():
    if sys.argv[1:] == ["hang"]:
        sys.stdout.write(f"{os.getpid()}\n")
        sys.stdout.flush()
        list(Local(TARGET, 2, LIMITS.model_copy(update={"build_timeout": 60.0})).measure([hangs]))
    local = Local(TARGET, 2, LIMITS)
    found = [
        {"name": candidate.__name__, **asdict(measurement)}
        for candidate, measurement in zip(ALL, local.measure(ALL), strict=True)
    ]
    (cut,) = local.measure([slow], best=1e-12)
    found.append({"name": "slow", **asdict(cut)})
    late = local.measure([good, good, hangs], until=time.monotonic() + 3.0)
    found.append({"name": "late", "measured": len(list(late))})
    found.append({"name": "shared", **shared(local)})
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
