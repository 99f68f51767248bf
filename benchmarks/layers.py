"""Single layers of ResNet-50 and of transformers: `python benchmarks/layers.py`.

GFLOPS of the untuned kernel, beside onnxruntime's kernel for the same layer and beside what the
machine reaches on multiply-adds in registers. Kernel against kernel: transposes at the ends are
left out on our side, reorders to its own layout on onnxruntime's. Each contender runs in a process
of its own, in turn; medians over the rounds.

`python benchmarks/layers.py --one-thread [--before CHECKOUT]` is for a machine that others use,
too: layers with dilation, of volumes, stems and others, on one thread, and the minimum time of each
kernel, ours by processor time, with other memory read before each call. `--before` has another
checkout of autopipe compile the same layers, and adds its times.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from machine import target, workloads
from onnx import TensorProto, helper, numpy_helper

import autopipe

CONVOLUTIONS = (
    # size, channels in, channels out, kernel, stride
    (224, 3, 64, 7, 2), (56, 64, 64, 1, 1), (56, 64, 64, 3, 1), (56, 64, 256, 1, 1),
    (56, 256, 128, 1, 2), (28, 128, 128, 3, 1), (28, 128, 512, 1, 1), (14, 256, 256, 3, 1),
    (14, 256, 1024, 1, 1), (7, 512, 512, 3, 1),
)  # fmt: skip

PRODUCTS = (
    # batch, rows, reduction, columns; a batch multiplies two activations
    (1, 128, 768, 768), (1, 128, 768, 3072), (1, 128, 3072, 768), (12, 128, 64, 128),
    (12, 128, 128, 64),
)  # fmt: skip

ONE_THREAD = (
    # sides, channels in, channels out, kernel, dilation
    ((224, 224), 3, 16, 3, 1), ((224, 224), 3, 64, 3, 1), ((33, 33), 256, 64, 3, 2),
    ((33, 33), 320, 64, 3, 6), ((33, 33), 320, 64, 3, 12), ((33, 33), 256, 256, 3, 18),
    ((28, 28), 512, 512, 3, 4), ((8, 32, 32), 16, 32, 3, 1), ((4, 16, 16), 32, 64, 3, 1),
    ((2, 8, 8), 64, 64, 3, 1), ((112, 112), 16, 16, 3, 1), ((112, 112), 32, 32, 3, 1),
    ((56, 56), 64, 64, 3, 1), ((56, 56), 256, 256, 3, 1), ((28, 28), 128, 128, 3, 1),
    ((14, 14), 256, 256, 3, 1), ((7, 7), 512, 512, 3, 1), ((56, 56), 64, 64, 1, 1),
    ((56, 56), 64, 256, 1, 1), ((14, 14), 512, 512, 1, 1), ((7, 7), 512, 1024, 1, 1),
)  # fmt: skip

ROUNDS = 5
CALLS = 30
IMAGE = 4
"""Axes of an image in a batch."""
PASSED = 8 << 20
"""Floats that are read before each call on one thread: as many as a shared cache holds, or more."""
SUMS = 16
"""Independent sums of the peak's kernel: enough to hide the latency, few enough for registers."""


