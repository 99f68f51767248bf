"""A build against a competitor, kernel by kernel: `benchmarks/kernels.py FOLDER [COMPETITOR]`.

FOLDER is one that `race.py` keeps, such as `F/resnet18/1-untuned`; the competitor is onnxruntime or
openvino. Prints the minimum time of each kernel of both, those side by side that compute the heavy
operators (convolutions and products) of equal output sizes in the same order, the largest loss
first; then what the rest takes. With more than one thread, times hold the waiting for others.
"""

import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors.numpy import load_file
from turns import head_table

from autopipe.artifacts.library import BuiltLibrary

RUNS: Final = 30
HEAVY: Final = ("conv", "matmul", "gemm", "dense", "fullyconnected", "deconvolution", "lstm", "gru")


@dataclass(frozen=True)
class Kernel:
    """One call of a kernel."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    """Of what it reads, and then of what it writes."""
    seconds: float
    node: str = ""
    """Name in the model, where its runtime knows it."""

    @property
    def label(self) -> str:
        """Its name and shapes."""
        shapes = " ".join("x".join(map(str, shape)) for shape in self.shapes)
        return f"{self.name} {shapes} {self.node}".strip()

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many numbers it writes, reads first, and reads then, which are the weights."""
        counts = [prod(shape) for shape in self.shapes]
        return counts[-1], counts[0], counts[min(1, len(counts) - 1)]

    @property
    def heavy(self) -> bool:
        """Whether it computes a convolution or a product."""
        return any(word in self.name.lower() for word in HEAVY)


def main() -> None:
    """Print the comparison."""
    folder, competitor = Path(sys.argv[1]), (sys.argv[2:] or ["onnxruntime"])[0]
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    inputs = load_file(folder / "inputs.safetensors")
    threads = BuiltLibrary.read(folder / "build").signature.threads
    profile = {"onnxruntime": onnxruntime_kernels, "openvino": openvino_kernels}[competitor]
    theirs = list(profile(folder / "import" / "reference.onnx", inputs, threads))
    ours = list(our_kernels(folder / "build", inputs))
    print(f"{folder.parent.name}, {threads} threads: {_sum(ours)} in {len(ours)} kernels, "
          f"{competitor} {_sum(theirs)} in {len(theirs)}\n")  # fmt: skip
    pairs, alone = matched([k for k in ours if k.heavy], [k for k in theirs if k.heavy])
    print(head_table("ours", "theirs", "lost", "ratio", "our kernel", "their kernel"))
    pairs.sort(key=lambda pair: pair[1].seconds - pair[0].seconds)
    for our, their in pairs:
        lost, ratio = our.seconds - their.seconds, our.seconds / max(their.seconds, 1e-9)
        print(f"| {_us(our.seconds)} | {_us(their.seconds)} | {_us(lost)} | {ratio:.2f} "
              f"| {our.label} | {their.label} |")  # fmt: skip
    light = [k for k in theirs if not k.heavy] + [k for k in alone if k in theirs]
    rest = [k for k in ours if not k.heavy] + [k for k in alone if k not in theirs]
    for whose, kernels in (("ours", rest), (competitor, light)):
        print(f"\nThe rest, {whose}: {_sum(kernels)}")
        groups: dict[str, list[Kernel]] = defaultdict(list)
        for kernel in kernels:
            groups[kernel.label].append(kernel)
        costly = sorted(groups.items(), key=lambda group: -sum(k.seconds for k in group[1]))
        for name, equal in costly[:12]:
            print(f"- {len(equal)} x {name}: {_sum(equal)}")


def matched(
    ours: list[Kernel], theirs: list[Kernel]
) -> tuple[list[tuple[Kernel, Kernel]], list[Kernel]]:
    """Pair kernels that write, read and weigh as many numbers; return the pairs, and the rest.

    Equal ones are paired in order. Weights count where that finds a partner: some are padded.
    """
    pairs: list[tuple[Kernel, Kernel]] = []
    for counted in (3, 2, 1):
        waiting: dict[tuple[int, ...], list[Kernel]] = defaultdict(list)
        for their in theirs:
            waiting[their.sizes[:counted]].append(their)
        found = [
            (our, waiting[our.sizes[:counted]].pop(0))
            for our in ours
            if waiting[our.sizes[:counted]]
        ]
        pairs += found
        ours = [our for our in ours if all(our is not pair[0] for pair in found)]
        theirs = [their for their in theirs if all(their is not pair[1] for pair in found)]
    return pairs, [*ours, *theirs]


