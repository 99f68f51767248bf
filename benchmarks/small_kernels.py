"""What a small kernel costs from call to call: `python benchmarks/small_kernels.py`.

Models of many small operators: a chain of products with sigmoids; loops whose rounds are constant,
and whose rounds are computed; a GRU cell that is called as a stream; and files that are named, such
as a published one. Each is built without tuning. Times are those of one
operator, one round, or one call, beside onnxruntime's, each contender in a process of its own, in
turn. The ratio is that of minimum times, below 1 where the build is faster; the other one is that
of the medians.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import numpy_helper, parser
from safetensors.numpy import load_file, save_file

import autopipe
from autopipe.api.init import write_pipeline_file
from autopipe.artifacts.model import ImportedModel
from autopipe.verification.inputs import draw_inputs

WIDTH: Final = 64
LENGTH: Final = 100
"""Products in the chain, each with a bias, a sigmoid and a sum behind it."""
ROUNDS: Final = 500
HIDDEN, HEARD = 128, 40
SECONDS: Final = 0.5
"""Of calls that count, of each contender in each turn."""
HEAD: Final = '<ir_version: 8, opset_import: ["": 17]>'


@dataclass(frozen=True, slots=True)
class SmallModel:
    """A model, its sizes, and the unit of its time."""

    name: str
    model: onnx.ModelProto | Path
    parts: int = 1
    """What the time of a call is divided by."""
    unit: str = "call"
    states: dict[str, str] = field(default_factory=dict)
    """Outputs that become inputs of the next call, by input; it is called as a stream then."""
    counts: dict[str, int] = field(default_factory=dict)
    """Inputs that are numbers, with their values."""
    shapes: tuple[str, ...] = ()
    """Sizes that the model leaves open, as `autopipe init --shape` takes them."""


def main() -> None:
    """Measure all models, and print one row each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", help="other ONNX files: model.onnx@x=1,576")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contender")
    parser.add_argument("--contender", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contender:
        print(json.dumps(_times(*options.contender)))
        return
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    print(f"{'model':<28} {'autopipe':>11} {'onnxruntime':>12} {'ratio':>6} {'medians':>8}")
    for small in [*models(), *map(_named, options.models)]:
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = _raced(small, Path(folder), options.rounds)
        least, other = (min(times) / small.parts * 1e6 for times in (ours, theirs))
        middle = statistics.median(ours) / statistics.median(theirs)
        row = f"{small.name:<28} {least:9.2f}us {other:10.2f}us {least / other:6.2f} {middle:8.2f}"
        print(f"{row}  a {small.unit}", flush=True)


def models() -> Iterator[SmallModel]:
    """Yield the models of our own."""
    yield SmallModel("chain of products", _chain(), 3 * LENGTH, "operator")
    loop = _LOOP.replace("ROUNDS", f"= {{{ROUNDS}}}")
    yield SmallModel("loop, rounds known", _parsed(loop, **_cell()), ROUNDS, "round")
    loop = _LOOP.replace("int64 n ROUNDS, ", "").replace("] x)", "] x, int64 n)")
    counts = {"n": ROUNDS}
    yield SmallModel("loop, rounds computed", _parsed(loop, **_cell()), ROUNDS, "round", {}, counts)
    yield SmallModel("GRU cell as a stream", _gru(), states={"h": "h_next"})


_LOOP: Final = f"""
    loop (float[1,{WIDTH}] x) => (float[1,{WIDTH}] y) <int64 n ROUNDS, bool go = {{1}}>
    {{
      y = Loop(n, go, x) <
        body = cell (int64 i, bool c, float[1,{WIDTH}] h) => (bool c2, float[1,{WIDTH}] h2) {{
            c2 = Identity(c)
            a = MatMul(h, w)
            b = Add(a, v)
            h2 = Tanh(b)
        }}>
    }}"""


def _named(argument: str) -> SmallModel:
    path, *shapes = argument.split("@")
    return SmallModel(Path(path).stem[:28], Path(path), shapes=tuple(shapes))


def _parsed(text: str, **weights: np.ndarray) -> onnx.ModelProto:
    model = parser.parse_model(HEAD + text)
    tensors = [numpy_helper.from_array(values, name) for name, values in weights.items()]
    model.graph.initializer.extend(tensors)
    return model


def _cell() -> dict[str, np.ndarray]:
    return {"w": _drawn(WIDTH, WIDTH) / WIDTH**0.5, "v": _drawn(WIDTH)}


def _chain() -> onnx.ModelProto:
    """Return products that each need the one before; every weight is another one."""
    lines: list[str] = []
    weights: dict[str, np.ndarray] = {}
    for at in range(LENGTH):
        weights |= {f"w{at}": _drawn(WIDTH, WIDTH) / WIDTH**0.5, f"b{at}": _drawn(WIDTH)}
        lines += [f"p{at} = Gemm(x{at}, w{at}, b{at})", f"s{at} = Sigmoid(p{at})"]
        lines += [f"x{at + 1} = Add(s{at}, x{at})"]
    ends = f"(float[1,{WIDTH}] x0) => (float[1,{WIDTH}] x{LENGTH})"
    return _parsed(f"chain {ends} {{ {' '.join(lines)} }}", **weights)


def _gru() -> onnx.ModelProto:
    gates = 3 * HIDDEN
    text = f"""
    cell (float[1,1,{HEARD}] x, float[1,1,{HIDDEN}] h) => (float[1,1,{HIDDEN}] h_next)
    {{ none, h_next = GRU<hidden_size = {HIDDEN}, linear_before_reset = 1>(x, w, r, b, "", h) }}
    """
    model = _parsed(
        text,
        w=_drawn(1, gates, HEARD) / HIDDEN**0.5,
        r=_drawn(1, gates, HIDDEN) / HIDDEN**0.5,
        b=_drawn(1, 2 * gates),
    )
    model.graph.node[0].output[0] = ""
    return model


def _drawn(*shape: int) -> Any:  # noqa: ANN401 - an array
    return np.random.default_rng(sum(shape)).standard_normal(shape, "float32")


def _raced(small: SmallModel, folder: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Build a model, and return the seconds of each call, ours and theirs."""
    path = folder / "small.onnx"
    if isinstance(small.model, Path):
        path.write_bytes(small.model.read_bytes())
    else:
        onnx.save(small.model, path)
    write_pipeline_file(str(path), folder / "small.yaml", shapes=small.shapes)
    made = autopipe.run(
        folder / "small.yaml", overrides=["tuning=null"], store=folder / "store", until="build"
    )
    imported = ImportedModel.read(Path(made["import"].path))
    drawn = draw_inputs(imported.inputs, imported.selects, (2026, 11))
    counts = {name: np.full_like(drawn[name], value) for name, value in small.counts.items()}
    save_file({**drawn, **counts}, folder / "inputs.safetensors")
    (folder / "states.json").write_text(json.dumps(small.states), encoding="utf-8")
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds):
        ours += _timed("autopipe", Path(made["build"].path), folder)
        theirs += _timed("onnxruntime", path, folder)
    return ours, theirs


def _timed(contender: str, model: Path, folder: Path) -> list[float]:
    command = [sys.executable, __file__, "--contender", contender, str(model), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [float(seconds) for seconds in json.loads(done.stdout)]


def _times(contender: str, model: str, folder: str) -> list[float]:
    """Return the seconds of each call of a contender, in this process."""
    inputs = load_file(Path(folder, "inputs.safetensors"))
    states = json.loads(Path(folder, "states.json").read_text(encoding="utf-8"))
    make = _ours if contender == "autopipe" else _theirs
    call = make(Path(model), inputs, states)
    _called(call, SECONDS / 2)
    return _called(call, SECONDS)


def _called(call: Callable[[], object], seconds: float) -> list[float]:
    times, end = [], time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        call()
        times.append(time.perf_counter() - start)
    return times


def _ours(
    model: Path, inputs: dict[str, np.ndarray], states: dict[str, str]
) -> Callable[[], object]:
    from autopipe.compiler.library.runtime import load_artifact

    loaded = load_artifact(model)
    if not states:
        return lambda: loaded(inputs)
    stream = loaded.stream(states)
    given = {name: array for name, array in inputs.items() if name not in states}
    return lambda: stream(given)


def _theirs(
    model: Path, inputs: dict[str, np.ndarray], states: dict[str, str]
) -> Callable[[], object]:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    given = dict(inputs)

    def call() -> None:
        made = dict(zip(names, session.run(None, given), strict=True))
        for name, output in states.items():
            given[name] = made[output]

    return call


if __name__ == "__main__":
    main()