def main() -> None:
    """Compare, or be one of the contenders."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--one-thread", action="store_true", help="the layers of one thread")
    parser.add_argument("--before", type=Path, help="another checkout, for --one-thread")
    options = parser.parse_args()
    if options.contender:
        print(json.dumps(CONTENDERS[options.contender](options.folder)))
        return
    if options.one_thread:
        one_thread(options.before)
        return
    peak = max(_child("peak", Path()) for _ in range(ROUNDS))
    print(f"multiply-adds in registers: {peak / 1e9:.0f} GFLOPS")
    print(f"{'layer':<34} {'autopipe':>9} {'of peak':>8} {'onnxruntime':>12} {'faster':>7}")
    for name, model, operations in layers():
        with tempfile.TemporaryDirectory() as folder:
            _prepare(model, Path(folder))
            seconds = {
                who: statistics.median(times) for who, times in _rounds(Path(folder)).items()
            }
        ours, theirs = (operations / seconds[who] / 1e9 for who in ("ours", "onnxruntime"))
        row = f"{ours:9.0f} {ours * 1e9 / peak:8.0%} {theirs:12.0f} {ours / theirs:6.2f}x"
        print(f"{name:<34} {row}", flush=True)


def one_thread(before: Path | None) -> None:
    """Print the table of one thread."""
    functions = {"before": "ours_alone"} if before else {}
    functions["after"] = "ours_alone"
    functions |= {name: f"{name}_alone" for name in ("onnxruntime", "openvino")}
    print(f"| layer | {' | '.join(functions)} | of the best competitor |")
    print("|---" * (len(functions) + 2) + "|")
    for name, model in convolutions():
        with tempfile.TemporaryDirectory() as folder:
            _prepare(model, Path(folder))
            times: dict[str, float] = {}
            for _ in range(ROUNDS):
                for contender, function in functions.items():
                    code = before if contender == "before" else None
                    took = _child(function, Path(folder), code)
                    times[contender] = min(took, times.get(contender, took))
        best = min(times["onnxruntime"], times["openvino"])
        cells = " | ".join(f"{seconds * 1e6:.0f} us" for seconds in times.values())
        print(f"| {name} | {cells} | {times['after'] / best:.2f} |", flush=True)


def convolutions() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Yield the layers of one thread: a name and a model each."""
    random = np.random.default_rng(0)
    for sides, inputs, outputs, kernel, dilation in ONE_THREAD:
        weight = random.normal(0, 0.1, (outputs, inputs, *(kernel for _ in sides)))
        node = helper.make_node(
            "Conv", ["x", "w", "b"], ["c"], pads=[kernel // 2 * dilation] * 2 * len(sides),
            dilations=[dilation] * len(sides),
        )  # fmt: skip
        relu = helper.make_node("Relu", ["c"], ["y"])
        model = _model([node, relu], [1, inputs, *sides], w=weight, b=random.normal(0, 1, outputs))
        size, taps = "x".join(map(str, sides)), "x".join(str(kernel) for _ in sides)
        apart = f", dilation {dilation}" if dilation > 1 else ""
        yield f"{taps} of {size}, {inputs} to {outputs}{apart}", model


def layers() -> Iterator[tuple[str, onnx.ModelProto, float]]:
    """Yield each layer's name, model and floating-point operations."""
    random = np.random.default_rng(0)
    for size, before, after, kernel, stride in CONVOLUTIONS:
        weight = random.normal(0, 0.1, (after, before, kernel, kernel))
        pad = kernel // 2
        node = helper.make_node(
            "Conv", ["x", "w", "b"], ["c"], pads=[pad] * 4, strides=[stride] * 2
        )
        relu = helper.make_node("Relu", ["c"], ["y"])
        bias = random.normal(0, 0.1, after)
        out = (size - 1) // stride + 1
        name = f"conv {kernel}x{kernel}/{stride} {size}x{size} {before} to {after}"
        operations = 2.0 * out * out * after * before * kernel * kernel
        yield name, _model([node, relu], [1, before, size, size], w=weight, b=bias), operations
    for batch, rows, depth, columns in PRODUCTS:
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
        name = f"matmul {batch}x {rows}x{depth} by {depth}x{columns}"
        operations = 2.0 * batch * rows * depth * columns
        if batch == 1:
            model = _model([node], [1, rows, depth], w=random.normal(0, 0.1, (depth, columns)))
        else:
            model = _model([node], [batch, rows, depth], other=[batch, depth, columns])
        yield name, model, operations


def _model(
    nodes: list[Any],
    shape: list[int],
    other: list[int] | None = None,
    **weights: Any,  # noqa: ANN401
) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    if other is not None:
        inputs.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, other))
    graph = helper.make_graph(
        nodes, "layer", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array.astype("float32"), name) for name, array in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _prepare(model: onnx.ModelProto, folder: Path) -> None:
    """Write the model and extract its tasks."""
    model = onnx.shape_inference.infer_shapes(model)
    onnx.save(model, folder / "layer.onnx")
    rank = len(model.graph.input[0].type.tensor_type.shape.dim)
    convolution = "conv3d: [NDHWC, DHWIO]" if rank > IMAGE else "conv2d: [NHWC, HWIO]"
    layout = f"layout: {{{convolution}}}\n" if model.graph.node[0].op_type == "Conv" else ""
    text = f"version: 1\nname: layer\nmodel: {{path: layer.onnx}}\n{layout}"
    (folder / "layer.yaml").write_text(text, encoding="utf-8")
    tasks = autopipe.run(folder / "layer.yaml", store=folder / "store", until="tasks")["tasks"]
    (folder / "tasks").symlink_to(tasks.path)


def _rounds(folder: Path) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {"ours": [], "onnxruntime": []}
    for _ in range(ROUNDS):
        for who, times in seconds.items():
            times.append(_child(who, folder))
    return seconds


def _child(who: str, folder: Path, code: Path | None = None) -> float:
    command = [sys.executable, __file__, "--contender", who, "--folder", str(folder)]
    environment = {**os.environ, "ORT_DISABLE_TELEMETRY": "1"}
    if code is not None:
        environment["PYTHONPATH"] = str(code)
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def ours(folder: Path) -> float:
    """Return the seconds of the untuned kernel of the layer."""
    from functools import partial

    from autopipe.config.tuning import Measure
    from autopipe.measure.local import Local
    from autopipe.measure.timing import use_threads
    from autopipe.schedules.conditions import Conditions
    from autopipe.schedules.engines.fallback import choose_fallback

    cores = int(str(target()["num_cores"]))
    use_threads(cores)
    conditions = Conditions.of(target(), fast_algorithms=True)
    _, module = max(workloads(folder / "tasks"), key=lambda found: found[0].flops)
    planned = choose_fallback(["static", "default"], module, conditions).planned
    if planned is None:
        sys.exit("the layer has no schedule")
    limits = Measure(repeat=10, min_repeat=0.05)
    (result,) = Local(conditions.target, cores, limits).measure([partial(_same, planned.module)])
    if result.error:
        sys.exit(f"the layer cannot be measured: {result.error}")
    return result.median