def our_kernels(library: Path, inputs: Mapping[str, np.ndarray]) -> Iterator[Kernel]:
    """Yield the kernels of a build."""
    import tvm

    from autopipe.compiler.library import runtime

    machines: list[Any] = []
    load = runtime._load_machine  # noqa: SLF001 -- no other way to the machine itself

    def kept(path: Path, devices: Any) -> Any:  # noqa: ANN401
        machines.append(load(path, devices))
        return machines[-1]

    runtime._load_machine = kept  # type: ignore[assignment]  # noqa: SLF001
    try:
        model = runtime.load_artifact(library)
    finally:
        runtime._load_machine = load  # noqa: SLF001
    calls: list[tuple[str, tuple[tuple[int, ...], ...], float]] = []
    begun: list[float] = []

    def instrument(_function: object, name: str, before: bool, _result: object, *given: Any) -> int:  # noqa: ANN401, FBT001
        if before:
            begun.append(time.perf_counter())
            return 0
        seconds = time.perf_counter() - begun.pop()
        shapes = tuple(tuple(map(int, one.shape)) for one in given
                       if isinstance(one, tvm.runtime.Tensor))  # fmt: skip
        if not name.startswith(("vm.", "R.")) and shapes:
            calls.append((name, shapes, seconds))
        return 0

    for _ in range(3):
        model(inputs)
    for machine in machines:
        machine["set_instrument"](tvm.runtime.convert(instrument))
    runs = []
    for _ in range(RUNS):
        calls.clear()
        model(inputs)
        runs.append(list(calls))
    for at in zip(*runs, strict=True):
        name, shapes, _ = at[0]
        yield Kernel(name, shapes, min(call[2] for call in at))


def onnxruntime_kernels(
    model: Path, inputs: Mapping[str, np.ndarray], threads: int
) -> Iterator[Kernel]:
    """Yield the kernels of onnxruntime."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.enable_profiling = True
        options.profile_file_prefix = f"{folder}/profile"
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        for _ in range(RUNS):
            session.run(None, dict(inputs))
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event["cat"] == "Node" and event["name"].endswith("_kernel_time"):
            found[event["name"]].append(event)
    for same in found.values():
        given = same[0]["args"]
        ports = (*given["input_type_shape"], *given["output_type_shape"])
        shapes = tuple(tuple(next(iter(port.values()))) for port in ports)
        least = min(event["dur"] for event in same) / 1e6
        yield Kernel(given["op_name"], shapes, least)


def openvino_kernels(
    model: Path, inputs: Mapping[str, np.ndarray], threads: int
) -> Iterator[Kernel]:
    """Yield the kernels of OpenVINO."""
    import openvino

    options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads,
               "INFERENCE_PRECISION_HINT": "f32", "PERF_COUNT": True}  # fmt: skip
    compiled = openvino.Core().compile_model(model, "CPU", options)
    request = compiled.create_infer_request()
    least: dict[str, float] = {}
    for _ in range(RUNS):
        request.infer(dict(inputs))
        for node_profile in request.get_profiling_info():
            seconds = node_profile.real_time.total_seconds()
            name = node_profile.node_name
            least[name] = min(least.get(name, seconds), seconds)
    for node in compiled.get_runtime_model().get_ordered_ops():
        about, shape = node.get_rt_info(), list(node.output(0).shape) if node.outputs() else [0]
        name, seconds = node.get_friendly_name(), least.get(node.get_friendly_name(), 0.0)
        if seconds:
            kind = f"{about['layerType'].astype(str)} ({about['primitiveType'].astype(str)})"
            read = [tuple(port.get_shape()) for port in node.inputs()]
            yield Kernel(kind, (*read, tuple(shape)), seconds, name)


def _sum(kernels: list[Kernel]) -> str:
    return _us(sum(kernel.seconds for kernel in kernels))


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"


if __name__ == "__main__":
    main()
