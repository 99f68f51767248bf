"""Transposes against a copy of as many bytes: `python benchmarks/moves.py`.

Each is scheduled as an untuned build has it. Beside it a copy of as many elements by our own
kernel, which is what no transpose can be faster than, numpy's copy of the turned view (one thread),
and onnxruntime's Transpose (as many threads). Each contender in a process of its own, in turn; the
least of the rounds. `--share 1/3` takes every third case, from the first one on.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from machine import target

CASES: Final = (
    # shape, order of axes, type
    ((1, 257, 257, 21), (0, 3, 1, 2), "float32"),
    ((1, 21, 257, 257), (0, 2, 3, 1), "float32"),
    ((1, 512, 512, 3), (0, 3, 1, 2), "float32"),
    ((1, 3, 512, 512), (0, 2, 3, 1), "float32"),
    ((1, 299, 299, 3), (0, 3, 1, 2), "uint8"),
    ((1, 65, 65, 256), (0, 3, 1, 2), "float32"),
    ((1, 7, 7, 1280), (0, 3, 1, 2), "float32"),
    ((1000, 1000), (1, 0), "float32"),
    ((1024, 1024), (1, 0), "float32"),
    ((997, 1009), (1, 0), "float32"),
    ((997, 1009), (1, 0), "uint8"),
    ((997, 1009), (1, 0), "float16"),
    ((499, 1009), (1, 0), "float64"),
    ((499, 1009), (1, 0), "int64"),
    ((8, 12, 197, 64), (0, 2, 1, 3), "float32"),
    ((8, 197, 12, 64), (0, 2, 3, 1), "float32"),
    ((1, 197, 12, 61), (0, 2, 3, 1), "float32"),
    ((1, 3, 85, 80, 80), (0, 1, 3, 4, 2), "float32"),
    ((1, 2, 58, 28, 28), (0, 2, 1, 3, 4), "float32"),
    ((33, 35, 37, 39), (3, 2, 1, 0), "float32"),
    ((33, 35, 37, 39), (2, 0, 3, 1), "float32"),
    ((200, 300, 5), (1, 0, 2), "float32"),
    ((50, 40, 6, 40), (3, 1, 0, 2), "bool"),
    ((1, 160, 160, 6), (0, 3, 1, 2), "float32"),
    ((1, 6, 160, 160), (0, 2, 3, 1), "float32"),
    ((1, 8, 160, 160), (0, 2, 3, 1), "float32"),
    ((1, 160, 160, 4), (0, 3, 1, 2), "uint8"),
    ((127, 11, 13), (2, 1, 0), "float32"),
)
TURNS: Final = 2
ROUNDS: Final = 5
SECONDS: Final = 0.04
"""Of a round, at least."""


def main() -> None:
    """Compare, or be one of the contenders."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--share", default="1/1")
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contender:
        print(json.dumps(CONTENDERS[options.contender](*CASES[options.case])))
        return
    first, step = map(int, options.share.split("/"))
    print(
        "| shape | order | type | ours | copy | numpy | onnxruntime | ours / copy | / onnxruntime |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for at in range(first - 1, len(CASES), step):
        shape, order, dtype = CASES[at]
        least = dict.fromkeys(CONTENDERS, math.inf)
        for _ in range(TURNS):
            for who in CONTENDERS:
                least[who] = min(least[who], _child(who, at))
        ours, copy, _, theirs = times = [least[name] for name in CONTENDERS]
        cells = " | ".join(f"{second * 1e6:.4g} us" for second in times)
        print(f"| {'x'.join(map(str, shape))} | {' '.join(map(str, order))} | {dtype} | {cells} "
              f"| {ours / copy:.2f} | {ours / theirs:.2f} |", flush=True)  # fmt: skip


def _child(who: str, case: int) -> float:
    command = [sys.executable, __file__, "--contender", who, "--case", str(case)]
    environment = {**os.environ, "ORT_DISABLE_TELEMETRY": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def _array(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2, shape).astype(dtype)


def _timed(call: Callable[[], object]) -> float:
    """Return the seconds of a call, the minimum of the rounds."""
    best = math.inf
    for _ in range(ROUNDS):
        calls, begun = 0, time.perf_counter()
        while (passed := time.perf_counter() - begun) < SECONDS:
            call()
            calls += 1
        best = min(best, passed / calls)
    return best


def _scheduled(x: Any, y: Any, wanted: np.ndarray, given: np.ndarray) -> float:  # noqa: ANN401
    """Return the seconds of a function that is checked first."""
    import tvm
    from tvm import te

    from autopipe.measure.timing import use_threads
    from autopipe.schedules.conditions import Conditions
    from autopipe.schedules.engines.fallback import choose_fallback

    conditions = Conditions.of(target(), fast_algorithms=True)
    use_threads(conditions.hardware.cores)
    module = tvm.IRModule({"main": te.create_prim_func([x, y])})
    planned = choose_fallback(["static", "default"], module, conditions).planned
    if planned is None:
        sys.exit("it has no schedule")
    built = tvm.tirx.build(planned.module, conditions.target)
    arrays = tvm.runtime.tensor(given), tvm.runtime.tensor(np.zeros_like(wanted))
    call = built["main"]
    call(*arrays)
    np.testing.assert_array_equal(arrays[1].numpy(), wanted)
    return _timed(lambda: call(*arrays))


def ours(shape: tuple[int, ...], order: tuple[int, ...], dtype: str) -> float:
    """Return the seconds of our transpose."""
    from tvm import te, topi

    x, given = te.placeholder(shape, dtype), _array(shape, dtype)
    return _scheduled(x, topi.transpose(x, order), given.transpose(order), given)


def copy(shape: tuple[int, ...], _: tuple[int, ...], dtype: str) -> float:
    """Return the seconds of our copy."""
    from tvm import te

    given = _array((math.prod(shape),), dtype)
    x = te.placeholder(given.shape, dtype)
    return _scheduled(x, te.compute(x.shape, lambda i: x[i]), given, given)


def numpy(shape: tuple[int, ...], order: tuple[int, ...], dtype: str) -> float:
    """Return the seconds of numpy's copy of a turned view."""
    given = _array(shape, dtype).transpose(order)
    room = np.empty(given.shape, dtype)
    return _timed(lambda: np.copyto(room, given))


def onnxruntime(shape: tuple[int, ...], order: tuple[int, ...], dtype: str) -> float:
    """Return the seconds of onnxruntime's Transpose."""
    import onnxruntime as ort
    from onnx import helper

    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [helper.make_node("Transpose", ["x"], ["y"], perm=order)], "transpose",
        [helper.make_tensor_value_info("x", element, shape)],
        [helper.make_tensor_value_info("y", element, [shape[axis] for axis in order])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    binding.bind_cpu_input("x", _array(shape, dtype))
    room = ort.OrtValue.ortvalue_from_shape_and_type([shape[a] for a in order], np.dtype(dtype))
    binding.bind_ortvalue_output("y", room)
    return _timed(lambda: session.run_with_iobinding(binding))


CONTENDERS: Final = {"ours": ours, "copy": copy, "numpy": numpy, "onnxruntime": onnxruntime}


if __name__ == "__main__":
    main()