def ours_alone(folder: Path) -> float:
    """Return the minimum processor time of the untuned kernel of the layer on one thread."""
    from autopipe.measure.build import build_kernel
    from autopipe.measure.timing import make_operands, use_threads
    from autopipe.schedules.conditions import Conditions
    from autopipe.schedules.engines.fallback import choose_fallback

    use_threads(1)
    conditions = Conditions.of({**target(), "num_cores": 1}, fast_algorithms=True)
    _, module = max(workloads(folder / "tasks"), key=lambda found: found[0].flops)
    planned = choose_fallback(["static", "default"], module, conditions).planned
    if planned is None:
        sys.exit("the layer has no schedule")
    kernel = build_kernel(planned.module, conditions.target)
    call, given, others = kernel.library["main"], make_operands(kernel.module), np.ones(PASSED, "f")
    seconds = []
    for _ in range(CALLS):
        others[::16].sum()
        start = time.thread_time()
        call(*given)
        seconds.append(time.thread_time() - start)
    return min(seconds)


def onnxruntime_alone(folder: Path) -> float:
    """Return the minimum time of onnxruntime's kernel on one thread."""
    return _alone(folder, "onnxruntime")


def openvino_alone(folder: Path) -> float:
    """Return the minimum time of OpenVINO's kernel on one thread."""
    return _alone(folder, "openvino")


def _alone(folder: Path, competitor: str) -> float:
    """Return the minimum time of a competitor's heaviest kernel, as its profile says."""
    import kernels

    model, others = folder / "layer.onnx", np.ones(PASSED, "f")
    (port,) = onnx.load(model).graph.input
    shape = [side.dim_value for side in port.type.tensor_type.shape.dim]
    image = np.random.default_rng(1).normal(size=shape).astype("float32")
    profile = {"onnxruntime": kernels.onnxruntime_kernels, "openvino": kernels.openvino_kernels}
    found = profile[competitor](model, {port.name: image}, 1, others[::16].sum)
    return max(kernel.seconds for kernel in found if kernel.heavy)


def _same(module: Any) -> Any:  # noqa: ANN401
    return module


def onnxruntime(folder: Path) -> float:
    """Return the seconds of onnxruntime's kernel of the layer, as its profile says."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    session = ort.InferenceSession(
        folder / "layer.onnx", options, providers=["CPUExecutionProvider"]
    )
    random = np.random.default_rng(1)
    arrays = {
        port.name: random.normal(size=port.shape).astype("float32") for port in session.get_inputs()
    }
    for _ in range(200):
        session.run(None, arrays)
    profile = Path(session.end_profiling())
    events = json.loads(profile.read_text(encoding="utf-8"))
    profile.unlink()
    heavy = [
        event["dur"] * 1e-6
        for event in events
        if event.get("args", {}).get("op_name") in ("Conv", "FusedConv", "MatMul", "Gemm")
        and event["name"].endswith("_kernel_time")
    ]
    return float(statistics.median(heavy[len(heavy) // 4 :]))


def peak(_: Path) -> float:
    """Return the floating-point operations a second of all cores on multiply-adds in registers."""
    import tvm
    from tvm.script import tirx as T  # noqa: N812 - as everybody calls it

    from autopipe.compiler.target.target import make_target
    from autopipe.measure.timing import use_threads
    from autopipe.schedules.hardware import HardwareParams

    here = make_target(target())
    hardware = HardwareParams.of(here)
    cores, lanes, steps = hardware.cores, hardware.lanes(32), 1 << 20
    use_threads(cores)

    @T.prim_func  # type: ignore[untyped-decorator]
    def main(out: T.Buffer((cores, SUMS, lanes), "float32")) -> None:  # type: ignore[valid-type]
        for core in T.parallel(cores):
            sums = T.alloc_buffer((SUMS, lanes), "float32", scope="local")
            for s in T.unroll(SUMS):
                for v in T.vectorized(lanes):
                    sums[s, v] = out[core, s, v]
            for _ in range(steps):
                for s in T.unroll(SUMS):
                    for v in T.vectorized(lanes):
                        sums[s, v] = sums[s, v] * T.float32(0.999) + T.float32(0.001)
            for s in T.unroll(SUMS):
                for v in T.vectorized(lanes):
                    out[core, s, v] = sums[s, v]

    library = tvm.tirx.build(tvm.IRModule({"main": main}), here)
    out = tvm.runtime.tensor(np.ones((cores, SUMS, lanes), "float32"))
    times = library.time_evaluator("main", tvm.cpu(), number=1, repeat=10)(out).results
    return float(2 * cores * SUMS * lanes * steps / min(times))


CONTENDERS = {
    "ours": ours, "onnxruntime": onnxruntime, "peak": peak, "ours_alone": ours_alone,
    "onnxruntime_alone": onnxruntime_alone, "openvino_alone": openvino_alone,
}  # fmt: skip


if __name__ == "__main__":
    main()
